#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The high-water mark of every process, less that of an idle one of as many, against the formula of
# docs/DESIGN.md: within 10%. Prints the tables of docs/CLUSTER.md; with RINGATTN_LONG=1 for its 262,144
# tokens. Documents that lie on all ranks (striped) let whole blocks go all the way round, as without
# any, for a fraction of the work; that the plan needs the bytes of one of full attention is checked.
# usage: memory.sh BUILD LAUNCHER
set -eu
build=$1 launcher=$2
. "$(dirname "$0")/launch.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export RINGATTN_THREADS=1
tokens=65536 worlds="2 8" passes=forward
[ -z "${RINGATTN_LONG:-}" ] || tokens=262144 worlds="2 4 8 16" passes="forward backward"
heads=8 dim=64 launch_limit=500

if awk -v n=$tokens '/^MemAvailable/ { exit !($2 < n * 48) }' /proc/meminfo; then
    echo "skipped: too little memory is free for $tokens tokens"
    exit 77
fi

# most NAME < JSON: the largest number of a list
most() { sed -n "s/.*\"$1\": \[\([^]]*\)\].*/\1/p" | tr -d ' ' | tr , '\n' | sort -n | tail -n 1; }

# near GOT WANT PERCENT
near() { awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { exit !(a > b * (1 - p / 100) && a < b * (1 + p / 100)) }'; }

# formula PROCESSES: of a ring, in bytes
formula()
{
    awk -v p="$1" -v n=$tokens -v h=$heads -v d=$dim -v pass="$pass" 'BEGIN {
        q = n / p
        shard = 2 * q * h * (d + d) * 2
        travel = 2 * q * h * (d + d) * 2
        state = q * h * (d + 2) * 4
        blocks = p > 2 ? 4 : 3
        gradient = q * h * (d + 1) * 4 + blocks * q * h * (d + d) * 4
        if (pass == "backward") printf "%.0f", 2 * shard + q * h * 4 + travel + state + gradient
        else printf "%.0f", shard + travel + state
    }'
}

# planned PROCESSES FLAGS...: bytes of the largest rank
planned()
{
    processes=$1
    shift
    # shellcheck disable=SC2086
    "$build/ringattn" plan $problem --ring "$processes" "$@" --json | most peak_bytes_per_rank
}

row()
{
    bytes=$(planned "$1" --partition striped --pattern "$pattern")
    full=$(planned "$1" --pattern full)
    near "$bytes" "$full" 1 || fail "$1 processes: $bytes bytes, but full needs $full"
    idle=$(launch "$1" "$build/tests/mpi/idle" | sort -n | head -n 1)
    # shellcheck disable=SC2086
    launch "$1" "$build/ringattn" run $problem --transport mpi --partition striped --pattern "$pattern" \
        --json --quiet >"$dir/json" || fail "$1 processes"
    peak=$(most peak_rss_bytes_per_rank <"$dir/json")
    want=$(formula "$1")
    echo "$1 $want $((peak - idle)) $idle" | awk '{
        printf "| %d | %.1f | %.1f | %+.1f%% | %.1f |\n", $1, $2 / 1e6, $3 / 1e6, 100 * ($3 / $2 - 1), $4 / 1e6
    }'
    near $((peak - idle)) "$want" 10 || fail "$1 processes: more than 10% off the formula"
}

pattern="full;docs=$(seq -s, 0 512 $tokens)"
for pass in $passes; do
    problem="--tokens $tokens --heads $heads --dim $dim --dtype bf16"
    [ "$pass" = forward ] || problem="$problem --backward"
    echo
    echo "$tokens tokens, $heads heads, dim $dim, bf16, $pass: MB per process, the most of all"
    echo
    echo "| processes | formula | measured | difference | idle process |"
    echo "|---|---|---|---|---|"
    for world in $worlds; do row "$world"; done
done
