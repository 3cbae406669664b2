#!/bin/sh
# What a user can get wrong: exit status 2 from every rank, one line that names
# the option or file, and what to do about it; no hang.
. "${srcdir-.}/tests/cli/run.sh"
FSDP_RUN_TIMEOUT=60

# bad "WORD|WORD..." ARGUMENT...: on $counts ranks; every word is in the message
bad() {
    words=$1
    shift
    for n in $counts; do
        fsdp $n "$@"
        ends_with 2
        if [ "$(wc -l <"$tmp/err")" != 1 ] || ! grep -q '^fsdp: ' "$tmp/err"
        then
            complain 'not one line "fsdp: ..."'
        fi
        echo "$words" | tr '|' '\n' >"$tmp/needed"
        while read -r word; do
            grep -q -e "$word" "$tmp/err" || complain "no word of: $word"
        done <"$tmp/needed"
    done
}

gpt2="train --model gpt2 --layers 1 --heads 2 --width 8 --context 8 --steps 1"
mlp="train --model mlp --hidden 8 --steps 1"
batch="--batch-size 6 --micro-batch-size 2"
text="--data $stories"
csv="--data $digits"

# ---- options
counts=3

bad 'trian|fsdp help' trian
bad 'unknown option.*--stpes|did you mean.*--steps' train --stpes 3
bad 'record is an option of other commands' plan --ranks 4 --record x
bad 'does not divide the 3 ranks' plan --ranks 3 --tp 2
bad 'a multiple of 3 is needed' plan --ranks 3 --tp 3
bad 'unknown option.*--wrong-thing|--help' $gpt2 $text --wrong-thing 3
bad 'more|unexpected' $gpt2 $text $batch more
bad '--steps|value' $gpt2 $text --steps
bad '--steps' $gpt2 $text --steps=
for value in 3x 1e99 -1 '' ' 3' 99999999999999999999 0x10 3.0; do
    bad "--steps|0 to " $gpt2 $text --steps "$value"
done
for value in x nan inf -0.5 1e999 '' '1,5' '0x1p3'; do
    bad "--lr|0 to " $mlp $csv --lr "$value"
done
bad '--seed' $mlp $csv --seed -4
bad '--beta2' $gpt2 $text --beta2 1
bad '--model|gpt3|gpt2' train --model gpt3 $text
bad '--data' $gpt2 $batch
bad '--optimizer|adam|adamw' $gpt2 $text --optimizer adam
bad '--dtype|float32' $gpt2 $text --dtype float16
bad '--verify|phase' $gpt2 $text --verify all
bad '--reduce-order|tree' $gpt2 $text --reduce-order random
bad '--inject|no-such-bug|list' $gpt2 $text --inject no-such-bug
bad '--inject|whole number' $gpt2 $text --inject skip-rank@x
bad '--untied' $mlp $csv --untied=yes
bad '--heads|--width' $gpt2 $text $batch --heads 3
bad '--vocab-size' $gpt2 $text $batch --vocab-size 100
bad '--hidden|mlp' $gpt2 $text $batch --hidden 8
bad '--layers|gpt2' $mlp $csv $batch --layers 2
bad '--momentum|sgd' $mlp $csv $batch --momentum 0.9
bad '--momentum' $mlp $csv $batch --optimizer sgd --nesterov
bad '--warmup-steps|--steps' $mlp $csv $batch --warmup-steps 2
bad '--min-lr|--lr' $mlp $csv $batch --min-lr 2
for value in 8, ,8 8,,8 8x 0 -8 a; do
    bad '--hidden|64,32' $mlp $csv $batch --hidden "$value"
done
bad '--micro-batch-size|--batch-size' $gpt2 $text --batch-size 7 \
    --micro-batch-size 2

# Micro-batches that do not divide among the ranks, or are fewer than these.
fsdp 3 $gpt2 $text --batch-size 8 --micro-batch-size 2
refuses '4 micro-batches' '3 ranks' '--batch-size 6'
fsdp 5 $mlp $csv --batch-size 4 --micro-batch-size 2
refuses '5 ranks' '2 micro-batches' '--batch-size 10'

