#!/bin/sh
# Calls that do not fit together: with the ledger check on, all ranks end with
# status 3 and one message that shows both entries; without it a wrong size is
# still found.  Rank 1 is the one that goes wrong.
. "${srcdir-.}/tests/comm/misuse.sh"

# mismatch SCENARIO FIELDS LINE LINE: what rank 1 calls, what the others call
mismatch() {
    for n in 2 4; do
        [ $n = 2 ] && them='rank 0:' || them='ranks 0, 2, 3:'
        misuse "$1" $n 30
        ends_with 3
        says_once
        says "^fsdp: rank 0: " "^    $them #1 $4\$" "^    rank 1: #1 $3\$" \
             "^    differs: $2\$" '^    likely: ..*'
    done
}

scatter='reduce_scatter world u'
size='6 elements 24 bytes'
mismatch kind 'kind' "all_gather world u float32 $size" \
    "$scatter float32 sum/tree $size"
mismatch unit 'unit' "reduce_scatter world h.1 float32 sum/tree $size" \
    "reduce_scatter world h.0 float32 sum/tree $size"
mismatch dtype 'dtype' "$scatter int32 sum/tree $size" \
    "$scatter float32 sum/tree $size"
mismatch order 'order' "$scatter float32 sum/ring $size" \
    "$scatter float32 sum/tree $size"
mismatch count 'count' "$scatter float32 sum/tree 5 elements 20 bytes" \
    "$scatter float32 sum/tree $size"
mismatch op 'op' "all_reduce world u float32 max/tree $size" \
    "all_reduce world u float32 sum/tree $size"
mismatch root 'root' "broadcast world u float32 root 1 $size" \
    "broadcast world u float32 root 0 $size"
mismatch finalize 'kind, dtype, count, unit' 'barrier world fsdp_finalize' \
    "$scatter float32 sum/tree $size"

# Rank 0 has made one call more; most ranks are right, whichever is the lowest.
misuse sequence 3 30
ends_with 3
says_once
says "^    ranks 1, 2: #1 $scatter float32" "^    rank 0: #2 $scatter float32" \
     '^    differs: sequence$'

for s in unseen-count unseen-short; do
    misuse $s 3 30
    ends_with 3
    says_once
    says '^fsdp: rank [0-9]: #1 .* world u float32 .*--ledger check'
done

misuse none 3 30
ends_with 0
[ -z "$output" ] || complain 'there was nothing to say'
exit $bad
