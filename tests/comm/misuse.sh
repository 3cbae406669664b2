# Read by the scripts beside it: starts the program `misuse` and looks at how it
# ends.  Not a test itself.
: "${MPIEXEC=mpiexec}" "${ASAN_OPTIONS=detect_leaks=0}" "${OMP_NUM_THREADS=1}"
export ASAN_OPTIONS OMP_NUM_THREADS
bad=0

# complain TEXT: of the run that was just looked at
complain() {
    echo "misuse $scenario on $ranks rank(s): $*"
    echo "    exit status $status, output:"
    printf '%s\n' "$output" | sed 's/^/    /'
    bad=1
}

# misuse SCENARIO RANKS SECONDS: sets output and status
misuse() {
    scenario=$1 ranks=$2
    output=$(timeout -k 5 60 $MPIEXEC -n "$2" tests/comm/misuse "$1" "$3" 2>&1)
    status=$?
}

# The run ended with status $1 ...
ends_with() { [ "$status" = "$1" ] || complain "exit status is not $1"; }

# ... said one thing, and that only ...
says_once() {
    [ "$(printf '%s\n' "$output" | grep -c '^fsdp: ')" = 1 ] ||
        complain 'not one message'
    # The launcher may add its own frame of ='s for a rank that it killed.
    others=$(printf '%s\n' "$output" |
        grep -v -e '^fsdp: ' -e '^    ' -e '^=' -e '^$')
    [ -z "$others" ] || complain "more than a message: $others"
}

# ... with lines in it that match each of these.
says() {
    for line in "$@"; do
        printf '%s\n' "$output" | grep -q -e "$line" ||
            complain "no line like: $line"
    done
}
