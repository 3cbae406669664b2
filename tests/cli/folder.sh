#!/bin/sh
# Models in folders as Hugging Face has them: written, read, trained on, written
# again with the same bytes, in one file and in several; what is wrong with one is
# said in one line.
. "${srcdir-.}/tests/cli/run.sh"

batch="--batch-size 8 --micro-batch-size 1 --eval-batches 3"
six="$batch --batch-size 6"
text="--data $stories --context 16"

# bytes FOLDER: of all its tensors, in order; their types, shapes and names
bytes() {
    for f in "$tmp/$1"/model*.safetensors; do
        n=$(od -An -t u8 -N 8 "$f" | tr -d ' ')
        tail -c +$((n + 9)) "$f"
    done | cksum
    fsdp 1 inspect --file "$tmp/$1"
    grep '^    [a-z]*[0-9]' "$tmp/out"
}

# same FOLDER FOLDER
same() {
    bytes "$1" >"$tmp/bytes.1"
    bytes "$2" >"$tmp/bytes.2"
    [ -s "$tmp/bytes.1" ] && cmp "$tmp/bytes.1" "$tmp/bytes.2" ||
        complain "$1 and $2 do not hold the same tensors"
}

# files FOLDER COUNT
files() {
    [ "$(ls "$tmp/$1" | grep -c safetensors$)" = "$2" ] ||
        complain "$1 does not hold $2 files of tensors"
}

for model in "gpt2 --untied" "llama --kv-heads 2 --tied" gpt2; do
    rm -rf "$tmp"/m*
    fsdp 2 train --model $model $text $batch --layers 2 --heads 4 --width 24 \
        --steps 3 --save "$tmp/m/" --dropout 0.1
    ends_with 0
    files m 1
    for n in 1 3; do
        fsdp $n train --model "$tmp/m" $text $six --steps 0 --save "$tmp/m$n/" \
            --max-shard-size ${n}0K
        ends_with 0
        says 'held-out loss'
        same m m$n
        cmp "$tmp/m/config.json" "$tmp/m$n/config.json" ||
            complain 'another config.json'
    done
    [ "$(ls "$tmp/m1" | grep -c safetensors$)" -gt 3 ] ||
        complain 'too few files'
    [ -s "$tmp/m1/model.safetensors.index.json" ] || complain 'no index'

    # From several files: the same run as from one, which is verified.
    fsdp 2 train --model "$tmp/m1" $text $batch --steps 2 --verify step \
        --seed 3 --save "$tmp/m4/"
    ends_with 0
    fsdp 1 train --model "$tmp/m" $text $batch --steps 2 --seed 3 \
        --save "$tmp/m5/"
    ends_with 0
    same m4 m5
    fsdp 4 plan --model "$tmp/m1" $batch
    ends_with 0
done

# In another type, and from there in that type again.
fsdp 2 train --model "$tmp/m" $text $batch --steps 0 --save-dtype bfloat16 \
    --save "$tmp/half/"
ends_with 0
grep -q '"bfloat16"' "$tmp/half/config.json" || complain 'config.json: no type'
fsdp 1 inspect --file "$tmp/half"
! grep -q '^    float32' "$tmp/out" || complain 'not all is bfloat16'
fsdp 3 train --model "$tmp/half" $text $six --steps 0 --save "$tmp/half2/"
ends_with 0
same half half2

# ---- what is refused

train="train $text $batch --steps 1"
refused 'holds a model|config.json' $train --model "$tmp/m" --save "$tmp/m5"
refused 'gpt2 or llama' train --model mlp --data "$digits" --save "$tmp/new/"
refused 'not writable' $train --model "$tmp/m" --save "$tmp/no/such/"
refused '--max-shard-size' $train --model "$tmp/m" --save "$tmp/x/" \
    --max-shard-size 0
refused '--save' $train --model "$tmp/m" --save "$tmp/file" --save-dtype float16
refused '--layers|leave' $train --model "$tmp/m" --layers 2
refused '--init|leave' $train --model "$tmp/m" --init "$tmp/m"
refused '--context|16 positions' train --data "$stories" --model "$tmp/m" \
    --context 17
refused 'none is no folder' $train --model "$tmp/none"
refused 'choose one of' $train --model gpt3
mkdir "$tmp/empty"
refused 'empty/config.json' $train --model "$tmp/empty"

# broken NAME: a copy of the model, to be broken
broken() {
    rm -rf "$tmp/$1"
    cp -r "$tmp/m1" "$tmp/$1"
}
first=$(ls "$tmp/m1" | grep safetensors$ | head -n 1)
broken pipe
rm "$tmp/pipe/config.json"
mkfifo "$tmp/pipe/config.json"
refused 'pipe/config.json|no regular file' $train --model "$tmp/pipe"
broken deep
head -c 200000 /dev/zero | tr '\0' '[' >"$tmp/deep/config.json"
refused 'deep/config.json' $train --model "$tmp/deep"
broken other
sed 's/"n_embd":24/"n_embd":28/' "$tmp/m1/config.json" >"$tmp/other/config.json"
refused 'shape' $train --model "$tmp/other"
broken vast
sed 's/"n_layer":2/"n_layer":1000000000/' "$tmp/m1/config.json" \
    >"$tmp/vast/config.json"
refused 'vast|layers' $train --model "$tmp/vast"
broken cut
head -c 700 "$tmp/m1/$first" >"$tmp/cut/$first"
refused "cut/$first" $train --model "$tmp/cut"
broken header
printf '\0\344\013\124\002\0\0\0{' >"$tmp/header/$first" # 10 GB of it
refused "header/$first" $train --model "$tmp/header"
broken gone
rm "$tmp/gone/$first"
refused "gone/$first" $train --model "$tmp/gone"
broken escape
sed "s,$first,../m1/$first,g" "$tmp/m1/model.safetensors.index.json" \
    >"$tmp/escape/model.safetensors.index.json"
refused 'escape/model.safetensors.index.json|without a path' $train \
    --model "$tmp/escape"
exit $bad
