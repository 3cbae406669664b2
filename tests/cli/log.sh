#!/bin/sh
# The log file: one JSON object a line, one for each step and a summary with the
# totals, the same numbers as on the screen.
. "${srcdir-.}/tests/cli/run.sh"
n=${FSDP_NP:-3}
n=${n%% *}

fsdp "$n" train --model mlp --data "$digits" --hidden 13 --steps 4 \
    --batch-size $((4 * n)) --micro-batch-size 2 --verify step \
    --log-file "$tmp/log"
ends_with 0
[ "$(grep -c '^{"event":"step",.*}$' "$tmp/log")" = 4 ] ||
    complain 'not 4 steps'
[ "$(tail -n 1 "$tmp/log" | grep -c '^{"event":"summary",.*}$')" = 1 ] ||
    complain 'no summary at the end'
for key in step loss grad_norm tokens_per_s verified differing; do
    [ "$(grep -c "^{\"event\":\"step\".*\"$key\":[0-9]" "$tmp/log")" = 4 ] ||
        complain "steps without $key"
done
sum=$(sed -n '/"event":"step"/s/.*"verified":\([0-9]*\).*/\1/p' "$tmp/log" |
    awk '{ s += $1 } END { print s }')
[ "$(member verified)" = "$sum" ] || complain 'the total is not the sum'
[ "$(tail -n 1 "$tmp/log" | grep -o '"rank":[0-9]*' | wc -l)" = "$n" ] ||
    complain 'peaks are not told for each rank'
for key in parameter_shards gradient_shards optimizer_state \
    unsharded_parameters unsharded_gradients communication activations \
    all_gather reduce_scatter all_reduce calls bytes peak_bytes; do
    tail -n 1 "$tmp/log" | grep -q "\"$key\":" || complain "no $key"
done

# Shards of 64 x 13 + 13 + 13 x 10 + 10 parameters, in whole rows (AdamW's
# state is twice as much).
rows() { echo $((($1 + n - 1) / n)); }
shard=$((4 * ($(rows 13) * 64 + $(rows 13) + $(rows 10) * 13 + $(rows 10))))
[ "$(tail -n 1 "$tmp/log" | grep -o "\"parameter_shards\":$shard[,}]" |
    wc -l)" = "$n" ] || complain "not $shard bytes of parameters a rank"
[ "$(tail -n 1 "$tmp/log" | grep -o "\"optimizer_state\":$((2 * shard))[,}]" |
    wc -l)" = "$n" ] || complain "not $((2 * shard)) bytes of state a rank"

# Strictly JSON, if there is something to tell.
if command -v python3 >/dev/null; then
    python3 - "$tmp/log" <<'P' || complain 'not JSON'
import json, sys
def refuse(word):
    raise ValueError(word)
lines = [json.loads(line, parse_constant=refuse) for line in open(sys.argv[1])]
assert [l["event"] for l in lines] == ["step"] * 4 + ["summary"]
assert [l["step"] for l in lines[:4]] == [1, 2, 3, 4]
assert lines[4]["first_divergence"] is None
P
fi

# A divergence is in it, too.
fsdp 3 train --model mlp --data "$digits" --hidden 13 --steps 2 \
    --batch-size 6 --micro-batch-size 2 --verify step --inject skip-rank@2 \
    --log-file "$tmp/log"
ends_with 1
tail -n 1 "$tmp/log" |
    grep -q '"first_divergence":{"step":2,"phase":"gradient","unit":"layers' ||
    complain 'no first divergence'
exit $bad
