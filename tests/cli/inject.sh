#!/bin/sh
# Every fault that can be put into a run is found: exit status 1, at the step at
# which it happened, in the place where it acts.
. "${srcdir-.}/tests/cli/run.sh"

# What can be seen first of each fault, at the levels step and phase.  Chunks of
# dimensions 13 and 7 are uneven on 2, 3 and 4 ranks.
places='
skip-bias-reduce    gradient            reduced gradient
sum-not-mean        gradient            reduced gradient
mean-not-sum        gradient            reduced gradient
stale-shard         loss                gathered parameter
drop-tail           gradient            reduced gradient
shift-chunk         gradient            reduced gradient
skip-rank           gradient            reduced gradient
reuse-buffer        gradient            reduced gradient
local-norm          norm                norm
unreduced-replica   loss                gathered parameter
half-batch          loss                unit output
wrong-order         gradient            reduced gradient
'
# The columns begin at 1, 21 and 41.
place() {
    echo "$places" | grep "^$1 " | cut -c$2 | sed 's/ *$//'
}

# found FAULT LEVEL PLACE
found() {
    fsdp "$n" train --model mlp --data "$digits" --hidden 13,7 --steps 3 \
        --batch-size $((4 * n)) --micro-batch-size 2 --grad-clip 0.01 \
        --verify $2 --inject "$1@2" --log-file "$tmp/log"
    ends_with 1
    says '^step  *1/3 .*| 0 of [0-9,]* values differ$' \
         '^step  *2/3 .*| [1-9][0-9,]* of [0-9,]* values differ$' \
         'first divergence: step 2, '
    [ "$(member phase)" = "$3" ] ||
        complain "found as \"$(member phase)\", not as \"$3\""
    [ "$(member differing)" -gt 0 ] || complain 'the log has no difference'
}

fsdp 1 train --inject list
ends_with 0
known=$(echo "$places" | sed '/^$/d; s/ .*//')
[ "$(sed 's/ .*//' "$tmp/out")" = "$known" ] ||
    complain 'not the faults that this test knows'

for n in ${FSDP_NP:-2 3 4}; do
    for fault in $(echo "$places" | sed 's/ .*//'); do
        # Two terms have one sum, in any order.
        [ $n$fault = 2wrong-order ] && continue
        found $fault step "$(place $fault 21-40)"
        found $fault phase "$(place $fault 41-)"
    done
done

# Without a verification a fault is let in, but not silently.
fsdp 2 train --model mlp --data "$digits" --steps 1 --inject skip-rank
ends_with 0
grep -q '^fsdp: warning: ' "$tmp/err" || complain 'no warning'
exit $bad
