#!/bin/sh
# What the order mpi leaves to MPI is rounding: in float64 the largest difference
# is smaller than in float32 by about 2^29.  A difference that does not shrink is
# no rounding.
#
# How much is "about"?  Two sums of the same k terms, whose magnitudes sum to S,
# differ by 2 (k - 1) u S at most, u = 2^-24 or 2^-53; and if they differ, by one
# unit in the last place, which is at least u |sum|.  Where S is largest there
# are thousands of elements, so that some of them differ in either type, and in
# some of those no more than half cancels, |sum| >= S / 2.  The largest
# difference is thus between u S / 2 and 2 (k - 1) u S in both types, and the
# quotient 2^29 up to a factor of 4 (k - 1).
. "${srcdir-.}/tests/cli/run.sh"

# largest RANKS TYPE: of three steps of one micro-batch a rank
largest() {
    fsdp "$1" train --model mlp --data "$digits" --hidden 64,32 --steps 3 \
        --micro-batch-size 4 --batch-size $((4 * $1)) --verify step \
        --reduce-order mpi --dtype "$2" --log-file "$tmp/log"
    ends_with 0
    is_silent
    largest=$(member largest_difference)
}

looked=no
for n in ${FSDP_NP:-3 4 5}; do
    largest "$n" float32
    single=$largest
    largest "$n" float64
    verdict=$(awk -v s="$single" -v d="$largest" -v k="$n" 'BEGIN {
        if (s == 0 && d == 0) { print "equal"; exit }
        factor = 4 * (k - 1)
        q = d > 0 ? s / d / 2 ^ 29 : 0
        print (q >= 1 / factor && q <= factor) ? "shrinks" : "wrong"
    }')
    [ "$verdict" = equal ] || looked=yes
    [ "$verdict" != wrong ] ||
        complain "differs by $single in float32, by $largest in float64"
done
if [ $looked = no ] && [ $bad = 0 ]; then
    echo 'SKIP: this MPI adds in the order of the baseline, nothing differs'
    exit 77
fi
exit $bad
