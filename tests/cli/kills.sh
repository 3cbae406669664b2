#!/bin/sh
# kill -9 of a rank at any moment: the run goes on from a checkpoint that is no
# older than the last one announced, and in the end nothing shows.  On request
# only: make check-kills N=200 SEED=1
. "${srcdir-.}/tests/cli/run.sh"
: "${N=200}" "${SEED=1}"
dir=$tmp/checkpoints
log=$tmp/log
steps=$((400 * N))
run="train --model mlp --data $digits --hidden 64,32 --batch-size 24
     --micro-batch-size 4 --divide-factor 8"
mkdir "$dir"

random() { # a number below $1, drawn by SEED
    SEED=$(((SEED * 16807) % 2147483647))
    drawn=$((SEED % $1))
}

# The newest checkpoint's step, 0 if there is none.
newest() {
    found=$(ls "$dir" | sed -n 's/^step-0*\([1-9][0-9]*\)$/\1/p' | tail -n 1)
    echo "${found:-0}"
}

# Processes of this run, oldest first: its ranks.
ranks_of() { pgrep -f "[/]fsdp $(echo $run | cut -c1-40).*$dir" || :; }

kills=0 hits=0
while [ $hits -lt "$N" ]; do
    before=$(newest)
    random 4
    n=$((drawn + 1))
    timeout -k 5 100 $MPIEXEC -n $n ./fsdp $run --steps $steps --checkpoint-dir "$dir" \
        --checkpoint-every 1 --checkpoint-keep 2 --resume \
        >"$tmp/out" 2>"$tmp/err" </dev/null &
    launcher=$!
    random 120
    sleep "0.$(printf %02d $((drawn % 100)))"
    random $n
    victim=$(ranks_of | grep -v "^$launcher\$" | sed -n "$((drawn + 2))p")
    if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
        hits=$((hits + 1))
    fi
    wait $launcher
    status=$? ranks=$n arguments="$run (kill $kills)"
    after=$(newest)
    # A message about a checkpoint that does not load, or a step that got lost.
    if grep -q -e 'checksum' -e 'no sound' -e 'index says' "$tmp/err"; then
        complain 'a checkpoint does not load'
    fi
    if [ "$after" -lt "$before" ]; then
        complain "checkpoint $before is lost, $after is the newest"
    fi
    kills=$((kills + 1))
    [ $bad = 0 ] || exit 1
done
echo "$kills runs, $hits of them killed; step $(newest) was reached"

# Numbers of ranks took turns, so the order of sums did too; what remains to be
# seen is that the last one loads and goes on.
fsdp 2 $run --steps $(($(newest) + 20)) --checkpoint-dir "$dir" --resume
ends_with 0
exit $bad
