#!/bin/sh
# A run that stops and goes on ends as the one that never stopped, bit for bit,
# whoever wrote the checkpoint and however it was cut.
. "${srcdir-.}/tests/cli/run.sh"

# 120 micro-batches can be dealt to 1, 2, 3, 4, 5 and 8 ranks; a division by a
# power of two does not round, so it does not show how many were summed before.
# The model's file has the bits of all parameters; the optimizer's states show in
# the steps after.
mlp="--model mlp --data $digits --hidden 13,7 --batch-size 120
     --micro-batch-size 1 --divide-factor 128 --lr 0.01 --warmup-steps 2"

# run RANKS ARGUMENT...
run() {
    n=$1
    shift
    fsdp "$n" train $mlp --steps 4 "$@"
    ends_with 0
}

# stop RANKS FOLDER ARGUMENT...: two of the four steps
stop() {
    n=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    fsdp "$n" train $mlp --steps 2 --checkpoint-dir "$folder" "$@"
    ends_with 0
}

# go_on RANKS FOLDER FILE ARGUMENT...: the other two, from a copy of the folder
go_on() {
    n=$1 file=$3
    rm -rf "$tmp/copy"
    cp -r "$2" "$tmp/copy"
    shift 3
    run "$n" --checkpoint-dir "$tmp/copy" --resume --save "$file" "$@"
    says "^fsdp: going on after step 2, from .*step-00000002, written by"
}

same() { cmp -s "$1" "$2" || complain "$1 and $2 differ"; }

# Powers of two: the number of ranks does not show at all.
run 2 --save "$tmp/whole"
stop 2 "$tmp/two"
stop 4 "$tmp/four" --mesh 2x2 --shard-placement largest
stop 1 "$tmp/flat" --api fsdp1 --sharding-strategy FULL_SHARD
stop 2 "$tmp/zero" --strategy zero1
for w in 1 2 4 8; do
    for from in two four; do
        go_on $w "$tmp/$from" "$tmp/again"
        same "$tmp/whole" "$tmp/again"
    done
done
go_on 4 "$tmp/two" "$tmp/again" --api fsdp1 --sharding-strategy SHARD_GRAD_OP
same "$tmp/whole" "$tmp/again"
go_on 2 "$tmp/four" "$tmp/again" --strategy zero2
same "$tmp/whole" "$tmp/again"
for from in flat zero; do
    go_on 2 "$tmp/$from" "$tmp/again" --reshard-after-forward false
    same "$tmp/whole" "$tmp/again"
done

# Others show in the order of sums, but not the stop.
for w in 3 5; do
    run $w --save "$tmp/whole$w"
    stop $w "$tmp/odd$w"
    go_on $w "$tmp/odd$w" "$tmp/again"
    same "$tmp/whole$w" "$tmp/again"
    go_on 1 "$tmp/odd$w" "$tmp/one"
    for m in 2 4 8; do
        go_on $m "$tmp/odd$w" "$tmp/again"
        same "$tmp/one" "$tmp/again"
    done
    go_on $((8 - w)) "$tmp/odd$w" "$tmp/again"
done

# Under a verification unsharded training goes on from the checkpoint as well;
# resume-matrix.sh has all strategies and numbers of ranks.
go_on 4 "$tmp/odd5" "$tmp/again" --verify phase --mesh 2x2
says '^step  *3/4 .*| 0 of [0-9,]* values differ$' '^verified: 0 of '
go_on 2 "$tmp/odd3" "$tmp/again" --verify step --api fsdp1
says '^verified: 0 of '
cp -r "$tmp/odd3" "$tmp/faulty"
fsdp 3 train $mlp --steps 4 --checkpoint-dir "$tmp/faulty" --resume \
    --verify phase --inject stale-shard@4
ends_with 1
says '^step  *3/4 .*| 0 of ' 'first divergence: step 4, gathered parameter'
heads="--model gpt2 --data $stories --layers 1 --heads 2 --width 8 --context 4
       --batch-size 4 --micro-batch-size 2 --eval-batches 1 --grad-scaler
       --loss-scale 1e9
       --loss-scale-interval 2 --param-dtype float16"
mkdir "$tmp/scaled"
fsdp 2 train $heads --steps 3 --checkpoint-dir "$tmp/scaled"
ends_with 0
fsdp 1 train $heads --steps 6 --checkpoint-dir "$tmp/scaled" --resume \
    --verify step
ends_with 0
says '^verified: 0 of '
fsdp 1 train $heads --steps 8 --checkpoint-dir "$tmp/scaled" --resume --heads 4
refuses '--heads 4' 'made with 2'

# Every second step, the newest two kept; SGD; what is already there is seen.
fsdp 2 train $mlp --steps 6 --optimizer sgd --momentum 0.9 \
    --checkpoint-dir "$tmp" --checkpoint-every 2 --checkpoint-keep 2
ends_with 0
[ "$(cd "$tmp" && echo step-*)" = 'step-00000004 step-00000006' ] ||
    complain "not the newest two: $(cd "$tmp" && echo step-*)"

fsdp 2 train $mlp --steps 6 --checkpoint-dir "$tmp"
refuses 'holds checkpoints of an earlier run' 'resume'
fsdp 2 train $mlp --steps 6 --checkpoint-dir "$tmp" --resume
refuses 'give more --steps than 6'
fsdp 2 train $mlp --steps 8 --checkpoint-dir "$tmp" --resume
refuses 'momentum_buffer' 'exp_avg'
fsdp 2 train $mlp --steps 8 --seed 2 --checkpoint-dir "$tmp" --resume
refuses 'seed 2, but' 'made with 1'
fsdp 2 train $mlp --steps 8 --checkpoint-dir "$tmp" --resume --hidden 13,8
refuses 'another shape'
fsdp 2 train $mlp --resume
refuses 'resume needs --checkpoint-dir'
fsdp 2 train $mlp --checkpoint-dir "$tmp/nowhere"
refuses 'nowhere' 'missing or not writable'

# A damaged one is refused.
printf x | dd of="$tmp/step-00000006/rank-00001.safetensors" bs=1 seek=2000 \
    conv=notrunc 2>/dev/null
fsdp 3 train $mlp --steps 8 --optimizer sgd --momentum 0.9 \
    --checkpoint-dir "$tmp" --resume
refuses 'rank-00001.safetensors' 'checksum'
exit $bad
