#!/bin/sh
# make check-pytorch: training against ours, files of Hugging Face's, and some of
# the seeded faults.  The last line is "N passed, N failed" over all; without
# PyTorch it says so and what would install it.
: "${srcdir=.}" "${MPIEXEC=mpiexec}" "${CASES=}"
python=${PYTHON:-${FSDP_PYTHON:-python3}}
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
passed=0 failed=0

command -v "$python" >/dev/null ||
    { echo "check-pytorch: skipped: there is no $python"; exit 0; }

# run SCRIPT [ARGUMENT]: adds up its last line; 77: PyTorch is missing
run() {
    script=$1
    shift
    { "$python" "$srcdir/tests/pytorch/$script" "$@" --fsdp ./fsdp \
        --mpiexec "$MPIEXEC" $CASES; echo $? >"$out.status"; } | tee "$out"
    status=$(cat "$out.status")
    rm -f "$out.status"
    [ "$status" != 77 ] || exit 0
    last=$(tail -n 1 "$out")
    case $last in
    *' passed, '*' failed') ;;
    *) last='0 passed, 1 failed' ;;
    esac
    passed=$((passed + ${last%% *}))
    last=${last#*, }
    failed=$((failed + ${last%% *}))
}

run check_pytorch.py
if [ -z "$CASES" ]; then
    run hf_files.py
    run seeded/run.py --quick
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
