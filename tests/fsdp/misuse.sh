#!/bin/sh
# FSDP2 used wrongly at run time: each run ends at once, on all ranks, with one
# message that names what, and what to do.
: "${MPIEXEC=mpiexec}" "${ASAN_OPTIONS=detect_leaks=0}" "${OMP_NUM_THREADS=1}"
export ASAN_OPTIONS OMP_NUM_THREADS
bad=0

# expect NAME PATTERN: exit status 3, one line that matches PATTERN
expect() {
    output=$(timeout -k 5 60 $MPIEXEC -n 2 tests/fsdp/misuse "$1" 2>&1)
    status=$?
    count=$(printf '%s\n' "$output" | grep -c -e "$2")
    [ "$status" = 3 ] && [ "$count" = 1 ] && return
    echo "$1: exit status $status instead of 3, or $count lines like '$2'" \
        "instead of 1:"
    printf '%s\n' "$output" | sed 's/^/    /'
    bad=1
}

expect child-first \
    'module "layers.0" ran before the root module "".*through its root first'
expect list-as-root \
    'a list of 2 modules ("layers.0", \.\.\.); give their common parent'
expect no-values 'stem.weight has no values yet.*fsdp_module_materialize()'
expect scalar 'scale has 0 dimensions.*scalar has no rows to shard'
expect used-while-sharded 'layers.0.weight used while SHARDED'
exit $bad
