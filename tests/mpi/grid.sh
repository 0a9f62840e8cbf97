#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Patterns x strategies x partitions over processes, against the fp64 oracle; what was sent against what
# was planned; the bits of allgather against those of one rank. RINGATTN_LONG=1 leaves nothing out.
# usage: grid.sh BUILD LAUNCHER PROCESSES
set -eu
build=$1 launcher=$2 processes=$3
. "$(dirname "$0")/launch.sh"
step=3
[ "${RINGATTN_LONG:-0}" != 1 ] || step=1 launch_limit=500

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$build/tests/mpi/problems" "$processes" "$step" >"$dir/problems"
[ -s "$dir/problems" ] || fail "no problems"
set --
while IFS= read -r line; do set -- "$@" "$line"; done <"$dir/problems"
launch "$processes" "$build/ringattn" verify "$@" >"$dir/said" 2>"$dir/complaints" ||
    { cat "$dir/complaints"; grep -A8 FAILED "$dir/said" || true; fail "verify on $processes processes"; }
passed=$(grep -c '^passed' "$dir/said")
[ "$passed" -eq $# ] || fail "$passed of $# passed"

# In pieces, as messages of gigabytes are.
RINGATTN_MPI_PIECE=777 launch "$processes" "$build/ringattn" verify \
    "causal n=67 h=4/2 d=16 ring=$processes zigzag backward mpi threads=1" >"$dir/said" 2>&1 ||
    { cat "$dir/said"; fail "messages in pieces"; }
# Bytes and hops of every rank against formulas: full, contiguous, 24 heads of dim 8, 240 tokens, f32.
# counts STRATEGY BYTES HOPS FLAGS...
counts()
{
    strategy=$1 each=$2 hops=$3
    shift 3
    bytes=$each rank=1
    while [ $rank -lt "$processes" ]; do bytes="$bytes, $each" rank=$((rank + 1)); done
    launch "$processes" "$build/ringattn" run --tokens 240 --heads 24 --dim 8 --transport mpi --threads 1 \
        --strategy "$strategy" --json "$@" >"$dir/said" 2>&1 || { cat "$dir/said"; fail "$strategy"; }
    grep -q "\"bytes_sent_per_rank\": \[$bytes\]" "$dir/said" ||
        { cat "$dir/said"; fail "$strategy $*: not $each bytes sent by each"; }
    grep -q "\"hops\": $hops," "$dir/said" || { cat "$dir/said"; fail "$strategy $*: not $hops hops"; }
}
others=$((processes - 1)) own=$((240 / processes)) row=$((2 * 24 * 8 * 4))
counts ring $((others * own * row)) $others
counts allgather $((others * own * row)) $others
counts ulysses $((others * own * 24 / processes * (4 * 8 * 4 + 4))) $((2 * others)) # with the LSE
# Backward, keys travel once more, and their gradients, as long as they in f32, with them.
if [ "$processes" -gt 2 ]; then counts ring $((3 * others * own * row)) $((2 * others + 2)) --backward; fi

# Gradients of sinks are sums over all processes.
launch "$processes" "$build/ringattn" verify \
    "causal n=67 h=4/2 d=16 sinks ring=$processes striped backward mpi threads=1" >"$dir/said" 2>&1 ||
    { cat "$dir/said"; fail "sinks"; }
grep -q '^ *dsinks *error' "$dir/said" || { cat "$dir/said"; fail "dsinks were not compared"; }
echo "$processes processes: $passed problems agree with the oracle"
