# Read by the scripts beside it: starts the program and looks at how it ends.
# Not a test itself.
: "${MPIEXEC=mpiexec}" "${ASAN_OPTIONS=detect_leaks=0}" "${OMP_NUM_THREADS=1}"
: "${OMP_WAIT_POLICY=passive}" "${FSDP_DATA_DIR=${srcdir-.}/data}"
export ASAN_OPTIONS OMP_NUM_THREADS OMP_WAIT_POLICY
digits=$FSDP_DATA_DIR/digits.csv
stories=data/stories.txt
bad=0

# A folder for the files of this test.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# complain TEXT: of the run that was just looked at
complain() {
    echo "$ranks rank(s): fsdp $arguments"
    echo "    $*"
    echo "    exit status $status, output and errors:"
    sed 's/^/    | /' "$tmp/out" "$tmp/err"
    bad=1
}

# fsdp RANKS ARGUMENT...: sets status; the output is in $tmp/out, the errors in
# $tmp/err
fsdp() {
    ranks=$1
    shift
    arguments=$*
    timeout -k 5 "${FSDP_RUN_TIMEOUT=120}" $MPIEXEC -n "$ranks" ./fsdp "$@" \
        >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
}

# The run ended with status $1 ...
ends_with() { [ "$status" = "$1" ] || complain "exit status is not $1"; }

# ... had lines in its output, or errors, that match each of these ...
says() {
    for line in "$@"; do
        grep -q -e "$line" "$tmp/out" || complain "no line like: $line"
    done
}

# ... had nothing to complain of ...
is_silent() { [ ! -s "$tmp/err" ] || complain 'there are errors'; }

# ... refused to run, with one line, in which each of these stands.
refuses() {
    ends_with 2
    if [ "$(wc -l <"$tmp/err")" != 1 ] || ! grep -q '^fsdp: ' "$tmp/err"; then
        complain 'not one line "fsdp: ..."'
    fi
    for word in "$@"; do
        grep -q -e "$word" "$tmp/err" || complain "the message lacks: $word"
    done
}

# member KEY: its number or word in the last line of the log $tmp/log
member() {
    tail -n 1 "$tmp/log" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"
}

# refused 'WORD|WORD' ARGUMENT...: on 1 and on 2 ranks, with all the words
refused() {
    words=$1
    shift
    for n in 1 2; do
        fsdp $n "$@"
        IFS='|'
        set -f
        refuses $words
        set +f
        unset IFS
    done
}
