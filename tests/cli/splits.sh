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

# loss RANKS MICRO-BATCH-SIZE DROPOUT: of the first step, 8 samples of 8 tokens
loss() {
    fsdp "$1" train --model gpt2 --data "$stories" --layers 2 --heads 2 \
        --width 8 --context 8 --dtype float64 --dropout "$3" --steps 1 \
        --batch-size 8 --micro-batch-size "$2" --log-file "$tmp/log"
    ends_with 0
    is_silent
    loss=$(sed -n 's/^{"event":"step".*"loss":\([^,}]*\).*/\1/p' "$tmp/log")
}

# near A B: do they differ by rounding only?
near() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        d = a > b ? a - b : b - a
        exit !(a > 0 && d <= 2 * (64 + 2) * 2 ^ -53 * a)
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
exit $bad
