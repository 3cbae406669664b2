#!/bin/sh
# fsdp compare: every fault that can be put into a run and shows is wrong, at its
# step and phase; other orders of sums are within rounding, on 1 to 4 ranks; and
# traces that cannot be compared are refused with one message.
. "${srcdir-.}/tests/cli/run.sh"

mlp="--model mlp --data $digits --hidden 13,7"
text="--model gpt2 --data $stories --layers 1 --heads 2 --width 8 --context 96
      --eval-batches 1 --documents --loss-average token"
low='--param-dtype bfloat16 --reduce-dtype float32'
hybrid1='--api fsdp1 --sharding-strategy HYBRID_SHARD'

# record RANKS FOLDER ARGUMENT...
record() {
    n=$1 folder=$2
    shift 2
    fsdp "$n" train "$@" --record "$tmp/$folder"
    ends_with 0
}

# compare ARGUMENT...: one process
compare() { fsdp 1 compare "$@"; }

# The fault, on how many ranks, where it is first wrong ("-": it only rounds
# otherwise), and the arguments.
faults="
skip-bias-reduce|3|reduced_grad|$mlp
sum-not-mean|3|reduced_grad|$mlp
mean-not-sum|3|reduced_grad|$mlp
stale-shard|3|gathered_parameter|$mlp
drop-tail|3|reduced_grad|$mlp
shift-chunk|3|reduced_grad|$mlp
skip-rank|3|reduced_grad|$mlp
reuse-buffer|3|reduced_grad|$mlp
local-norm|3|norm|$mlp
unreduced-replica|3|gathered_parameter|$mlp
half-batch|3|input|$mlp
wrong-order|3|-|$mlp
divide-early|3|-|$mlp
padding-in-norm|3|norm|$mlp
replicas-twice|4|reduced_grad|$mlp --mesh 2x2
skip-all-reduce|4|reduced_grad|$mlp --mesh 2x2
replicas-in-norm|4|norm|$mlp --mesh 2x2
skip-all-reduce|4|reduced_grad|$mlp --mesh 2x2 $hybrid1
lose-partial|4|reduced_grad|$mlp --mesh 2x2 --gradient-sync last-all-reduce
reduce-low|2|reduced_grad|$mlp $low
low-grad|2|reduced_grad|$mlp $low
stale-low-copy|2|gathered_parameter|$mlp $low
accumulate-low|2|reduced_grad|$mlp $low --gradient-sync last
output-uncast|2|unit_output|$mlp --output-dtype bfloat16
skip-post-divide|2|reduced_grad|$mlp --averaging pre-post
skip-post-divide|3|reduced_grad|$mlp --api fsdp1
lose-accumulated|2|reduced_grad|$mlp --gradient-sync last
stale-prefetch|2|input_grad|$mlp --reshard-after-forward true
swap-neighbours|4|input_grad|$mlp --reshard-after-forward 2
strided-as-plain|2|reduced_grad|$mlp --shard-placement largest
tokens-of-rank|2|output_grad|$(echo $text)
"
batch='--steps 2 --batch-size 12 --micro-batch-size 1'
echo "$faults" | while IFS='|' read -r fault n phase rest; do
    [ -n "$fault" ] || continue
    clean=clean-$(echo "$n $rest" | cksum | tr -d ' ')
    [ -d "$tmp/$clean" ] || record "$n" "$clean" $rest $batch
    rm -rf "$tmp/faulty"
    record "$n" faulty $rest $batch --inject "$fault@2"
    compare "$tmp/$clean" "$tmp/faulty"
    arguments="$fault: $arguments"
    if [ "$phase" = - ]; then
        ends_with 0
        says '^verdict: within rounding'
    else
        ends_with 1
        says '^verdict: WRONG' "^first divergence: step 2, $phase"
    fi
    echo $bad >"$tmp/bad"
done
bad=$(cat "$tmp/bad")

