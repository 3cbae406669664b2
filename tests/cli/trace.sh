#!/bin/sh
# Recording a trace changes not a bit of the run, whatever is recorded, and ends
# with a clear message where it cannot be.
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
    fsdp "$n" train "$@" --steps 3 --batch-size 16 --micro-batch-size 2 \
        --save "$tmp/without"
    ends_with 0
    fsdp "$n" train "$@" --steps 3 --batch-size 16 --micro-batch-size 2 \
        --save "$tmp/with" --record "$tmp/trace"
    ends_with 0
    cmp "$tmp/without" "$tmp/with" || complain 'recording changed the run'
    [ -s "$tmp/trace/trace.json" ] || complain 'there is no trace.json'
    files=$(ls "$tmp"/trace/step-00000[0-3]/rank-*.safetensors | wc -l)
    [ "$files" -eq $((4 * n)) ] || complain "$files files of tensors"
    left=$(find "$tmp/trace" -name '*tmp*')
    [ -z "$left" ] || complain "$left is left"
}

recorded 1 $mlp --gradient-sync last --grad-clip 0.5
recorded 2 $gpt2 --param-dtype bfloat16 --reduce-dtype float32 --dropout 0.1
recorded 2 $gpt2 --strategy zero1 --activation-checkpointing
recorded 2 $llama --api fsdp1 --gradient-sync last
recorded 2 $mlp --offload "$tmp"
recorded 4 $gpt2 --tp 2 --loss-average token --documents
recorded 4 $llama --mesh 2x2 --gradient-sync last-all-reduce \
    --reshard-after-forward 2

# Together with a verification of every phase.
rm -rf "$tmp/trace"
fsdp 3 train $mlp --steps 3 --batch-size 12 --micro-batch-size 2 \
    --verify phase --record "$tmp/trace" --record-steps 2-3
ends_with 0
says '0 of [0-9]* values differ'
steps=$(cd "$tmp/trace" && echo *)
[ "$steps" = 'step-000001 step-000002 step-000003 trace.json' ] ||
    complain "the folder holds $steps"

# ---- what cannot be ----------------------------------------------------------

fsdp 2 train $mlp --steps 1 --record "$tmp/trace"
refuses 'holds .* of an earlier recording'
fsdp 2 train $mlp --record-steps 2
refuses '--record-steps has a meaning with --record only'
for steps in 0 -1 3-2 x 1- 2-x 1-2-3; do
    fsdp 1 train $mlp --record "$tmp/other" --record-steps=$steps
    refuses "--record-steps $steps: give a number of steps"
done
fsdp 1 train $mlp --steps 4 --record "$tmp/other" --record-steps 5-6
refuses 'begins after --steps 4'
fsdp 1 train $mlp --record "$tmp/none/there"
refuses 'cannot be made'
fsdp 1 train $mlp --record "$tmp/other" --grad-scaler
refuses '--record and --grad-scaler'
[ ! -e "$tmp/other" ] || complain 'a refused recording left a folder'

exit $bad
