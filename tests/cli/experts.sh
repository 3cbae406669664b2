#!/bin/sh
# Mixtures of experts: no value differs from unsharded training, wherever the
# experts are; files of one run start another.
. "${srcdir-.}/tests/cli/run.sh"

# As in verified.sh, C = 12, L = 2, T = 8, E experts: in the place of a block's
# perceptron, 8 C^2 + 5 C, stand a gate of E C and experts of 8 C^2 each.
gpt2="--model gpt2 --data $stories --layers 2 --heads 3 --width 12 --context 8
      --eval-batches 2 --micro-batch-size 2"

# verified RANKS EXPERTS ARGUMENT...
verified() {
    n=$1 experts=$2
    shift 2
    parameters=$((256 * 12 + 8 * 12 + 2 * 12 +
        2 * (4 * 144 + 8 * 12 + experts * (12 + 8 * 144))))
    fsdp "$n" train $gpt2 --steps 2 --batch-size $((4 * n)) --grad-clip 0.5 \
        --experts $experts --router-aux-loss 0.01 --log-file "$tmp/log" "$@"
    ends_with 0
    is_silent
    says "^fsdp: gpt2 of $parameters parameters" \
        '^step  *2/2 .*| 0 of [0-9,]* values differ$'
    [ "$(member differing)" = 0 ] || complain 'the summary has differences'
    [ "$(member verified)" -ge $((parameters * 5 * 2)) ] ||
        complain "only $(member verified) values compared"
}

# P divides the ranks and the experts; 3 experts leave some ranks none.
for run in '1 4 1' '2 4 2' '3 3 3' '4 4 2' '5 5 5' '8 4 2'; do
    set -- $run
    verified $1 $2 --expert-parallel $3 --verify phase
done
verified 8 4 --expert-parallel 2 --mesh 2x4 --verify phase \
    --gradient-sync last-all-reduce
verified 6 6 --expert-parallel 3 --verify phase --reduce-order ring \
    --divide-factor default --gradient-sync last --param-dtype bfloat16 \
    --reduce-dtype float32 --activation-checkpointing
verified 4 4 --expert-parallel 2 --verify phase --divide-factor default \
    --averaging premultiply --experts-per-token 1 --reduce-order mpi
verified 2 6 --verify phase --activation-checkpointing --experts-per-token 1
verified 2 4 --verify phase --api fsdp1
verified 2 4 --verify phase --strategy zero2

# A token's second expert has one row more in each of L blocks and S steps, whose
# C values are compared on their way forward and on their way back.
verified 4 4 --expert-parallel 2 --verify phase --experts-per-token 1
one=$(member verified)
verified 4 4 --expert-parallel 2 --verify phase --experts-per-token 2
[ $(($(member verified) - one)) = $((2 * 2 * 2 * 12 * 16 * 8)) ] ||
    complain "$one values with one expert a token, now $(member verified)"

# The number of ranks does not show, nor do those that share experts out.
for places in '1 1' '2 2' '4 2'; do
    set -- $places
    fsdp $1 train $gpt2 --steps 3 --batch-size 16 --experts 4 \
        --expert-parallel $2 --save "$tmp/moe-$1-$2"
    ends_with 0
    cmp "$tmp/moe-1-1" "$tmp/moe-$1-$2" || complain 'another file'
done

# Recorded on all ranks alike; a trace runs again, on another number of them.
for n in 1 2; do
    fsdp $n train $gpt2 --steps 2 --batch-size 4 --experts 4 \
        --router-aux-loss 0.01 --record "$tmp/trace-$n"
    ends_with 0
done
fsdp 2 train --replay "$tmp/trace-1" --record "$tmp/again"
ends_with 0
for ours in trace-2 again; do
    fsdp 1 compare "$tmp/$ours" "$tmp/trace-1"
    ends_with 0
    says '^verdict: '
done

# A file starts another run, and is a model to write with.
fsdp 4 train $gpt2 --steps 1 --batch-size 16 --experts 4 --expert-parallel 4 \
    --init "$tmp/moe-4-2" --verify phase
ends_with 0
says '^step  *1/1 .*| 0 of [0-9,]* values differ$'
fsdp 2 train $gpt2 --steps 1 --batch-size 16 --experts 4 \
    --experts-per-token 1 --init "$tmp/moe-4-2"
refuses '--experts-per-token'
for n in 1 3; do
    fsdp $n generate --model "$tmp/moe-1-1" --tokens 5
    ends_with 0
    cp "$tmp/out" "$tmp/text-$n"
done
cmp "$tmp/text-1" "$tmp/text-3" || complain 'another text'
exit $bad
