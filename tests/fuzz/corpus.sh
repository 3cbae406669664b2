#!/bin/sh
# Each fuzz target over its corpus: whatever once broke a parser does not again.
: "${srcdir=.}" "${ASAN_OPTIONS=detect_leaks=0}"
export ASAN_OPTIONS
bad=0
for program in tests/fuzz/fuzz_*; do
    case $program in *.o | *.lo | *.c | *.log | *.trs) continue ;; esac
    [ -x "$program" ] && [ ! -d "$program" ] || continue
    target=${program##*/fuzz_}
    set -- "$srcdir/tests/fuzz/corpus/$target"/*
    if [ ! -f "$1" ]; then
        echo "$target has no corpus"
        bad=1
    elif ! output=$(timeout -k 5 60 "$program" "$@" 2>&1 </dev/null); then
        echo "$target: $output"
        bad=1
    else
        echo "$target: $output"
    fi
done
exit $bad
