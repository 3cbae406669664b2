#!/bin/sh
# Runs one test program on several numbers of ranks; prints one TAP line each.
#   usage: mpi-tap.sh PROGRAM [ARG...]
#
# The numbers are those of $FSDP_NP, or 1 to 5.  A program whose source has the
# line "/* Ranks: 1 3 */" has use for these only: it runs on them, or, if
# FSDP_NP is given, on those that are in both lists, or on its first if none is.
# Exit status 77 of the program skips a count.
: "${FSDP_TEST_TIMEOUT=300}" "${MPIEXEC=mpiexec}"
set -f

# Prints the words of list $1 that are in list $2, or the first of $1.
both() {
    common=
    for n in $1; do
        case " $2 " in *" $n "*) common="$common $n" ;; esac
    done
    echo "${common:-${1%% *}}"
}

name=${1#"$PWD"/}
own=$(sed -n 's|^/\* Ranks: \([0-9 ]*[0-9]\) \*/$|\1|p' \
    "${srcdir-.}/${name#./}.c" 2>/dev/null)
if [ -z "$own" ]; then
    counts=${FSDP_NP:-1 2 3 4 5}
elif [ -z "$FSDP_NP" ]; then
    counts=$own
else
    counts=$(both "$own" "$FSDP_NP")
fi

echo "1..$(echo $counts | wc -w | tr -d ' ')"
i=0
for np in $counts; do
    i=$((i + 1))
    FSDP_TEST_NP=$np; export FSDP_TEST_NP
    out=$(timeout "$FSDP_TEST_TIMEOUT" $MPIEXEC -n "$np" "$@" 2>&1)
    rc=$?
    printf '%s\n' "$out" | sed 's/^/# /'
    case $rc in
        0)   echo "ok $i - $np rank(s)" ;;
        77)  echo "ok $i - $np rank(s) # SKIP" ;;
        124) echo "not ok $i - $np rank(s): no end in $FSDP_TEST_TIMEOUT s" ;;
        *)   echo "not ok $i - $np rank(s): exit status $rc" ;;
    esac
done