# Another producer's gradients that are half of the mean's: ours is the mean, unless
# that is what they are to be.
record 2 halved $mlp $batch --divide-factor 48
sed -i 's/"producer":"libfsdp[^"]*"/"producer":"another"/' "$tmp/halved/trace.json"
record 2 meant --replay "$tmp/halved"
says 'gradients are 0.25 times that of the mean loss' 'keep-loss-scale'
compare "$tmp/meant" "$tmp/halved"
ends_with 1
says '^first divergence: step 1, reduced_grad' 'constant-factor'
record 2 kept --replay "$tmp/halved" --keep-loss-scale
compare "$tmp/kept" "$tmp/halved"
ends_with 0
says '^verdict: equal'
fsdp 1 train $mlp --keep-loss-scale
refuses keep-loss-scale --replay

# Other orders, other averaging, other cuts: not wrong; the same run: equal.
gpt2="--model gpt2 --data $stories --layers 1 --heads 2 --width 16 --context 9
      --eval-batches 1 --steps 3 --batch-size 12 --micro-batch-size 1
      --grad-clip 0.5"
record 4 base $gpt2
compare "$tmp/base" "$tmp/base"
ends_with 0
says '^verdict: equal'
i=0
for other in '1 --reduce-order rank' '2 --reduce-order ring' \
    '3 --reduce-order rank' '4 --reduce-order ring' '4 --reduce-order mpi' \
    '4 --averaging premultiply' '4 --mesh 2x2 --gradient-sync last' \
    '3 --api fsdp1 --micro-batch-size 2'; do
    i=$((i + 1))
    record ${other%% *} "other$i" $gpt2 ${other#* }
    compare "$tmp/base" "$tmp/other$i"
    ends_with 0
    says '^verdict: within rounding'
    ! grep -q '(weak' "$tmp/out" || complain 'something was not run again'
done
# The other way round, and as JSON.
compare "$tmp/other1" "$tmp/base" --json
ends_with 0
says '^{"verdict":"within rounding",.*"first_divergence":null,.*"phases":\[{"phase":"input",.*"missing":\[.*}$'

# In float64 the difference shrinks; a fault does not.
fsdp 4 train --replay "$tmp/base" --record "$tmp/double" --dtype float64 \
    --reduce-order ring
ends_with 0
compare "$tmp/base" "$tmp/other4" --double "$tmp/double"
ends_with 0
says '^reduced_grad .* 2^[23][0-9]' '^theirs in float64: all differences shrink'
fsdp 4 train --replay "$tmp/base" --record "$tmp/double-drop" \
    --dtype float64 --inject drop-tail
ends_with 0
compare "$tmp/base" "$tmp/other4" --double "$tmp/double-drop"
ends_with 1
says '^theirs in float64: BUG' '^first that does not: step 1, reduced_grad'
compare "$tmp/base" "$tmp/other4" --double "$tmp/other3"
refuses 'is to be theirs in float64'

# What cannot be compared.
compare "$tmp/base"
refuses 'two traces'
compare "$tmp/base" "$tmp/other1" "$tmp/double"
refuses '--double'
compare "$tmp/base" "$tmp/nothing"
refuses "$tmp/nothing"
compare "$tmp/base" "$(ls -d "$tmp"/clean-* | head -n 1)"
refuses 'no parameter in common' '--rename'
echo 'one two three' >"$tmp/names"
compare "$tmp/base" "$tmp/base" --rename "$tmp/names"
refuses 'names, line 1: two names'
cp -r "$tmp/base" "$tmp/broken"
file=$tmp/broken/step-000002/rank-00001.safetensors
head -c 3000 "$tmp/base/step-000002/rank-00001.safetensors" >"$file"
compare "$tmp/base" "$tmp/broken"
refuses 'rank-00001.safetensors'
rm "$tmp/broken/trace.json"
compare "$tmp/base" "$tmp/broken" --json
refuses 'trace.json'
fsdp 2 compare "$tmp/base" "$tmp/base"
refuses 'one process'

exit $bad