# ---- data
counts='1 3'

bad "nowhere.txt|--data" $gpt2 $batch --data "$tmp/nowhere.txt"
bad "nowhere.csv|--data" $mlp $batch --data "$tmp/nowhere.csv"
bad "$tmp|regular file" $gpt2 $batch --data "$tmp"
: >"$tmp/empty"
bad 'empty' $gpt2 $batch --data "$tmp/empty"
bad 'empty' $mlp $batch --data "$tmp/empty"
printf 'too short' >"$tmp/short"
bad 'short' $gpt2 $batch --data "$tmp/short"
mkfifo "$tmp/pipe"
bad 'pipe|regular file' $gpt2 $batch --data "$tmp/pipe"
if [ "$(id -u)" != 0 ]; then
    cp "$digits" "$tmp/closed"
    chmod 0 "$tmp/closed"
    bad 'closed|ermission' $mlp $batch --data "$tmp/closed"
fi

# csv NAME FORMAT: twenty good rows, then one that is not
csv() {
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        echo "$i,2,$((i % 3))"
    done >"$tmp/$1"
    printf "$2" >>"$tmp/$1"
}
csv ragged '1,2,3,0\n'
bad 'ragged|21' $mlp $batch --data "$tmp/ragged"
csv words '1,cat,0\n'
bad 'words|21' $mlp $batch --data "$tmp/words"
csv nan '1,nan,0\n'
bad 'nan|21' $mlp $batch --data "$tmp/nan"
csv infinite '1,1e999,0\n'
bad 'infinite|21' $mlp $batch --data "$tmp/infinite"
csv label '1,2,0.5\n'
bad 'label|21' $mlp $batch --data "$tmp/label"
csv negative '1,2,-1\n'
bad 'negative|21' $mlp $batch --data "$tmp/negative"
bad 'digits.csv|--label-column' $mlp $batch $csv --label-column 65

# ---- files of models

fsdp 1 $gpt2 $text $batch --save "$tmp/gpt2"
ends_with 0
fsdp 1 $mlp $csv $batch --save "$tmp/mlp"
ends_with 0
size=$(wc -c <"$tmp/gpt2")

bad 'none.st' $gpt2 $text $batch --init "$tmp/none.st"
bad 'none.st' generate --model "$tmp/none.st"
bad '--model' generate
bad 'empty' generate --model "$tmp/empty"
bad 'mlp' generate --model "$tmp/mlp"
bad 'stories' generate --model "$stories"
for end in 1 7 8 100 $((size / 2)) $((size - 1)); do
    head -c "$end" "$tmp/gpt2" >"$tmp/cut.st"
    bad 'cut.st' generate --model "$tmp/cut.st"
    bad 'cut.st' $gpt2 $text $batch --init "$tmp/cut.st" --verify step
done
{ cat "$tmp/gpt2"; echo more; } >"$tmp/long.st"
bad 'long.st' generate --model "$tmp/long.st"

# lie NAME SED-SCRIPT: the header says something else, in as many bytes
lie() {
    LC_ALL=C sed "$2" "$tmp/gpt2" >"$tmp/$1"
    ! cmp -s "$tmp/gpt2" "$tmp/$1" || complain "$1 is no lie"
}
lie shape.st '1s/"shape":\[256,8\]/"shape":[255,8]/'
bad 'shape.st' generate --model "$tmp/shape.st"
lie huge.st '1s/"n_embd":"8"/"n_embd":"9"/'
bad 'huge.st|metadata' generate --model "$tmp/huge.st"
lie heads.st '1s/"n_head":"2"/"n_head":"3"/'
bad 'heads.st' generate --model "$tmp/heads.st"
lie layers.st '1s/"n_layer":"1"/"n_layer":"9"/'
bad 'layers.st' generate --model "$tmp/layers.st"
lie type.st '1s/"F32"/"F33"/'
bad 'type.st' generate --model "$tmp/type.st"
bad 'mlp' $gpt2 $text $batch --init "$tmp/mlp"
bad 'gpt2|wte.weight' $gpt2 $text $batch --width 16 --init "$tmp/gpt2"
bad 'gpt2' $gpt2 $text $batch --layers 2 --init "$tmp/gpt2"
bad 'gpt2|head' $gpt2 $text $batch --heads 4 --init "$tmp/gpt2"
bad 'mlp|layers.0.weight' $mlp $csv $batch --hidden 9 --init "$tmp/mlp"

