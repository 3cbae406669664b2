#!/bin/sh
# The same global batch on any number of ranks and threads gives the same file,
# byte for byte, the same losses and norms at each step and the same held-out
# figures; and a file that was saved goes on where it ended.
. "${srcdir-.}/tests/cli/run.sh"

gpt2="--model gpt2 --data $stories --layers 2 --heads 2 --width 20 --context 9
      --dropout 0.2 --eval-batches 5"
llama="--model llama --data $stories --layers 2 --heads 4 --kv-heads 2
       --width 24 --context 9 --dropout 0.2 --eval-batches 5"
mlp="--model mlp --data $digits --hidden 33,21"

# saved FILE RANKS ARGUMENT...
saved() {
    file=$1
    n=$2
    shift 2
    fsdp "$n" train "$@" --steps 5 --batch-size 16 --micro-batch-size 2 \
        --save "$tmp/$file" --log-file "$tmp/log"
    ends_with 0
    [ -s "$tmp/$file" ] || complain "$file was not written"
    {
        sed -n '/"event":"step"/s/"tokens_per_s":[^,]*//p' "$tmp/log"
        echo "held out: $(member held_out_loss) $(member accuracy)"
    } >"$tmp/log.$(basename "$file")"
}

# same FILE FILE
same() { cmp "$tmp/$1" "$tmp/$2" || complain "$1 and $2 are not the same"; }

for model in gpt2 llama mlp; do
    eval "options=\$$model"
    saved $model 1 $options --threads 1
    for n in 1 2 4 8; do
        for threads in 1 2; do
            [ $n$threads = 11 ] && continue
            saved $model.$n.$threads $n $options --threads $threads
            same $model $model.$n.$threads
            same log.$model log.$model.$n.$threads
        done
    done
    saved $model.seed 2 $options --seed 2
    ! cmp -s "$tmp/$model" "$tmp/$model.seed" ||
        complain 'the seed changed nothing'
done

# Loaded and saved without a step that changes anything: the same bytes, on
# another number of ranks, and the baseline of a verification begins there too.
for n in 1 3; do
    for model in gpt2 llama mlp; do
        eval "options=\$$model"
        fsdp $n train $options --steps 1 --batch-size 6 --micro-batch-size 2 \
            --lr 0 --init "$tmp/$model" --save "$tmp/$model.again" \
            --verify step
        ends_with 0
        same $model $model.again
    done
done

# What was there before is replaced; nothing else is left in the folder.
mkdir "$tmp/only"
echo old >"$tmp/only/model"
saved only/model 2 $mlp
[ "$(ls -A "$tmp/only")" = model ] || complain 'more than the file is left'
same mlp only/model
exit $bad
