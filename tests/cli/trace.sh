#!/bin/sh
# Recording a trace changes not a bit of the run, whatever is recorded; replaying
# it gives every bit of the run again; and what cannot be ends with a clear
# message.
. "${srcdir-.}/tests/cli/run.sh"

gpt2="--model gpt2 --data $stories --layers 2 --heads 2 --width 16 --context 9
      --vocab-size 258 --eval-batches 1"
llama="--model llama --data $stories --layers 2 --heads 4 --kv-heads 2
       --width 24 --context 9 --eval-batches 1"
mlp="--model mlp --data $digits --hidden 33,21"

# recorded RANKS ARGUMENT...: with --record and without, the file is the same
recorded() {
    n=$1
    shift
    rm -rf "$tmp/trace"
    fsdp "$n" train --steps 3 --batch-size 16 --micro-batch-size 2 "$@" \
        --save "$tmp/without"
    ends_with 0
    fsdp "$n" train --steps 3 --batch-size 16 --micro-batch-size 2 "$@" \
        --save "$tmp/with" --record "$tmp/trace"
    ends_with 0
    cmp "$tmp/without" "$tmp/with" || complain 'recording changed the run'
    [ -s "$tmp/trace/trace.json" ] || complain 'there is no trace.json'
    files=$(ls "$tmp"/trace/step-00000[0-3]/rank-*.safetensors | wc -l)
    [ "$files" -eq $((4 * n)) ] || complain "$files files of tensors"
    left=$(find "$tmp/trace" -name '*tmp*')
    [ -z "$left" ] || complain "$left is left"
}

# replayed RANKS [ARGUMENT...]: the trace that recorded() left gives the same
# parameters, and every tensor of the trace again
replayed() {
    n=$1
    shift
    rm -rf "$tmp/again"
    fsdp "$n" train --replay "$tmp/trace" --record "$tmp/again" \
        --save "$tmp/replayed" "$@"
    ends_with 0
    cmp "$tmp/with" "$tmp/replayed" || complain 'the replay ended elsewhere'
    for file in "$tmp"/trace/step-*/*.safetensors; do
        cmp "$file" "$tmp/again${file#"$tmp/trace"}" ||
            complain "the replay met something else"
    done
}

# continued RANKS ARGUMENT...: the same parameters at the end; it is another
# number of ranks
continued() {
    n=$1
    shift
    fsdp "$n" train --replay "$tmp/trace" --save "$tmp/replayed" "$@"
    ends_with 0
    cmp "$tmp/with" "$tmp/replayed" || complain 'the replay ended elsewhere'
}

recorded 1 $mlp --gradient-sync last --grad-clip 0.5
replayed 1
continued 4 --verify step
recorded 2 $gpt2 --param-dtype bfloat16 --reduce-dtype float32 --dropout 0.1
replayed 2 --verify step
recorded 2 $gpt2 --strategy zero1 --activation-checkpointing
continued 2
recorded 3 $llama --api fsdp1 --gradient-sync last --batch-size 24 \
    --min-lr 1e-4 --warmup-steps 2
replayed 3
recorded 2 $mlp --offload "$tmp" --force-sum --reduce-order rank \
    --optimizer sgd --momentum 0.9
replayed 2
recorded 4 $gpt2 --tp 2 --loss-average token --documents
replayed 4 --verify step
recorded 4 $llama --mesh 2x2 --gradient-sync last-all-reduce
replayed 4
continued 2
# Sizes that no tensor bears out make nothing of that size.
sed -i 's/"head_dim":6/"head_dim":100000000/' "$tmp/trace/trace.json"
fsdp 1 train --replay "$tmp/trace"
refuses 'has not the rows that .* "head_dim" give it'

# Together with a verification of every phase.
rm -rf "$tmp/trace"
fsdp 3 train $mlp --steps 3 --batch-size 12 --micro-batch-size 2 \
    --verify phase --record "$tmp/trace" --record-steps 2-3
ends_with 0
says '0 of [0-9]* values differ'
steps=$(cd "$tmp/trace" && echo *)
[ "$steps" = 'step-000001 step-000002 step-000003 trace.json' ] ||
    complain "the folder holds $steps"

# It begins with step 2, so with the states that the optimizer had then; of a run
# that ended there the parameters are the same.
fsdp 3 train $mlp --steps 3 --batch-size 12 --micro-batch-size 2 \
    --save "$tmp/with"
ends_with 0
replayed 3

# Other arithmetic, or other ranks, can be asked for.
fsdp 2 train --replay "$tmp/trace" --dtype float64 --reduce-order rank
ends_with 0
says 'float64, on 2 ranks'

# ---- what cannot be ----------------------------------------------------------

fsdp 2 train $mlp --steps 1 --record "$tmp/trace"
refuses 'holds .* of an earlier recording'
fsdp 2 train $mlp --record-steps 2
refuses '--record-steps has a meaning with --record only'
for steps in 0 3-2 1-; do
    fsdp 1 train $mlp --record "$tmp/other" --record-steps=$steps
    refuses "--record-steps $steps: give a number of steps"
done
fsdp 1 train $mlp --steps 4 --record "$tmp/other" --record-steps 5-6
refuses 'begins after --steps 4'
fsdp 1 train $mlp --steps 0 --record "$tmp/other"
refuses 'there is no step to record'
fsdp 1 train $mlp --record "$tmp/none/there"
refuses 'cannot be made'
fsdp 1 train $mlp --record "$tmp/other" --grad-scaler
refuses '--record and --grad-scaler'

replay() { fsdp "$1" train --replay "$tmp/trace" $2; }
replay 4
refuses 'the 6 micro-batches .* cannot be dealt evenly to 4 ranks; start 3'
replay 3 '--batch-size 4'
refuses '--batch-size and --replay: the trace settles that'
replay 3 '--momentum 0.5'
refuses '--momentum has a meaning with --optimizer sgd only'
replay 3 '--steps 4'
refuses '--steps 4: the trace has the inputs of steps 2 to 3'
replay 3 '--verify step'
refuses '--verify begins without optimizer states'
sed 's/"lr":0.001/"lr":null/' "$tmp/trace/trace.json" >"$tmp/other.json"
cp "$tmp/trace/trace.json" "$tmp/whole.json"
edit() { sed "s/$1/$2/" "$tmp/whole.json" >"$tmp/trace/trace.json"; }
edit '"lr":0.001' '"lr":null'
replay 3
refuses 'does not say the "lr" of step 2' 'give --lr'
edit '"adamw"' '"lion"'
replay 3
refuses 'names the optimizer lion' 'give --optimizer'
edit '"scale":1' '"scale":null'
replay 3
refuses 'by what the loss of each of 2 micro-batches was multiplied'
edit '"mlp"' '"resnet"'
replay 3
refuses 'was made with the model resnet'
edit '\[64,33,21,10\]' '[64,33,20,10]'
replay 3
refuses 'parameter layers.1.weight has another shape'
edit 'libfsdp 0' 'other 0'
replay 3
ends_with 0
edit '"dropout":0' '"dropout":0.1'
sed -i 's/libfsdp 0/other/' "$tmp/trace/trace.json"
replay 3
refuses 'a dropout of 0.1, whose masks are in no trace'
cp "$tmp/whole.json" "$tmp/trace/trace.json"
rm -r "$tmp/trace/step-000001"
replay 3
refuses 'lacks parameter/-/layers.0.weight of step 1' 'record() must be called'
[ ! -e "$tmp/other" ] || complain 'a refused recording left a folder'

exit $bad