# ---- places to write to

bad 'no/such/folder' $mlp $csv $batch --save "$tmp/no/such/folder/model"
bad '--save|folder' $mlp $csv $batch --save "$tmp"
bad '--log-file|no/such' $mlp $csv $batch --log-file "$tmp/no/such/log"
bad '--log-file|/dev/full' $mlp $csv $batch --log-file /dev/full
bad '/proc/model|folder' $mlp $csv $batch --save /proc/model

# A disk that is full at --save: here, a limit on the size of files that leaves
# MPI its shared memory, but is less than the model, whether the shell counts in
# blocks of 512 bytes or of 1,024.
mkdir "$tmp/full"
for n in 1 3; do
    ranks=$n arguments='train --save on a full disk'
    (trap '' XFSZ; ulimit -f 40000
     exec timeout -k 5 60 $MPIEXEC -n $n ./fsdp $mlp $csv $batch \
         --hidden 3600,3600 --save "$tmp/full/model") >"$tmp/out" 2>"$tmp/err"
    status=$?
    refuses 'full/model' 'room'
    [ -z "$(ls -A "$tmp/full")" ] || complain 'something is left behind'
done

# Nobody listens any more.
arguments='train >/dev/full'
for n in 1 3; do
    ranks=$n
    timeout -k 5 60 $MPIEXEC -n $n sh -c \
        'exec ./fsdp "$@" >/dev/full' fsdp $mlp $csv $batch \
        >"$tmp/out" 2>"$tmp/err"
    status=$?
    refuses 'standard output'
    timeout -k 5 60 $MPIEXEC -n $n sh -c \
        'exec ./fsdp "$@" >&-' fsdp $mlp $csv $batch \
        >"$tmp/out" 2>"$tmp/err"
    status=$?
    refuses 'standard output'
done

# ---- ranks

# Another MPI's launcher, simulated by what it sets.
ranks='1 of 4' arguments=train
OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 timeout 60 ./fsdp $mlp $csv \
    $batch >"$tmp/out" 2>"$tmp/err"
status=$?
refuses "Open MPI's mpirun" 'mpiexec.mpich'

# ---- options of sharding
hybrid='--api fsdp1 --sharding-strategy HYBRID_SHARD'
counts='3 4'
bad '--mesh|2x5|10 ranks' $mlp $csv --mesh 2x5
counts=4
for mesh in 2x 2y2 0x4 x4 -2x2 2x2x1 '2 x 2'; do
    bad '--mesh|replicas' $mlp $csv --mesh "$mesh"
done
bad '--reshard-after-forward|sometimes|auto' $mlp $csv \
    --reshard-after-forward sometimes
bad '--reshard-after-forward 3|divisor' $mlp $csv --reshard-after-forward 3
bad '--reshard-after-forward 4|2 ranks' $mlp $csv --mesh 2x2 \
    --reshard-after-forward 4
bad '--reshard-after-forward' $mlp $csv --reshard-after-forward 0
for factor in 0 -1 x '' 1e99 nan; do
    bad '--divide-factor' $mlp $csv --divide-factor "$factor"
done
bad '--gradient-sync|replicas|--mesh' $mlp $csv --gradient-sync last-all-reduce
bad '--gradient-sync|choose one' $mlp $csv --gradient-sync sometimes
bad '--param-dtype|choose one' $mlp $csv --param-dtype int32
bad '--averaging|choose one' $mlp $csv --averaging median
bad '--no-cast-forward-inputs|--param-dtype' $gpt2 $text \
    --no-cast-forward-inputs
