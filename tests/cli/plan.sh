#!/bin/sh
# fsdp plan against fsdp train: the bytes of model state, and the calls and bytes
# of all collectives, are the same; peaks are within 1 %, of each category over
# 64 KB and of the sum.  fsdp inspect; and what is refused.
. "${srcdir-.}/tests/cli/run.sh"
FSDP_RUN_TIMEOUT=300
even= # experts' rows are the same on all ranks

# peak FILE RANK CATEGORY: bytes at most
peak() {
    tail -n 1 "$1" | sed 's/.*"peak_bytes"://' | tr '{' '\n' |
        grep "\"rank\":$2," | sed -n "s/.*\"$3\":\([0-9]*\).*/\1/p"
}

# counter FILE COLLECTIVE calls|bytes: of the whole run
counter() {
    tail -n 1 "$1" | sed 's/.*"collectives"://' |
        sed -n "s/.*\"$2\":{\([^}]*\)}.*/\1/p" |
        sed -n "s/.*\"$3\":\([0-9]*\).*/\1/p"
}

# near FOUND LEAST MOST: within 1 % of what lies between
near() {
    awk -v x="$1" -v a="$2" -v b="$3" \
        'BEGIN { exit !(x >= 0.99 * a && x <= 1.01 * b) }'
}

check_rank() {
    for category in parameter_shards gradient_shards optimizer_state; do
        planned=$(peak "$tmp/plan" $1 $category)
        found=$(peak "$tmp/log" $1 $category)
        [ -n "$found" ] && [ "$planned" = "$found" ] ||
            complain "rank $1: $category: $planned planned, $found found"
    done
    for category in unsharded_parameters unsharded_gradients communication \
        activations sum; do
        planned=$(peak "$tmp/plan" $1 $category)
        # How long a reduction takes is up to the messages, how many rows a
        # rank's experts get to the tokens.
        least=$(peak "$tmp/plan" $1 ${category}_at_least)
        most=$([ $even ] || peak "$tmp/plan" $1 ${category}_at_most)
        [ ! $even ] || [ $category != activations ] || least=
        : "${least:=$planned}" "${most:=$planned}"
        found=$(peak "$tmp/log" $1 $category)
        [ "$planned" -lt 65536 ] && [ "$found" -lt 65536 ] ||
            near "$found" "$least" "$most" ||
            complain "rank $1: $category: $planned planned, $found found"
    done
}

# compare RANKS OPTION...: two steps and an evaluation
compare() {
    n=$1
    shift
    fsdp 1 plan --ranks "$n" "$@" --steps 2 --threads 1 --log-file "$tmp/plan"
    ends_with 0
    is_silent
    fsdp "$n" train "$@" --steps 2 --threads 1 --log-file "$tmp/log"
    ends_with 0
    r=0
    while [ $r -lt "$n" ]; do
        check_rank $r
        r=$((r + 1))
    done
    for kind in all_gather reduce_scatter all_reduce all_to_all broadcast; do
        for what in calls bytes; do
            planned=$(counter "$tmp/plan" $kind $what)
            found=$(counter "$tmp/log" $kind $what)
            [ -n "$found" ] && [ "$planned" = "$found" ] ||
                is_up_to_tokens "$kind" "$what" "$found" ||
                complain "$kind: $planned $what planned, $found found"
        done
    done
}

# is_up_to_tokens COLLECTIVE WHAT FOUND: bytes of an all-to-all, below the most
is_up_to_tokens() {
    most=$(tail -n 1 "$tmp/plan" | sed -n 's/.*"collectives_at_most"://; s/"collectives":.*//p' |
        sed -n "s/.*\"$1\":{\"calls\":[0-9]*,\"bytes\":\([0-9]*\)}.*/\1/p")
    [ ! $even ] && [ "$1.$2" = all_to_all.bytes ] && [ "$3" -gt 0 ] && [ "$3" -le "$most" ]
}

gpt2="--model gpt2 --data $stories --layers 3 --width 96 --context 96"
llama="--model llama --data $stories --layers 3 --width 96 --context 96"
mlp="--model mlp --data $digits --hidden 253,511,127"
batch="--batch-size 24 --micro-batch-size 2"

compare 1 $gpt2 --batch-size 8 --eval-batches 2
compare 2 $gpt2 $batch --reshard-after-forward true --optimizer sgd
compare 3 $gpt2 $batch --reshard-after-forward false --eval-batches 7
compare 4 $gpt2 $batch --untied --dropout 0.1
compare 3 $gpt2 $batch --dtype float64 --reduce-order rank --optimizer sgd \
    --momentum 0.9
