#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What plan predicts against what happens, over a grid: forecast.sh BUILD_DIR
#
# Memory: the bytes that plan counts over all ranks against what the process grew by, as the operating
# system sees it; at most 5% apart. Time: the median of five runs that measured, predicted and ran; at
# most 25% apart in one of three attempts, since a neighbour on the same hardware can slow a few seconds down,
# but a wrong forecast is wrong each time. The median over the grid must be within what plan prints as its
# typical error. On a machine that does other work too, times are not compared, and it says so.
set -u
build=${1:?usage: forecast.sh BUILD_DIR}
ringattn=$build/ringattn
unset RINGATTN_KERNEL RINGATTN_THREADS
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
passed=0

# field NAME < JSON: a number; sum NAME: of a list
field() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" | head -n 1; }
sum() { sed -n "s/.*\"$1\": \[\([^]]*\)\].*/\1/p" | tr , '\n' | awk '{ all += $1 } END { printf "%.0f\n", all }'; }

# near LIMIT RATIO: is a ratio within the limit of 1? Prints how far it is from 1.
near() { awk -v limit="$1" -v ratio="$2" 'BEGIN { e = ratio - 1; if (e < 0) e = -e; print e; exit e > limit }'; }

# judge LIMIT NAME RATIO WHAT: counts a ratio and keeps its error for the median.
judge() {
    near "$1" "$3" >>"$work/$2"
    if [ $? -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2 is off by a factor of $3: $4"; fi
}

# within NAME LIMIT: the median error
within() {
    sort -g "$work/$1" | awk -v limit="$2" -v name="$1" '{ at[NR] = $1 }
        END { m = at[int((NR + 1) / 2)]; printf "%s: median error %.1f%% of %d, %.1f%% is promised\n", name, 100 * m, NR, 100 * limit
              exit m > limit }'
    if [ $? -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1 is typically off by more"; fi
}

# A thread that has a core for itself is as fast by the clock as by the time it was on a core.
busy() {
    "$ringattn" bench case ceiling:fma-avx2 --runs 5 --threads "$(nproc)" >"$work/roof" 2>/dev/null || return 1
    rate=$(field rate <"$work/roof")
    peak=$(field ceiling_peak <"$work/roof")
    awk -v rate="$rate" -v peak="$peak" 'BEGIN { exit !(rate < 0.85 * peak) }'
}

# ---- Memory ------------------------------------------------------------------------------------------

while IFS='|' read -r problem flags; do
    "$ringattn" plan $flags --latency 1e-6 --bandwidth 1e9 --flops 1e9 --json >"$work/plan" || exit 1
    "$ringattn" bench case "$problem" --runs 1 --seconds 0.001 >"$work/row" || exit 1
    counted=$(sum peak_bytes_per_rank <"$work/plan")
    grown=$(awk -v a="$(field rss_bytes <"$work/row")" -v b="$(field rss_start_bytes <"$work/row")" 'BEGIN { printf "%.0f", a - b }')
    judge 0.05 memory "$(awk -v a="$counted" -v b="$grown" 'BEGIN { print a / b }')" "$problem: $counted counted, $grown seen"
done <<END
window:64 n=65536 h=4 d=64 f32|--pattern window:64 --tokens 65536 --heads 4
window:64 n=131072 h=4 d=64 bf16 ring=2|--pattern window:64 --tokens 131072 --heads 4 --dtype bf16 --ring 2
full n=4096 h=16 d=128 f16 ring=4|--tokens 4096 --heads 16 --dim 128 --dtype f16 --ring 4
full n=4096 h=16 d=128 f16 ring=4 allgather|--tokens 4096 --heads 16 --dim 128 --dtype f16 --ring 4 --strategy allgather
dilated:512/1,1024/2 n=65536 h=4 d=64 f32 ring=4|--pattern dilated:512/1,1024/2 --tokens 65536 --heads 4 --ring 4
blocks:64;local=2 n=65536 h=4 d=64 f32 backward|--pattern blocks:64;local=2 --tokens 65536 --heads 4 --backward
causal n=4096 h=16 d=128 f32 ring=2 zigzag backward|--pattern causal --tokens 4096 --heads 16 --dim 128 --ring 2 --partition zigzag --backward
window:64 n=65536 h=4 d=64 bf16 ring=2 backward|--pattern window:64 --tokens 65536 --heads 4 --ring 2 --backward --dtype bf16
causal n=4096 h=16 d=128 f32 ring=4 zigzag backward|--pattern causal --tokens 4096 --heads 16 --dim 128 --ring 4 --partition zigzag --backward
END
"$ringattn" plan --tokens 64 --json >"$work/plan" || exit 1
within memory "$(field typical_memory_error <"$work/plan")"

# ---- Time --------------------------------------------------------------------------------------------

times=yes
if [ "$(nproc)" -lt 2 ] || busy; then times=no; fi
while [ $times = yes ] && read -r flags; do
    for attempt in 1 2 3; do
        : >"$work/ratios"
        for round in 1 2 3 4 5; do
            "$ringattn" run $flags --heads 4 --predict --warmup 1 --json --quiet >"$work/run" || exit 1
            echo "$(field predicted_seconds <"$work/run") $(field seconds <"$work/run")" | awk '{ print $1 / $2 }' >>"$work/ratios"
        done
        ratio=$(sort -g "$work/ratios" | sed -n 3p)
        if near 0.25 "$ratio" >"$work/error"; then break; fi
        echo "forecast: off by a factor of $ratio in attempt $attempt: $flags"
    done
    if busy; then times=no; break; fi
    judge 0.25 time "$ratio" "$flags"
done <<END
--tokens 4096 --threads 1
--tokens 4096 --threads 2
--tokens 4096 --threads 2 --dtype bf16 --backward
--tokens 8192 --threads 2 --pattern causal
--tokens 4096 --ring 2
--tokens 8192 --ring 2 --pattern causal --partition zigzag
--tokens 8192 --ring 2 --strategy allgather
--tokens 4096 --ring 2 --strategy ulysses --backward
END
if [ $times = yes ]; then within time "$(field typical_time_error <"$work/plan")"
else echo "forecast: this machine does other work too, or has one core; times are not compared"; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
