#!/bin/sh
# Ranks that do not come, and calls whose end nobody waits for: all ranks end,
# with one message that tells what each of them did.  Rank 1 goes wrong.
. "${srcdir-.}/tests/comm/misuse.sh"

call='#2 all_gather world h.0 float32 6 elements 24 bytes'

# What rank 1 does is told although it cannot tell it itself.
# absent SCENARIO RANK-1-STATE
absent() {
    for n in 2 4; do
        misuse "$1" $n 1.5
        ends_with 3
        says_once
        says '^fsdp: rank [023]: waited for more than 1.5 s; ' \
             "^    rank 0: $call; waiting in it for [1-9][0-9.]* s\$" \
             "^    rank 1: #1 barrier world before$2; outside of collectives for [1-9][0-9.]* s\$"
        [ $n = 2 ] || says "^    rank 3: $call; waiting in it for [1-9]"
    done
}
absent missing ''
absent stopped '; stopped by a signal or a debugger'

# In an endless loop, while the others compare their ledgers.
misuse loop 3 1.5
ends_with 3
says_once
says "^    rank 0: $call; waiting in it" \
     '^    rank 1: #1 barrier world before; outside of collectives' \
     "^    rank 2: $call; waiting in it"

misuse crossed 3 1.5
ends_with 3
says_once
says '^    rank 0: #2 barrier world first; waiting in it for' \
     '^    rank 1: #1 barrier twin first; waiting in it for'

# A slow rank is none that hangs: each wait is counted by itself.
misuse slow 3 1.5
ends_with 0

# A rank that leaves, or is killed, takes the others with it at once.
begin=$(date +%s)
misuse leave 3 50
ends_with 3
says_once
says '^fsdp: rank 1: exit() without fsdp_finalize()'

# killed SCENARIO RANKS: the launcher, if it comes first, ends with the signal.
killed() {
    misuse "$1" "$2" 50
    [ "$status" = 9 ] || ends_with 3
}
# Whatever the others do.
for scenario in crash crash-alone; do
    for n in 2 3 4; do
        killed $scenario $n
        says '^fsdp: rank [0-9]: rank 1 is gone: killed, '
        [ "$(printf '%s\n' "$output" | grep -c '^fsdp: ')" = 1 ] ||
            complain 'not one message'
    done
done
# Even when all they do is to end; then the launcher may be the one to tell.
killed crash-late 3
says '[Kk]illed'
[ $(($(date +%s) - begin)) -lt 40 ] || complain 'it took too long'

# Who stops the launcher hears nothing of ranks that are gone.
scenario='loop, interrupted' ranks=3
output=$(timeout -s INT 2 $MPIEXEC -n 3 tests/comm/misuse loop 50 2>&1)
status=$?
[ "$status" != 0 ] || complain 'the status is 0'
! printf '%s\n' "$output" | grep -q '^fsdp: ' || complain 'a message'

misuse forgotten 3 30
ends_with 3
says_once
says 'fsdp_finalize(): 1 collectives were started and not waited for'
misuse forgotten-comm 3 30
ends_with 3
says_once
says '"twin" is destroyed before 1 of its collectives were waited for'
exit $bad
