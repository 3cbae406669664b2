#!/bin/sh
# Golden bundles: the same bytes each time, read by programs that know nothing of
# the library, refused when stale or damaged; and the nearest peer's fault, bias
# gradients that no rank reduces, is named at step 1.
. "${srcdir-.}/tests/cli/run.sh"
export MPIEXEC

# golden ARGUMENT...: fsdp golden, which starts its ranks itself
golden() {
    ranks=1
    arguments="golden $*"
    timeout -k 5 300 ./fsdp golden "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
}

# reads PROGRAM BUNDLE HASH: how it ended, in status
reads() {
    arguments="$*"
    "$@" >"$tmp/out" 2>"$tmp/err"
    status=$?
}

# hash NAME RANKS: of that run in the bundle
hash() {
    tr -d ' \n' <"$tmp/a/bundle.json" |
        sed "s/.*\"name\":\"$1\",\"ranks\":$2,[^}]*\"hash\":\"\([0-9a-f]*\)\".*/\1/"
}

golden --config list
ends_with 0
says '^mlp ' '^gpt2-tied ' '^llama ' '^uneven ' '^hsdp ' '^bf16 '

golden --config mlp,uneven --ranks 1,3 --out "$tmp/a"
ends_with 0
is_silent
OMP_NUM_THREADS=2 golden --config mlp,uneven --ranks 1,3 --out "$tmp/b"
ends_with 0
diff -r "$tmp/a" "$tmp/b" >/dev/null || complain 'the second bundle differs'
golden --check "$tmp/a"
ends_with 0

# The example readers, with the right hash and with a stale one.
reader=tutorials/02_golden_reader
for n in 1 3; do
    reads $reader "$tmp/a" "$(hash mlp $n)"
    ends_with 0
    says '^128 elements updated, 0 wrong'
done
reads $reader "$tmp/a" "$(hash uneven 3)" # which is not SGD's
ends_with 1
reads $reader "$tmp/a" 0123456789abcdef
ends_with 2
python="${PYTHON-python3} ${srcdir-.}/python/read_golden.py"
if ${PYTHON-python3} -c 'import numpy' 2>/dev/null; then
    for name in mlp uneven; do
        reads $python "$tmp/a" "$(hash $name 3)"
        ends_with 0
        says '^[1-9][0-9]* reduced values, 0 wrong'
    done
    reads $python "$tmp/a" 0123456789abcdef
    ends_with 2
else
    echo 'python/read_golden.py is not run: there is no NumPy'
fi

# Stale or damaged.
file=$tmp/b/mlp/ranks-1/step-000001/rank-00000.safetensors
for bytes in 4 99 9999; do
    head -c $bytes "$file" >"$tmp/cut" && cp "$tmp/cut" "$file"
    reads $reader "$tmp/b" "$(hash mlp 1)"
    ends_with 2
    grep -q "$file: " "$tmp/err" || complain 'the reader does not name the file'
    cp "$tmp/a${file#"$tmp/b"}" "$file"
done
sed "s/$(hash mlp 3)/0123456789abcdef/" "$tmp/a/bundle.json" >"$tmp/b/bundle.json"
golden --check "$tmp/b"
refuses stale
cp "$tmp/a/bundle.json" "$tmp/b/bundle.json"
echo >>"$tmp/b/mlp/ranks-3/trace.json"
golden --check "$tmp/b"
refuses 'not as it was written'
rm "$tmp/b/bundle.json"
golden --check "$tmp/b"
refuses bundle.json

# A configuration of one's own; wrong use.
echo '{"name":"mine","options":{"model":"mlp","hidden":"5","tp":"x"}}' \
    >"$tmp/mine.json"
golden --config "$tmp/mine.json" --ranks 1 --out "$tmp/c"
refuses --tp
echo '{"name":"../mine","options":{}}' >"$tmp/mine.json"
golden --config "$tmp/mine.json" --ranks 1 --out "$tmp/d"
refuses name
golden --config none --out "$tmp/d"
refuses none list
golden --ranks 1,x --out "$tmp/d"
refuses ranks
golden --config mlp --ranks 1 --out "$tmp/a"
refuses 'choose another'
golden
refuses --out

# The peer's fault (an MLP, SGD): every rank keeps its own gradient of each bias.
for n in 2 3 4; do
    fsdp $n train --model mlp --data "$digits" --hidden 16,8 --optimizer sgd \
        --batch-size 48 --steps 1 --verify step --inject skip-bias-reduce@1
    ends_with 1
    says 'first divergence: step 1, gradient of layers.0.bias'
done
# Its replicas then differ from each other.
fsdp 3 train --model mlp --data "$digits" --hidden 16,8 --optimizer sgd \
    --batch-size 48 --steps 1 --verify phase --inject unreduced-replica@1
ends_with 1
says 'first divergence: step 1, gathered parameter.*bias'
exit $bad
