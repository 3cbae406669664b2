#!/bin/sh
# One batch, cut into micro-batches in several ways: each sample has the dropout
# and the text that belong to its number in the batch, so the loss of the first
# step is the same.  (That run and baseline agree does not show this: both ask
# one function for the numbers.)
#
# The logits of a sample do not depend on what stands beside it; the losses of
# its tokens are positive, and only the order in which N of them are added and
# divided differs.  Each order errs by (N + 2) u at most, relatively, the
# last u being that of the division; float64 has u = 2^-53.
. "${srcdir-.}/tests/cli/run.sh"

# train RANKS MICRO-BATCH-SIZE OPTION...: the loss of the first step, of 8 samples
train() {
    n=$1 size=$2
    shift 2
    fsdp "$n" train --model gpt2 --data "$stories" --layers 2 --heads 2 \
        --width 8 --dtype float64 --steps 1 --batch-size 8 \
        --micro-batch-size "$size" --log-file "$tmp/log" "$@"
    ends_with 0
    is_silent
    loss=$(sed -n 's/^{"event":"step".*"loss":\([^,}]*\).*/\1/p' "$tmp/log")
}

# loss RANKS MICRO-BATCH-SIZE DROPOUT
loss() { train "$1" "$2" --context 8 --dropout "$3"; }

# near A B [TERMS]: do they differ by the rounding of so many terms only?
near() {
    awk -v a="$1" -v b="$2" -v n="${3-64}" 'BEGIN {
        d = a > b ? a - b : b - a
        exit !(a > 0 && d <= 2 * (n + 2) * 2 ^ -53 * a)
    }'
}

loss 1 8 0.3
whole=$loss
for n in ${FSDP_NP:-1 2 4}; do
    for size in 1 2 4; do
        [ $((n * size)) -le 8 ] || continue
        loss "$n" $size 0.3
        near "$whole" "$loss" || complain "loss $loss, of the whole batch $whole"
    done
done

# Dropout does change the loss.
loss 1 8 0
! near "$whole" "$loss" || complain 'dropout changes nothing'

# Where a document ends nothing is learnt, so that micro-batches have unlike numbers
# of targets: the mean over all tokens is one number however they are cut, the mean
# of the micro-batches' means is not.
documents='--documents --context 96 --eval-batches 4'
train 1 8 $documents --loss-average token
whole=$loss
for n in ${FSDP_NP:-1 2 4}; do
    train "$n" 1 $documents --loss-average token
    near "$whole" "$loss" 768 || complain "$loss, over all tokens $whole"
    train "$n" 1 $documents --loss-average rank
    ! near "$whole" "$loss" 768 || complain 'all micro-batches count alike'
done

# The held-out rows are the same ones on ranks that they cannot be dealt to evenly.
held_out() { sed -n 's/.*"held_out_loss":\([^,}]*\).*/\1/p' "$tmp/log"; }
fsdp 1 train --model mlp --data "$digits" --steps 0 --batch-size 6 \
    --micro-batch-size 1 --dtype float64 --log-file "$tmp/log"
whole=$(held_out)
for n in ${FSDP_NP:-2 3 6}; do
    fsdp "$n" train --model mlp --data "$digits" --steps 0 --batch-size 6 \
        --micro-batch-size 1 --dtype float64 --log-file "$tmp/log"
    ends_with 0
    near "$whole" "$(held_out)" 1000 || complain "$(held_out), not $whole"
done
exit $bad
