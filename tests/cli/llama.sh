#!/bin/sh
# fsdp train --model llama: it learns, its file tells fsdp generate all that it
# must know, and what does not fit is refused.
. "${srcdir-.}/tests/cli/run.sh"

batch="--batch-size 12 --micro-batch-size 2"
shape="--model llama --data $stories --layers 1 --heads 4 --kv-heads 2
       --width 24 --context 16"

# refused "WORD|WORD..." ARGUMENT...: on 3 ranks; every word is in the message
refused() {
    words=$1
    shift
    fsdp 3 "$@"
    echo "$words" | tr '|' '\n' >"$tmp/needed"
    refuses
    while read -r word; do
        grep -q -e "$word" "$tmp/err" || complain "no word of: $word"
    done <"$tmp/needed"
}

# ---- shapes

refused '--kv-heads 3|--heads 4' train $shape $batch --kv-heads 3
refused '--kv-heads 8|--heads 4' train $shape $batch --kv-heads 8
refused '--kv-heads' train $shape $batch --kv-heads 0
refused '--heads 5|--width 24|--width 25' train $shape $batch --heads 5 \
    --kv-heads 1
refused '--heads 4|--width 28|odd|--width 32' train $shape $batch --width 28
refused '--untied|gpt2' train $shape $batch --untied
refused '--hidden|mlp' train $shape $batch --hidden 8
for option in '--kv-heads 2' '--intermediate-size 8' --tied; do
    refused "${option%% *}|llama" train --model gpt2 --data "$stories" \
        $batch $option
done

# ---- a file, and what generate makes of it

# Guessing each byte by how frequent it is costs 3.06 nats in these stories.
fsdp 2 train $shape --batch-size 16 --micro-batch-size 8 --steps 120 \
    --lr 1e-2 --save "$tmp/llama" --log-file "$tmp/log"
ends_with 0
[ "$(member held_out_loss | cut -c1-3)" \< 2.9 ] ||
    complain "the held-out loss is $(member held_out_loss)"
for n in 1 3; do
    fsdp $n generate --model "$tmp/llama" --prompt Once --tokens 40
    ends_with 0
    cp "$tmp/out" "$tmp/text.$n"
done
cmp "$tmp/text.1" "$tmp/text.3" || complain 'the text depends on the ranks'
[ "$(wc -c <"$tmp/text.1")" = 45 ] || complain 'not 4 + 40 bytes and a newline'

# lie NAME SED-SCRIPT: the header says something else, in as many bytes
lie() {
    LC_ALL=C sed "$2" "$tmp/llama" >"$tmp/$1"
    ! cmp -s "$tmp/llama" "$tmp/$1" || complain "$1 is no lie"
}
lie heads.st '1s/"num_attention_heads":"4"/"num_attention_heads":"3"/'
refused 'heads.st' generate --model "$tmp/heads.st"
lie kv.st '1s/"num_key_value_heads":"2"/"num_key_value_heads":"1"/'
refused 'kv.st' generate --model "$tmp/kv.st"
refused 'kv.st|--kv-heads' train $shape $batch --init "$tmp/kv.st"
lie layers.st '1s/"num_hidden_layers":"1"/"num_hidden_layers":"2"/'
refused 'layers.st' generate --model "$tmp/layers.st"
lie scaling.st '1s/"rope_scaling":"null"/"rope_scaling":"yarn"/'
refused 'scaling.st|rope_scaling|yarn|null' generate --model "$tmp/scaling.st"
refused 'scaling.st|rope_scaling' train $shape $batch --init "$tmp/scaling.st"
refused 'heads' train $shape $batch --heads 2 --kv-heads 1 --init "$tmp/llama"

# Another base of the rotation is another model: generate and --init look.
lie theta.st '1s/"rope_theta":"10000"/"rope_theta":"20000"/'
for file in llama theta.st; do
    fsdp 1 generate --model "$tmp/$file" --prompt 'Once upon a' --tokens 200
    ends_with 0
    cp "$tmp/out" "$tmp/text.$file"
    fsdp 2 train $shape $batch --steps 1 --lr 0 --init "$tmp/$file" \
        --save "$tmp/again" --log-file "$tmp/log.$file"
    ends_with 0
    fsdp 1 generate --model "$tmp/again" --prompt 'Once upon a' --tokens 200
    ends_with 0
    cmp "$tmp/out" "$tmp/text.$file" || complain "$file was not kept"
done
! cmp -s "$tmp/text.llama" "$tmp/text.theta.st" ||
    complain 'the base of the rotation changes nothing'
exit $bad
