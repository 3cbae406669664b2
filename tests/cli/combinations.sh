#!/bin/sh
# Combinations of features, drawn by a seeded generator: whatever is asked of the
# sharding at once, no value differs from unsharded training.
#
#     make check                               a small draw
#     make check-combinations N=100 SEED=7     a large one
#     N=1 SEED=7 FIRST=31 sh tests/cli/combinations.sh     one of them again
. "${srcdir-.}/tests/cli/run.sh"
: "${N=6}" "${SEED=1}" "${FIRST=1}"

# One line for each draw: the number of ranks, then the arguments.  Draw i
# depends on SEED and i alone.
draws() {
    awk -v n="$N" -v seed="$SEED" -v first="$FIRST" \
        -v digits="$digits" -v stories="$stories" -v files="$tmp" '
    function next_random(below) { # Park and Miller, below 2^31
        state = (state * 16807) % 2147483647
        return int(state / 2147483647 * below)
    }
    function pick(list,   parts, count) {
        count = split(list, parts, " ")
        return parts[next_random(count) + 1]
    }
    function say(option, value) { line = line " --" option " " value }
    function maybe(option, list,   value) { # "-" stands for: not given
        value = pick(list)
        if (value == "+")
            line = line " --" option
        else if (value != "-")
            say(option, value)
        return value
    }
    function divisors(number,   d, list) {
        for (d = 1; d <= number; d++)
            if (number % d == 0)
                list = list " " d
        return list
    }
    # Experts are not cut by --tp.
    function mixture() {
        experts = tp == 1 ? pick("0 1 2 4 5 6") : 0
        if (experts == 0)
            return
        say("experts", experts)
        maybe("router-aux-loss", "- 0.01")
        if (experts > 2)
            maybe("experts-per-token", "- 1 3")
    }
    # Ranks among which both can be shared out.
    function expert_ranks(shards,   d, list) {
        for (d = 1; d <= experts; d++)
            if (experts % d == 0 && shards % d == 0)
                list = list " " d
        return pick(list)
    }
    function model(   kind) {
        kind = pick("mlp gpt2 llama")
        if (kind == "mlp")
            line = line " --model mlp --data " digits " --hidden 24,13"
        else if (kind == "gpt2")
            line = line " --model gpt2 --data " stories " --layers 2 --heads 4" \
                " --width 24 --context 8 --eval-batches 1"
        else
            line = line " --model llama --data " stories " --layers 2" \
                " --heads 4 --kv-heads 2 --width 24 --intermediate-size 24" \
                " --context 8 --eval-batches 1"
        if (kind == "gpt2") {
            maybe("untied", "- +")
            maybe("dropout", "- 0.1")
            mixture()
        }
        if (kind != "mlp") {
            maybe("documents", "- - +")
            maybe("loss-average", "- token rank")
        }
        return kind
    }
    # A scale of 1e30 overflows in float16: those steps are skipped.
    function types(kind,   low) {
        maybe("dtype", "- - - float64")
        low = maybe("param-dtype", "- - bfloat16 bfloat16 float16 float32")
        maybe("reduce-dtype", "- - float32 bfloat16 float16 float64")
        if (low != "-" && kind != "mlp")
            maybe("no-cast-forward-inputs", "- - - +")
        if (low == "float16" || next_random(8) == 0) {
            line = line " --grad-scaler"
            say("loss-scale", pick("8 1024 1e30"))
            say("loss-scale-interval", 1)
        }
    }
    function fsdp2(   shards, data) {
        data = shards = ranks / tp
        if (tp > 1)
            say("tp", tp)
        if (data % 2 == 0 && next_random(2)) {
            shards = pick(divisors(data))
            say("mesh", data / shards "x" shards)
        }
        shared = experts ? expert_ranks(shards) : 1
        if (shared > 1)
            say("expert-parallel", shared)
        maybe("output-dtype", "- - float32 bfloat16")
        maybe("reshard-after-forward", "- auto true false" \
            (shared > 1 ? "" : divisors(shards)))
        maybe("averaging", "- - premultiply pre-post sum-then-divide")
        maybe("force-sum", "- - - +")
        if (24 % shards == 0)
            maybe("shard-placement", "- largest")
        maybe("forward-prefetch", "- - 1 2")
        maybe("backward-prefetch", "- - 1 2")
        maybe("offload", "- - - - - " files)
        maybe("gradient-sync", data > shards ? "- last last-all-reduce" : "- last")
    }
    function fsdp1(   shards) {
        say("api", "fsdp1")
        if (ranks % 2 == 0 && next_random(2)) {
            shards = pick(divisors(ranks))
            say("mesh", ranks / shards "x" shards)
            say("sharding-strategy", pick("HYBRID_SHARD _HYBRID_SHARD_ZERO2"))
        } else {
            say("sharding-strategy", pick("FULL_SHARD SHARD_GRAD_OP NO_SHARD"))
        }
        maybe("backward-prefetch-policy", "- BACKWARD_POST NONE")
        maybe("gradient-sync", "- last")
    }
    function draw(i,   kind, micros, api) {
        state = (seed * 7919 + i * 104729) % 2147483646 + 1
        next_random(2); next_random(2)
        ranks = next_random(8) + 1
        line = ranks
        api = pick("fsdp2 fsdp2 fsdp2 fsdp1 strategy")
        tp = api == "fsdp2" && ranks % 2 == 0 ? pick("1 1 2") : 1
        experts = 0
        kind = model()
        micros = pick("1 2 3")
        say("micro-batch-size", 2)
        say("batch-size", 2 * ranks / tp * micros)
        types(kind)
        if (api == "fsdp2")
            fsdp2()
        else if (api == "fsdp1")
            fsdp1()
        else
            say("strategy", pick("ddp zero1 zero2 zero3"))
        maybe("activation-checkpointing", "- +")
        maybe("reduce-order", "- tree rank ring mpi")
        maybe("divide-factor", "- - default 3 " ranks)
        maybe("seed", "- 2 3")
        maybe("weight-decay", "- - 0.1")
        say("verify", pick("step phase"))
        maybe("grad-clip", "- 0.05")
        if (pick("adamw sgd") == "sgd")
            line = line " --optimizer sgd --lr 0.05 --momentum 0.9"
        print line
    }
    BEGIN { for (i = first; i < first + n; i++) draw(i) }'
}

draws >"$tmp/draws"
count=0
while read -r n arguments; do
    fsdp "$n" train $arguments --steps 2 --log-file "$tmp/log"
    ends_with 0
    says '^step  *2/2 .*| 0 of [0-9,]* values differ$'
    [ "$(member verified)" -gt 1000 ] || complain 'next to nothing was compared'
    count=$((count + 1))
done <"$tmp/draws"
[ $count = "$N" ] || { echo "$count combinations, not $N"; bad=1; }
echo "$count combinations drawn from seed $SEED"
exit $bad
