#!/bin/sh
# FSDP1 used wrongly at run time: each run ends at once, on all ranks, with one
# message that names the unit; another order of units in a later forward is warned
# of once a rank and goes on.
: "${MPIEXEC=mpiexec}" "${ASAN_OPTIONS=detect_leaks=0}" "${OMP_NUM_THREADS=1}"
export ASAN_OPTIONS OMP_NUM_THREADS
bad=0

# expect NAME STATUS COUNT PATTERN: COUNT lines match PATTERN
expect() {
    output=$(timeout -k 5 60 $MPIEXEC -n 2 tests/fsdp/fsdp1_wrong "$1" 2>&1)
    status=$?
    count=$(printf '%s\n' "$output" | grep -c -e "$4")
    [ "$status" = "$2" ] && [ "$count" = "$3" ] && return
    echo "$1: exit status $status instead of $2, or $count lines like '$4'" \
        "instead of $3:"
    printf '%s\n' "$output" | sed 's/^/    /'
    bad=1
}

expect ranks-differ 3 1 \
    'order differs across ranks: rank 0 runs unit "layers.0" while rank 1 runs'
expect iterations-differ 0 2 \
    'order differs from that of the first iteration: unit "layers.1"'
expect gather-forgotten 3 1 'call fsdp_zero_gather_parameters() after each'
expect run-while-summoned 3 1 'call fsdp1_release_full_params() first'
expect inner-unit-first 3 1 'unit "layers.0" ran before the root unit'
exit $bad
