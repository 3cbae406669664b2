#!/bin/sh
# make fuzz: builds the targets with Clang's libFuzzer and the sanitizers in
# fuzz-build/, and lets each search for FUZZ_SECONDS (60), beginning with its
# corpus.  What it finds is in fuzz-build/found/: put it into the corpus, then mend
# the parser.
: "${FUZZ_SECONDS:=60}" "${srcdir:?}" "${CC:=mpicc}"
# A CC given to make would be handed down and override the one configured here.
unset MAKEFLAGS MAKEOVERRIDES
if ! command -v clang >/dev/null ||
    ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n)
        { return d != 0 && n > 9; }' |
    clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null; then
    echo 'make fuzz needs Clang with libFuzzer: apt install clang libomp-dev,' \
        'and on Debian 13 libclang-rt-dev'
    exit 2
fi
mkdir -p fuzz-build/found && cd fuzz-build || exit 2
log=$PWD/build.log
if [ ! -f Makefile ]; then
    # The wrapper may stand behind ccache.
    "$srcdir/configure" -q --enable-fuzz --disable-shared \
        CC="${CC##* } -cc=clang" CFLAGS='-O1 -g' >"$log" 2>&1 ||
        { tail -n 5 "$log"; exit 2; }
fi
names=$(sed -n 's#^ *%D%/fuzz_\([a-z_]*\).*#\1#p' "$srcdir/tests/fuzz/local.mk")
[ -z "$FUZZ_TARGETS" ] || names=$FUZZ_TARGETS
bad=0
for name in $names; do
    make -j2 "tests/fuzz/fuzz_$name" >"$log" 2>&1 ||
        { tail -n 20 "$log"; exit 2; }
    mkdir -p "grown/$name"
    echo "fuzzing $name for $FUZZ_SECONDS s"
    ASAN_OPTIONS=detect_leaks=1 "tests/fuzz/fuzz_$name" \
        -max_total_time="$FUZZ_SECONDS" -rss_limit_mb=1024 \
        -malloc_limit_mb=512 -timeout=10 -max_len=16384 -print_final_stats=1 \
        -artifact_prefix="found/$name-" "grown/$name" \
        "$srcdir/tests/fuzz/corpus/$name" >"$name.log" 2>&1 || bad=1
    grep -E 'ERROR|SUMMARY|not so|number_of_executed|new_units|Test unit' \
        "$name.log" | sed 's/^/    /'
    sed -n 's/.*\(cov: [0-9]* ft: [0-9]*\).*/    first \1/p' "$name.log" | head -n 1
    sed -n 's/.*\(cov: [0-9]* ft: [0-9]*\).*/    last  \1/p' "$name.log" | tail -n 1
done
exit $bad