bad '--no-cast-forward-inputs|--param-dtype' $mlp $csv \
    --no-cast-forward-inputs --param-dtype bfloat16
bad '--loss-scale|--grad-scaler' $mlp $csv --loss-scale 8
bad '--documents|gpt2' $mlp $csv --documents
bad 'offload|no-such-folder|create' $mlp $csv --batch-size 16 \
    --offload no-such-folder
bad '--tp 3|4 ranks' $mlp $csv --tp 3
bad '--tp|--api fsdp2' $mlp $csv --tp 2 --api fsdp1
for option in '--averaging pre-post' --force-sum '--forward-prefetch 1' \
    '--backward-prefetch 1' '--shard-placement largest' \
    '--reshard-after-forward true' '--output-dtype float32'; do
    bad "${option%% *}|--api fsdp2" $mlp $csv $option --api fsdp1
    bad "${option%% *}|--api fsdp2" $mlp $csv $option --strategy zero2
done
bad '--sharding-strategy|--api fsdp1' $mlp $csv --sharding-strategy NO_SHARD
bad '--backward-prefetch-policy|--api fsdp1' $mlp $csv \
    --backward-prefetch-policy NONE
bad '--sharding-strategy HYBRID_SHARD|--mesh' $mlp $csv $hybrid
bad '--mesh 2x2|HYBRID_SHARD' $mlp $csv --api fsdp1 --mesh 2x2
bad '--gradient-sync|fsdp2' $mlp $csv $hybrid --mesh 2x2 \
    --gradient-sync last-all-reduce
bad '--strategy zero1|--mesh' $mlp $csv --strategy zero1 --mesh 2x2
bad '--strategy ddp|--api' $mlp $csv --strategy ddp --api fsdp1
moe="$gpt2 $text --experts 4"
bad '--experts|--model gpt2' $mlp $csv --experts 4
bad '--experts-per-token|--experts' $gpt2 $text --experts-per-token 1
bad '--expert-parallel|--experts' $gpt2 $text --expert-parallel 2
bad '--router-aux-loss|--experts' $gpt2 $text --router-aux-loss 1
bad '--experts-per-token 5|--experts 4' $moe --experts-per-token 5
bad '--expert-parallel 3|--experts 6' $moe --expert-parallel 3
bad '--expert-parallel 3|4 ranks' $moe --experts 6 --expert-parallel 3
bad '--expert-parallel 4|2 ranks' $moe --mesh 2x2 --expert-parallel 4
bad '--experts|--tp' $moe --tp 2
bad '--expert-parallel|--api fsdp2' $moe --expert-parallel 2 --api fsdp1
bad '--expert-parallel|--api fsdp2' $moe --expert-parallel 2 --strategy ddp
bad '--record|--expert-parallel 2|leave --expert-parallel out' $moe \
    --expert-parallel 2 --record "$tmp/trace"
bad '--save|experts|file' $moe --save "$tmp/folder/"
bad '--reshard-after-forward 2|experts' $moe --expert-parallel 2 \
    --reshard-after-forward 2
counts=2
bad 'heads|2 ranks|multiple of 2' $gpt2 $text --tp 2 --heads 1

# Ranks that are told different things.
ranks=2 arguments='train : train'
timeout -k 5 60 $MPIEXEC -n 1 ./fsdp $mlp $csv --batch-size 4 : \
    -n 1 ./fsdp $mlp $csv --batch-size 8 >"$tmp/out" 2>"$tmp/err"
status=$?
refuses 'rank 1' 'options'
timeout -k 5 60 $MPIEXEC -n 1 ./fsdp $mlp $csv --batch-size 8 : \
    -n 1 ./fsdp $mlp $csv --batch-size x >"$tmp/out" 2>"$tmp/err"
[ $? != 124 ] || complain 'one of them waits for ever'

# Too many threads: a warning, and the run goes on.
fsdp 2 $mlp $csv --batch-size 4 --micro-batch-size 2 --threads 64
ends_with 0
[ "$(grep -c '^fsdp: warning: .*threads' "$tmp/err")" = 1 ] ||
    complain 'not one warning'
exit $bad
