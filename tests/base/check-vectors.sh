#!/bin/sh
# Does gcc turn loops over the functions of base/vmath.h, and the loops of the
# exact sums, into vectors?  A branch or a call slipped into one of them would
# cost a factor of ten, and no other test would see it.
: "${CC=cc}"
cd "${srcdir:-.}" || exit 1
flags='-std=gnu11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
       -fopenmp-simd -Iinclude -Isrc'
macros=$($CC -dM -E -xc /dev/null)
case $macros in *__clang__*) echo 'not gcc: skipped'; exit 77 ;; esac
case $macros in *__x86_64__*) ;; *) echo 'not x86-64: skipped'; exit 77 ;; esac

bad=0
# Complains of less than $2 vectorised loops in the source on standard input,
# called $1.
want_loops() {
    found=$($CC $flags -fopt-info-vec -S -o /dev/null -xc - 2>&1 |
        grep 'loop vectorized' | sort -u | wc -l)
    [ "$found" -ge "$2" ] && return
    echo "$1: $found loops vectorised, $2 wanted"
    bad=1
}

for call in 'float expf' 'float logf' 'float tanhf' 'float erff' \
    'float rsqrtf' 'double exp' 'double log' 'double tanh' 'double erf' \
    'double rsqrt'; do
    type=${call% *} name=fsdp_${call#* }
    want_loops "$name" 1 <<EOF
#include "base/vmath.h"
void loop(const $type *restrict x, $type *restrict y);
void loop(const $type *restrict x, $type *restrict y)
{
    for (int i = 0; i < 4096; i++)
        y[i] = $name(x[i]);
}
EOF
done
# The largest element, the terms, the cut.
want_loops exact_sum_array.c 3 <src/base/exact_sum_array.c
exit $bad
