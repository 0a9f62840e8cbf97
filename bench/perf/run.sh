#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Counts the instructions of a fixed set of work and compares them with bench/perf/baseline.txt. Counts
# are no timings: the same code gives the same count, within half a percent, on a busy machine and on an
# idle one.
#
#   usage: run.sh [--renew] BUILD_DIR     --renew writes the baseline instead
#
# Callgrind counts what valgrind can run; the kernels it has no words for (AVX-512 and beyond) are
# stepped through, instruction by instruction. Exit status: 1 if a row grew by more than LIMIT percent, 0
# otherwise, also where nothing can be compared: then it says why.
set -eu
LIMIT=3
renew=0
if [ "${1:-}" = --renew ]; then
    renew=1
    shift
fi
build=${1:?usage: run.sh [--renew] BUILD_DIR}
baseline=$(cd "$(dirname "$0")" && pwd)/baseline.txt
count=$build/ringattn_perf
unset RINGATTN_KERNEL RINGATTN_THREADS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# ---- Can anything be compared? ----

say() { echo "perf: $*"; }
if ! command -v valgrind >/dev/null; then
    say "nothing is counted, because there is no valgrind"
    exit $renew
fi
compiler=$("$count" compiler)
recorded=$(sed -n 's/^# compiler: //p' "$baseline" 2>/dev/null || true)
if [ $renew -eq 0 ] && [ "$compiler" != "$recorded" ]; then
    say "not compared, because compilers differ: the baseline is of ${recorded:-none}, this build of $compiler"
    exit 0
fi

# ---- Counting ----

# Callgrind writes a file for each call of perf_measured, numbered from 1, in the order of the names.
valgrind -q --tool=callgrind --toggle-collect=perf_measured --dump-after=perf_measured \
    --callgrind-out-file="$work/calls" "$count" run >"$work/names" 2>"$work/log" || {
    cat "$work/log" >&2
    say "valgrind failed"
    exit 1
}
n=0
while read -r name; do
    n=$((n + 1))
    echo "callgrind $(sed -n 's/^totals: //p' "$work/calls.$n") $name"
done <"$work/names" >"$work/rows"

kernels=$(sed -n 's/.* kernel=//p' "$work/names" | sort -u)
stepped=0
# shellcheck disable=SC2086
"$count" step $kernels >>"$work/rows" || stepped=$?
case $stepped in
0) ;;
77) say "no single-stepping on this machine: what valgrind cannot run is not counted" ;;
*) exit 1 ;;
esac

# ---- Renewing, or comparing ----

if [ $renew -eq 1 ]; then
    {
        echo "# Instructions of a fixed set of work: how counted, how many, what. \`make perf\` compares with it,"
        echo "# \`make perf-baseline\` writes it."
        echo "# compiler: $compiler"
        cat "$work/rows"
    } >"$work/baseline"
    cp "$work/baseline" "$baseline"
    say "$(wc -l <"$work/rows") rows written to the baseline"
    exit 0
fi

awk -v limit=$LIMIT '
function row() { name = $0; sub(/^[^ ]+ [^ ]+ /, "", name); return $1 " " name }
/^#/ { next }
FNR == NR { before[row()] = $2; next }
{
    key = row()
    seen[key] = 1
    if (!(key in before)) { printf "new:  %s: %d, not in the baseline\n", key, $2; fresh++; next }
    change = 100 * ($2 / before[key] - 1)
    if (change > limit) { printf "grew: %s: %d -> %d (%+.1f%%)\n", key, before[key], $2, change; grew++ }
    else if (change < -limit) { printf "fell: %s: %d -> %d (%+.1f%%)\n", key, before[key], $2, change; fell++ }
    else same++
}
END {
    for (key in before) if (!(key in seen)) { printf "gone: %s: not run here\n", key; gone++ }
    if (fell + fresh) print "perf: `make perf-baseline` makes the new counts the ones to keep"
    printf "perf: %d rows within %d%%, %d grew, %d fell, %d new, %d not run here\n",
        same, limit, grew, fell, fresh, gone
    exit grew > 0
}' "$baseline" "$work/rows"