compare 2 $gpt2 $batch --reduce-order ring --heads 6 --vocab-size 1000
compare 1 $llama --batch-size 4 --optimizer sgd
compare 2 $llama $batch --kv-heads 2
compare 3 $llama $batch --tied --reshard-after-forward true
compare 4 $llama $batch --dtype float64 --reshard-after-forward false \
    --intermediate-size 100
compare 1 $mlp --batch-size 64 --micro-batch-size 32
compare 3 $mlp --batch-size 90 --micro-batch-size 30 \
    --reshard-after-forward true
compare 4 $mlp --batch-size 128 --micro-batch-size 16 --optimizer sgd

# Meshes, precision, synchronisation, strategies.
compare 4 $gpt2 $batch --reshard-after-forward 2 --param-dtype bfloat16 \
    --reduce-dtype float32 --activation-checkpointing
compare 2 $llama $batch --param-dtype float16 --gradient-sync last \
    --output-dtype float32
compare 4 $gpt2 $batch --mesh 2x2 --gradient-sync last-all-reduce
compare 4 $llama $batch --mesh 2x2 --shard-placement largest \
    --forward-prefetch 1 --backward-prefetch 2
compare 3 $mlp --batch-size 90 --micro-batch-size 15 --param-dtype bfloat16 \
    --forward-prefetch 2 --backward-prefetch 2
compare 2 $gpt2 $batch --api fsdp1 --sharding-strategy SHARD_GRAD_OP \
    --gradient-sync last --backward-prefetch-policy BACKWARD_POST
compare 4 $gpt2 $batch --api fsdp1 --sharding-strategy HYBRID_SHARD \
    --mesh 2x2 --param-dtype bfloat16 --backward-prefetch-policy NONE
compare 2 $gpt2 $batch --offload "$tmp" --optimizer adamw
less="--layers 2 --batch-size 12 --micro-batch-size 1 --eval-batches 4"
compare 2 $gpt2 $less --tp 2
compare 4 $gpt2 $less --tp 2 --untied --dropout 0.1 --param-dtype bfloat16 \
    --gradient-sync last
compare 4 $llama $less --tp 2 --tied --activation-checkpointing
compare 4 $mlp $batch --tp 4 --hidden 256,512,128
compare 2 $gpt2 $less --experts 5 --dropout 0.1 --router-aux-loss 0.01
compare 4 $gpt2 $less --experts 6 --experts-per-token 3 --mesh 2x2 \
    --activation-checkpointing --param-dtype bfloat16
compare 3 $gpt2 $less --experts 4 --strategy zero2
compare 2 $gpt2 $less --experts 4 --expert-parallel 2
compare 4 $gpt2 $less --experts 6 --expert-parallel 2 --gradient-sync last \
    --param-dtype bfloat16 --reduce-dtype float32
compare 4 $gpt2 $less --experts 4 --expert-parallel 2 --mesh 2x2 \
    --reshard-after-forward false --backward-prefetch 2
compare 3 $gpt2 $less --experts 3 --expert-parallel 3 --experts-per-token 1
# Each token goes to all experts: rows are dealt evenly.
even=yes
compare 4 $gpt2 $less --experts 4 --expert-parallel 2 --experts-per-token 4
compare 3 $gpt2 $less --experts 3 --expert-parallel 3 --experts-per-token 3 \
    --param-dtype bfloat16
even=
for strategy in ddp zero1 zero2 zero3; do
    compare 3 $gpt2 $batch --strategy $strategy
done

# ---- the table of the paper: 16 bytes a parameter over the ranks

fsdp 1 plan --ranks 4 --memory 1G
ends_with 0
psi=$(sed -n 's/^plan: gpt2 of \([0-9]*\) parameters.*/\1/p' "$tmp/out")
# wte, wpe; four blocks of two norms and 12 C C + 9 C; a norm
[ "$psi" = $((256 * 128 + 128 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + \
    2 * 128)) ] || complain "not $psi parameters"
for row in "1 16 16 16" "4 7 5.5 4" "16 4.75 2.875 1"; do
    line=$(echo "$row" | awk -v p="$psi" '{ printf \
        " *%s  *%.4g  *%.4g  *%.4g$", $1, $2 * p / 1e9, $3 * p / 1e9,
        $4 * p / 1e9 }')
    says "$line"
done
says '^fits: .* of 1 GiB'
fsdp 1 plan --ranks 4 --memory 10M
ends_with 0
says '^does not fit'
fsdp 1 plan --strategy ddp --ranks 4 --log-file "$tmp/plan"
ends_with 0
[ "$(peak "$tmp/plan" 3 parameter_shards)" = $((4 * psi)) ] ||
    complain 'with ddp, not all parameters are on each rank'
