#!/bin/sh
# Tokens of a tokenizer.json: written as files for llm.c and nanoGPT, trained on, and
# made into text again; the three ways to the same tokens make the same model.
. "${srcdir-.}/tests/cli/run.sh"

golden=$FSDP_DATA_DIR/golden
for name in gpt2 llama3; do
    sed 's/^{"tokenizer"://; s/,"cases":.*//' \
        "$golden/tokenizer_$name.json" >"$tmp/$name.json"
done
model="--layers 1 --heads 2 --width 16 --context 16 --vocab-size 703
       --batch-size 8 --micro-batch-size 2 --eval-batches 2"

for name in gpt2 llama3; do
    for format in llmc nanogpt; do
        fsdp 1 tokenize --tokenizer "$tmp/$name.json" --data "$stories" \
            --out "$tmp/$name.$format" --format $format
        ends_with 0
        says 'tokens of .* bytes'
    done
    [ "$(($(wc -c <"$tmp/$name.llmc") - 1024))" = \
        "$(($(wc -c <"$tmp/$name.nanogpt")))" ] || complain 'other sizes'
    fsdp 2 train $model --steps 2 --data "$stories" \
        --tokenizer "$tmp/$name.json" --save "$tmp/$name/" --verify step
    ends_with 0
    cmp "$tmp/$name/tokenizer.json" "$tmp/$name.json" ||
        complain 'the tokenizer is not beside the model'
    fsdp 2 train $model --steps 2 --data "$tmp/$name.llmc" \
        --save "$tmp/$name.1/"
    ends_with 0
    fsdp 1 train $model --steps 2 --data "$tmp/$name.nanogpt" \
        --data-format nanogpt --save "$tmp/$name.2/"
    ends_with 0
    for n in 1 2; do
        cmp "$tmp/$name/model.safetensors" "$tmp/$name.$n/model.safetensors" ||
            complain "other tokens made model $name.$n"
    done

    # The folder's own tokenizer: of the text, and of what is generated, where the
    # prompt comes first and the rest is the same on any number of ranks.
    fsdp 3 train --model "$tmp/$name" --data "$stories" --context 16 --steps 0 \
        --batch-size 3 --micro-batch-size 1
    ends_with 0
    for n in 1 2; do
        fsdp $n generate --model "$tmp/$name" --prompt 'Once upon a time' \
            --tokens 30 --seed 3
        ends_with 0
        says '^Once upon a time'
        cp "$tmp/out" "$tmp/generated.$n"
    done
    cmp "$tmp/generated.1" "$tmp/generated.2" || complain 'another text'
    [ "$(wc -c <"$tmp/generated.1")" -gt 40 ] || complain 'too short a text'
done

printf 'latin-1: caf\351\n' >"$tmp/latin"
fsdp 1 tokenize --tokenizer "$tmp/gpt2.json" --data "$tmp/latin" --out "$tmp/l"
ends_with 0
grep -q 'no UTF-8 in 1 places' "$tmp/err" || complain 'no warning'

# MNIST's format, of 100 rows of digits.csv: the same model as of those rows.
awk -F, 'NF == 65 && $65 ~ /^[0-9]$/' "$digits" | head -n 100 >"$tmp/rows"
octal() { awk -F, "{ for (i = $1; i <= $2; i++) printf \"\\\\%03o\", \$i }" "$tmp/rows"; }
# shellcheck disable=SC2059
{
    printf '\000\000\010\003\000\000\000\144\000\000\000\010\000\000\000\010'
    printf "$(octal 1 64)"
} >"$tmp/d-images-idx3-ubyte"
# shellcheck disable=SC2059
{
    printf '\000\000\010\001\000\000\000\144'
    printf "$(octal 65 65)"
} >"$tmp/d-labels-idx1-ubyte"
small="--hidden 5 --steps 3 --batch-size 8 --micro-batch-size 2"
fsdp 2 train --model mlp $small --data "$tmp/rows" --save "$tmp/of.rows"
ends_with 0
fsdp 2 train --model mlp $small --data "$tmp/d-images-idx3-ubyte" \
    --save "$tmp/of.images"
ends_with 0
cmp "$tmp/of.rows" "$tmp/of.images" || complain 'images are not as rows'

# ---- what is refused

train="train $model --steps 1"
refused '--out is needed' tokenize --tokenizer "$tmp/gpt2.json" --data "$stories"
refused '--tokenizer is needed' tokenize --data "$stories" --out "$tmp/x"
refused 'none.json' tokenize --tokenizer "$tmp/none.json" --data "$stories" \
    --out "$tmp/x"
refused 'no/such' tokenize --tokenizer "$tmp/gpt2.json" --data "$stories" \
    --out "$tmp/no/such/x"
refused 'rows' tokenize --tokenizer "$tmp/rows" --data "$stories" --out "$tmp/x"
refused 'tokens up to|--vocab-size' $train --data "$tmp/gpt2.llmc" --vocab-size 300
refused 'tokens already' $train --data "$tmp/gpt2.llmc" \
    --tokenizer "$tmp/gpt2.json"
refused '--documents' $train --data "$tmp/gpt2.llmc" --documents
cp "$tmp/gpt2.nanogpt" "$tmp/t.bin"
refused 't.bin|--data-format nanogpt' $train --data "$tmp/t.bin"
head -c 3000 "$tmp/gpt2.llmc" >"$tmp/cut"
refused 'cut|truncated' $train --data "$tmp/cut"
gzip -c "$tmp/d-images-idx3-ubyte" >"$tmp/g-images-idx3-ubyte"
refused 'compressed|gunzip' train --model mlp $small --data "$tmp/g-images-idx3-ubyte"
refused 'mlp' $train --data "$tmp/d-images-idx3-ubyte"
refused 'gpt2 or llama' train --model mlp $small --data "$tmp/gpt2.llmc"
refused 'IDX' train --model mlp $small --data "$tmp/rows" --labels "$tmp/rows"
mv "$tmp/d-labels-idx1-ubyte" "$tmp/elsewhere"
refused 'd-labels-idx1-ubyte' train --model mlp $small \
    --data "$tmp/d-images-idx3-ubyte"
fsdp 1 train --model mlp $small --data "$tmp/d-images-idx3-ubyte" \
    --labels "$tmp/elsewhere"
ends_with 0
exit $bad
