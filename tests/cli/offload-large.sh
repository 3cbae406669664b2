#!/bin/sh
# A GPT-2 whose parameters, gradients and optimizer states need 4 GB trains on
# two ranks of which neither has 1 GB in memory at any moment.  Takes 4.5 GB of
# disk and some minutes, so it runs on request: make check-offload, which takes
# FSDP_OFFLOAD_DIR (default: the build folder) for the files.
. "${srcdir-.}/tests/cli/run.sh"

layers=22 width=1024 steps=2
dir=$(mktemp -d "${FSDP_OFFLOAD_DIR-.}/offload.XXXXXX") || exit 1
trap 'rm -rf "$tmp" "$dir"' EXIT
ranks=2 arguments="offload_large $layers $width $steps"

free=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
[ "$free" -gt 5000000 ] || { echo "$dir has $free kB free, 5000000 needed"
                             exit 77; }

timeout -k 5 3000 $MPIEXEC -n $ranks tests/fsdp/offload_large "$dir" \
    $layers $width $steps >"$tmp/out" 2>"$tmp/err" </dev/null
status=$?
cat "$tmp/out"
ends_with 0
is_silent
[ -z "$(ls -A "$dir")" ] || complain 'something is left in the directory'

# Bytes of all ranks in files: 16 for each parameter, and padding; at least 4 GB
# (10^9).  No rank has had 10^9 bytes resident.
awk '/^parameters/ { need = 16 * $2 }
     /^step/ { offloaded[$2] += $12; if ($14 > most) most = $14; lines++ }
     END {
         if (need < 4e9) { print "the model needs " need " bytes only"; bad = 1 }
         if (lines != '$((ranks * steps))') { print lines " lines"; bad = 1 }
         for (step in offloaded)
             if (offloaded[step] < need || offloaded[step] > 1.01 * need) {
                 print offloaded[step] " bytes in files, not " need
                 bad = 1
             }
         if (!(most > 0 && most < 1e9)) { print most " resident"; bad = 1 }
         print need " bytes of state, at most " most " resident on a rank"
         exit bad
     }' "$tmp/out" || complain 'see above'
exit $bad