fsdp 1 plan --strategy zero1 --ranks 4 --log-file "$tmp/plan"
ends_with 0
[ "$(peak "$tmp/plan" 0 optimizer_state)" = $((2 * psi)) ] ||
    complain 'zero1 does not cut the optimizer state'

# ---- inspect

fsdp 1 inspect --model mlp --data "$digits" --hidden 5 --ranks 4
ends_with 0
is_silent
says '^unit layers.0: 2 parameters, 325 elements;' \
    'layers.0.weight  \[5, 64\] float32' 'rows 2 2 1 0; padding 768 bytes' \
    '^ *00112\.\.\.$' 'rank 3 has nothing of it'
fsdp 1 inspect --model mlp --data "$digits" --hidden 5 --ranks 4 --api fsdp1
ends_with 0
says 'one flat parameter of 328' \
    '0 has \[0, 82) 1 has \[82, 164) 2 has \[164, 246) 3 has \[246, 320)' \
    'of the flat parameter: 3 has \[0, 5)'
fsdp 1 train --model mlp --data "$digits" --hidden 5 --steps 1 \
    --save "$tmp/mlp.st"
fsdp 1 inspect --file "$tmp/mlp.st"
ends_with 0
says 'model_type = mlp' 'float32  *\[5, 64\]  *1280  layers.0.weight' \
    '^4 tensors, 385 elements, 1540 bytes$'
# 6 experts in 2 parts, 3 over 4 ranks: rank r has a chunk of part r mod 2.
moe='--layers 1 --heads 3 --width 12 --experts 6'
fsdp 1 inspect $moe --expert-parallel 2 --ranks 8
ends_with 0
is_silent
says '^unit transformer.h.0.mlp.experts: 2 parameters, 6912 elements; '\
'all-gather of 18432 bytes' \
    'mlp.experts.w1  \[6, 48, 12\] float32' \
    'dim 0 in 2 parts, dim 0 over 4 ranks, rows 1 (6 ranks) 0 0; padding 4608' \
    '^ *024\.135\.$' 'ranks 6 to 7 have nothing of it'
fsdp 1 plan $moe --ranks 4 --expert-parallel 2
ends_with 0
says '^The experts of each rank get as many rows as it sends here'
fsdp 1 plan $moe --ranks 4 --expert-parallel 2 --activation-checkpointing
refuses '--expert-parallel 2' 'activation-checkpointing'
head -c 100 "$tmp/mlp.st" >"$tmp/cut.st"
fsdp 1 inspect --file "$tmp/cut.st"
refuses 'cut.st'
fsdp 1 inspect --file "$tmp/none.st"
refuses 'none.st'

# ---- what is refused

fsdp 1 plan --ranks 0
refuses '--ranks'
fsdp 1 plan --ranks 4 --mesh 2x3
refuses '--mesh 2x3' '--ranks' 6
for mesh in x2 2x 2x0 2y2 -1 1.5 2x2x2; do
    fsdp 1 plan --mesh "$mesh"
    refuses '--mesh'
    fsdp 1 inspect --mesh "$mesh"
    refuses '--mesh'
done
fsdp 1 plan --ranks 4 --reshard-after-forward 3
refuses '--reshard-after-forward 3' 'divide the 4 ranks' 'divisor'
for k in 0 -1 x 2x; do
    fsdp 1 plan --ranks 4 --reshard-after-forward $k
    refuses '--reshard-after-forward'
done
for size in G 16X 16GG x -1 '' 0x10 1e; do
    fsdp 1 plan --ranks 4 --memory "$size"
    refuses '--memory'
done
fsdp 1 plan --model gpt3
refuses '--model' gpt2
fsdp 1 plan --model mlp
refuses '--data'
fsdp 1 plan --data "$tmp/none.txt"
refuses 'none.txt'
fsdp 1 plan --ranks 3
refuses '4 micro-batches' '3 ranks'
fsdp 1 plan --sharding-strategy NO_SHARD
refuses '--sharding-strategy' 'fsdp1'
fsdp 1 plan --api fsdp1 --mesh 2x2
refuses '--mesh 2x2' HYBRID
fsdp 1 plan --api fsdp1 --sharding-strategy HYBRID_SHARD --ranks 4
refuses HYBRID_SHARD '--mesh'
fsdp 1 plan --api fsdp1 --reshard-after-forward true
refuses '--reshard-after-forward' fsdp2
fsdp 1 plan --api fsdp1 --strategy zero1
refuses '--strategy' '--api'
fsdp 1 plan --ranks 4 --gradient-sync last-all-reduce
refuses 'last-all-reduce' '--mesh'
fsdp 1 plan --log-file "$tmp/no/such/log"
refuses 'no/such/log'
fsdp 1 plan --log-file /dev/full
refuses '/dev/full'
exit $bad
