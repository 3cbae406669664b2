#!/bin/sh
# Help and version, printed once on any number of ranks and without MPI; the
# doctor; option names with underscores and shortened.
. "${srcdir-.}/tests/cli/run.sh"

for n in 1 3; do
    for words in help --help 'train --help' 'generate --help' 'doctor --help' \
        'train -h --model nonsense'; do
        fsdp $n $words
        ends_with 0
        is_silent
        [ "$(grep -c '^usage: ' "$tmp/out")" = 1 ] || complain 'not once'
    done
    fsdp $n --version
    ends_with 0
    [ "$(wc -l <"$tmp/out")" = 1 ] || complain 'not one line'
    grep -q '[0-9]\.[0-9]' "$tmp/out" || complain 'no version'
done

# Without any MPI at hand: no shared memory, no launcher.
ranks=none arguments=--help
(unset PMI_RANK PMI_FD; PATH=/nonexistent ./fsdp train --help) \
    >"$tmp/out" 2>"$tmp/err"
status=$?
ends_with 0
says --reshard-after-forward --micro-batch-size --log-file

# Every option that the program knows is in the manual.
for command in train generate doctor plan inspect; do
    fsdp 1 $command --help
    sed -n 's/^  --\([a-z0-9-]*\) .*/\1/p' "$tmp/out" >"$tmp/options"
    [ -s "$tmp/options" ] || complain 'no options'
    while read -r option; do
        sed 's/\\-/-/g' "${srcdir-.}/src/cli/fsdp.1" |
            grep -qw -e "--$option" ||
            complain "--$option is not in fsdp.1"
    done <"$tmp/options"
done

ranks=1 arguments='(none)'
./fsdp >"$tmp/out" 2>"$tmp/err"
status=$?
refuses 'fsdp help'

# A comma for a decimal point would be the locale's, and there is none.
LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8
export LC_ALL LC_NUMERIC
fsdp 2 train --model=mlp --data="$digits" --batch_size 4 --micro_batch_size=2 \
    --steps 1 --grad_clip 0.5 --lr 1e-2 --eval_every 1
ends_with 0
is_silent
says '| lr 1.00e-02 |' '^held-out'

for n in ${FSDP_NP:-1 3}; do
    fsdp $n doctor
    case $status in 0 | 3) ;; *) complain 'the doctor fell ill' ;; esac
    says '/dev/shm' '[Cc]ores' 'MPI' 'BLIS' 'all-gather'
    [ "$(grep -c '/dev/shm' "$tmp/out")" = 1 ] || complain 'not said once'
done
exit $bad
