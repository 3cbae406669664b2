#!/bin/sh
# Does every test that replays.md names exist?  And the report that has no other
# test: going on when the ranks do not divide the vocabulary (torchtitan#1136).
. "${srcdir-.}/tests/cli/run.sh"

names=$(sed -n 's/^|.*|.*| \(tests.*\) |$/\1/p' "${srcdir-.}/tests/replays.md")
[ "$(echo $names | wc -w)" -ge 17 ] || { echo 'rows are missing'; bad=1; }
for name in $names; do
    file=${srcdir-.}/${name%%:*}
    [ -f "$file" ] || { echo "no file $file"; bad=1; continue; }
    [ "${name%%:*}" = "$name" ] || grep -q "^START_TEST(${name#*:})" "$file" ||
        { echo "no test $name"; bad=1; }
done

gpt2="--model gpt2 --data $stories --layers 1 --heads 2 --width 8 --context 8
      --vocab-size 257 --eval-batches 1 --batch-size 8 --micro-batch-size 2"
fsdp 4 train $gpt2 --steps 4 --save "$tmp/whole"
ends_with 0
mkdir "$tmp/dir"
fsdp 4 train $gpt2 --steps 2 --checkpoint-dir "$tmp/dir"
ends_with 0
fsdp 4 train $gpt2 --steps 4 --checkpoint-dir "$tmp/dir" --resume \
    --save "$tmp/again"
ends_with 0
says 'going on after step 2'
cmp "$tmp/whole" "$tmp/again" || complain 'the resumed run ended elsewhere'
exit $bad
