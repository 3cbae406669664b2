#!/bin/sh
# Every fault that can be put into a run is found: exit status 1, at the step at
# which it happened, in the place where it acts.
. "${srcdir-.}/tests/cli/run.sh"

# What can be seen first of each fault, at the levels step and phase.  Chunks of
# dimensions 13 and 7 are uneven on 2, 3 and 4 ranks.
places='
skip-bias-reduce    gradient            reduced gradient
sum-not-mean        gradient            reduced gradient
mean-not-sum        gradient            reduced gradient
stale-shard         loss                gathered parameter
drop-tail           gradient            reduced gradient
shift-chunk         gradient            reduced gradient
skip-rank           gradient            reduced gradient
reuse-buffer        gradient            reduced gradient
local-norm          norm                norm
unreduced-replica   loss                gathered parameter
half-batch          loss                unit output
wrong-order         gradient            reduced gradient
'
# The columns begin at 1, 21 and 41.
place() {
    echo "$places" | grep "^$1 " | cut -c$2 | sed 's/ *$//'
}

# The same of faults that need replicas, types or other settings to show: the
# fault, on how many ranks, the two places, and the arguments.
mlp="--model mlp --data $digits --hidden 13,7"
small="--model mlp --data $digits --hidden 5"
text="--model gpt2 --data $stories --layers 1 --heads 2 --width 8 --context 96
      --eval-batches 1 --documents --loss-average token"
moe="--model gpt2 --data $stories --layers 2 --heads 2 --width 8 --context 8
     --eval-batches 1 --experts 4 --expert-parallel 2"
low='--param-dtype bfloat16 --reduce-dtype float32'
hybrid1='--api fsdp1 --sharding-strategy HYBRID_SHARD'
special="
replicas-twice|4|gradient|reduced gradient|$mlp --mesh 2x2
skip-all-reduce|2|gradient|reduced gradient|$mlp --mesh 2x1
skip-all-reduce|4|gradient|reduced gradient|$mlp --mesh 2x2
skip-all-reduce|4|gradient|reduced gradient|$mlp --mesh 2x2 $hybrid1
lose-partial|4|gradient|reduced gradient|$mlp --mesh 2x2 --gradient-sync last-all-reduce
replicas-in-norm|4|norm|norm|$mlp --mesh 2x2
reduce-low|2|gradient|reduced gradient|$mlp $low
reduce-low|3|gradient|reduced gradient|$mlp $low
low-grad|2|gradient|reduced gradient|$mlp $low
low-grad|3|gradient|reduced gradient|$mlp $low
accumulate-low|2|gradient|reduced gradient|$mlp $low --gradient-sync last
accumulate-low|3|gradient|reduced gradient|$mlp $low --gradient-sync last
output-uncast|2|loss|unit output|$mlp --output-dtype bfloat16
stale-low-copy|2|loss|gathered parameter|$mlp $low
stale-low-copy|3|loss|gathered parameter|$mlp $low
found-inf-local|6|replica|replica|$small --param-dtype float16 --grad-scaler --loss-scale 1e30
skip-post-divide|2|gradient|reduced gradient|$mlp --averaging pre-post
skip-post-divide|3|gradient|reduced gradient|$mlp --averaging pre-post
skip-post-divide|3|gradient|reduced gradient|$mlp --api fsdp1
divide-early|3|gradient|reduced gradient|$mlp
lose-accumulated|2|gradient|reduced gradient|$mlp --gradient-sync last
lose-accumulated|3|gradient|reduced gradient|$mlp --gradient-sync last
stale-prefetch|2|gradient|gathered parameter|$mlp --reshard-after-forward true
stale-prefetch|3|gradient|gathered parameter|$mlp --reshard-after-forward true
swap-neighbours|4|gradient|gathered parameter|$mlp --reshard-after-forward 2
strided-as-plain|2|gradient|reduced gradient|$mlp --shard-placement largest
strided-as-plain|4|gradient|reduced gradient|$mlp --shard-placement largest
padding-in-norm|3|norm|norm|$mlp
tokens-of-rank|2|loss|loss|$(echo $text)
tokens-of-rank|3|loss|loss|$(echo $text)
expert-mesh|2|loss|unit output|$(echo $moe)
expert-mesh|4|loss|unit output|$(echo $moe)
expert-divide|2|gradient|reduced gradient|$(echo $moe)
expert-divide|4|gradient|reduced gradient|$(echo $moe)
"

# found FAULT LEVEL PLACE ARGUMENT...
found() {
    fault=$1 level=$2 expected=$3
    shift 3
    fsdp "$n" train "$@" --steps 3 --batch-size $((4 * n)) \
        --micro-batch-size 2 --grad-clip 0.01 \
        --verify $level --inject "$fault@2" --log-file "$tmp/log"
    ends_with 1
    says '^step  *1/3 .*| 0 of [0-9,]* values differ$' \
         '^step  *2/3 .*| [1-9][0-9,]* of [0-9,]* values differ$' \
         'first divergence: step 2, '
    [ "$(member phase)" = "$expected" ] ||
        complain "found as \"$(member phase)\", not as \"$expected\""
    [ "$(member differing)" -gt 0 ] || complain 'the log has no difference'
}

fsdp 1 train --inject list
ends_with 0
known=$(echo "$places" | sed '/^$/d; s/ .*//'
        echo "$special" | sed '/^$/d; s/|.*//')
[ "$(sed 's/ .*//' "$tmp/out" | sort)" = "$(echo "$known" | sort -u)" ] ||
    complain 'not the faults that this test knows'

for n in ${FSDP_NP:-2 3 4}; do
    for fault in $(echo "$places" | sed 's/ .*//'); do
        # Two terms have one sum, in any order.
        [ $n$fault = 2wrong-order ] && continue
        by_step=$(place $fault 21-40) by_phase=$(place $fault 41-)
        found $fault step "$by_step" $mlp
        found $fault phase "$by_phase" $mlp
    done
done

echo "$special" | sed '/^$/d' >"$tmp/special"
while IFS='|' read -r fault n by_step by_phase settings; do
    found $fault step "$by_step" $settings
    found $fault phase "$by_phase" $settings
    # What the experts themselves do is looked at, before what becomes of it.
    [ $fault != expert-mesh ] ||
        says '^first divergence: .*, unit transformer.h.0.mlp.experts, '
done <"$tmp/special"

# Without a verification a fault is let in, but not silently.
fsdp 2 train --model mlp --data "$digits" --steps 1 --inject skip-rank
ends_with 0
grep -q '^fsdp: warning: ' "$tmp/err" || complain 'no warning'
exit $bad
