#!/bin/sh
# All models, both optimizers, with and without accumulation, on any number of
# ranks: no value differs from unsharded training.  That all was looked at
# shows in the count: a step has at least each parameter's gradient, clipped
# gradient, new value and optimizer state.
. "${srcdir-.}/tests/cli/run.sh"

# Parameters: GPT-2 with a tied head, width C, L layers, T positions, 256
# tokens has 256 C + T C + L (12 C^2 + 13 C) + 2 C; here C = 12, T = 8, L = 2.
gpt2="--model gpt2 --data $stories --layers 2 --heads 3 --width 12 --context 8
      --dropout 0.1 --eval-batches 2"
gpt2_parameters=$((256 * 12 + 8 * 12 + 2 * (12 * 144 + 13 * 12) + 2 * 12))
# Llama: embedding and head 2 x 256 C; a block has 2 C, C^2 for each of q and o,
# C^2 G / H for each of k and v, and 3 C I.  C = 12, H = 6, G = 2, I = 10.
llama="--model llama --data $stories --layers 2 --heads 6 --kv-heads 2
       --width 12 --intermediate-size 10 --context 8 --dropout 0.1
       --eval-batches 2"
llama_parameters=$((2 * 256 * 12 + 2 * (24 + 2 * 144 + 2 * 48 + 360) + 12))
# Widths 64 - 13 - 7 - 10.
mlp="--model mlp --data $digits --hidden 13,7"
mlp_parameters=$((64 * 13 + 13 + 13 * 7 + 7 + 7 * 10 + 10))

# verified PARAMETERS STATES RANKS MICRO-BATCHES ARGUMENT...
verified() {
    least=$(($1 * (3 + $2) * 2))
    n=$3
    batch=$((2 * n * $4))
    shift 4
    fsdp "$n" train "$@" --steps 2 --micro-batch-size 2 \
        --batch-size $batch --grad-clip 0.5 --log-file "$tmp/log"
    ends_with 0
    is_silent
    says '^step  *2/2 .*| 0 of [0-9,]* values differ$'
    [ "$(member differing)" = 0 ] || complain 'the summary has differences'
    [ "$(member first_divergence)" = null ] || complain 'there is a divergence'
    [ "$(member verified)" -ge "$least" ] ||
        complain "only $(member verified) values compared, not $least"
}

for n in ${FSDP_NP:-1 2 3 4 5 8}; do
    for accumulation in 1 4; do
        level=step
        [ $accumulation = 1 ] || level=phase
        verified $gpt2_parameters 2 $n $accumulation $gpt2 --verify $level
        verified $gpt2_parameters 1 $n $accumulation $gpt2 --verify $level \
            --optimizer sgd --momentum 0.9 --nesterov --weight-decay 0.1
        verified $llama_parameters 2 $n $accumulation $llama --verify phase
        verified $mlp_parameters 2 $n $accumulation $mlp --verify $level
        verified $mlp_parameters 0 $n $accumulation $mlp --verify $level \
            --optimizer sgd --lr 0.1
    done
done

# Other ways to run, on two or three ranks.
for n in ${FSDP_NP:-3}; do
    for order in rank ring mpi; do
        verified $mlp_parameters 2 $n 2 $mlp --verify phase \
            --reduce-order $order
    done
    for reshard in true false; do
        verified $gpt2_parameters 2 $n 2 $gpt2 --verify phase \
            --reshard-after-forward $reshard --eval-every 1
    done
    verified $gpt2_parameters 2 $n 1 $gpt2 --verify step --dtype float64
    verified $llama_parameters 1 $n 2 $llama --verify phase --dtype float64 \
        --optimizer sgd --momentum 0.9 --reshard-after-forward false
    verified $((llama_parameters - 256 * 12)) 2 $n 2 $llama --verify phase \
        --tied --reduce-order rank
    verified $((gpt2_parameters + 256 * 12)) 2 $n 1 $gpt2 --verify step --untied
    verified $mlp_parameters 2 $n 1 $mlp --verify step --label-column 64 \
        --warmup-steps 1 --min-lr 1e-5
done
exit $bad
