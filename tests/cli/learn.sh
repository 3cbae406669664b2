#!/bin/sh
# Both models learn: the perceptron is right for 96 % of held-out digits, the
# GPT-2 predicts held-out text much better than the frequency of its letters
# could.  A trained GPT-2 writes the same text on any number of ranks.
. "${srcdir-.}/tests/cli/run.sh"

n=${FSDP_NP:-2}
n=${n%% *}
# Four micro-batches a step, or a few more if there are more ranks.
micros=$(((4 + n - 1) / n * n))
fsdp "$n" train --model mlp --data "$digits" --hidden 100 --steps 500 \
    --batch-size $((micros * 16)) --micro-batch-size 16 --optimizer sgd \
    --lr 0.2 --momentum 0.9 --min-lr 0 --weight-decay 1e-3 \
    --log-file "$tmp/log"
ends_with 0
member accuracy | awk '{ exit !($1 >= 0.96) }' ||
    complain "$(member accuracy) of the held-out digits are right"

fsdp "$n" train --model gpt2 --data "$stories" --layers 1 --heads 2 \
    --width 32 --context 32 --steps 800 --batch-size $((micros * 4)) \
    --micro-batch-size 4 --lr 3e-3 --min-lr 3e-4 --warmup-steps 20 \
    --log-file "$tmp/log" --save "$tmp/model"
ends_with 0
echo "$(member held_out_loss) $(member unigram_entropy)" |
    awk '{ exit !($1 > 0 && $1 < 0.8 * $2) }' ||
    complain "a loss of $(member held_out_loss), where the frequency of" \
        "letters alone gives $(member unigram_entropy)"

# text FILE RANKS ARGUMENT...
text() {
    file=$1
    ranks=$2
    shift 2
    fsdp "$ranks" generate --model "$tmp/model" --prompt 'Once' --tokens 80 "$@"
    ends_with 0
    is_silent
    cp "$tmp/out" "$tmp/$file"
}

text one 1 --temperature 0.8 --seed 7
[ "$(wc -c <"$tmp/one")" = 85 ] || complain 'not 4 + 80 bytes and a new line'
grep -q '^Once' "$tmp/one" || complain 'no prompt'
for ranks in ${FSDP_NP:-2 3}; do
    text other "$ranks" --temperature 0.8 --seed 7
    cmp -s "$tmp/one" "$tmp/other" || complain 'another text'
done
text seed 1 --temperature 0.8 --seed 8
! cmp -s "$tmp/one" "$tmp/seed" || complain 'the seed changed nothing'
text cold 1 --temperature 0 --seed 7
text colder 1 --temperature 0 --seed 8
cmp -s "$tmp/cold" "$tmp/colder" || complain 'at temperature 0 the seed shows'
exit $bad
