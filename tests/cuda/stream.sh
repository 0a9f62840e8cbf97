#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Streams whose data is made in memory of an emulated GPU, where the results stay: the same bits as
# with data that is made on the host, and as without a stream.
# usage: stream.sh BUILD
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins" RINGATTN_EMULATED_LEAKS=1
log=$build/tests/cuda/stream.log
passed=0 failed=0
. "$(dirname "$0")/helpers.sh"

# sum ARGUMENTS...: the digest of a run whose sampled rows are right.
sum() {
    "$build/ringattn" run --device cuda --digest --quiet "$@" >"$log" 2>&1 &&
        grep -q '^verified' "$log" && grep '^digest' "$log"
}

# same BLOCK PROBLEM...: made on both sides. A packed buffer is filled in place, K and V beside one
# another are not.
same() {
    block=$1
    shift
    on_device=$(sum "$@" --strategy "stream:$block" --data device)
    expect "data on the device: $*" test -n "$on_device"
    expect "the device is said to make it: $*" grep -q '^data *made on the device' "$log"
    on_host=$(sum "$@" --strategy "stream:$block" --data host)
    expect "host and device make the same: $*" test "$on_host" = "$on_device"
}
same 128 --tokens 512 --heads 4 --dim 32 --dtype bf16 --pattern dilated:64/1,128/2
# Its segments are inside the blocks, so a run in memory adds in the same order.
expect 'a run in memory has the same bits' \
    test "$(sum --tokens 512 --heads 4 --dim 32 --dtype bf16 --pattern dilated:64/1,128/2)" = "$on_device"
same 64 --tokens 200 --heads 4 --kv-heads 2 --dim 16 --value-dim 24 --dtype f16 --batch 2 --pattern window:20
same 100 --tokens 150 --heads 2 --dim 8 --pattern full --alibi --softcap 20

# Files of several megabytes, whose rows threads of the host share: the bits of a run in memory.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
expect 'a file is made' "$build/ringattn" run --tokens 6000 --heads 2 --dim 128 --pattern dilated:8/1 --quiet \
    --out "$work/x.npy" >"$log" 2>&1
in_files() {
    "$build/ringattn" run --device cuda --quiet --q "$work/x.npy" --k "$work/x.npy" --v "$work/x.npy" \
        --pattern dilated:8/1 "$@" >"$log" 2>&1
}
expect 'files are streamed' in_files --strategy stream:5000 --out "$work/streamed.npy"
expect 'files are read at once' in_files --out "$work/whole.npy"
expect 'both have the same bits' cmp "$work/streamed.npy" "$work/whole.npy"

expect 'memory of the device is told' grep -q '^memory .* on the device beside your tensors, process' "$log"

# A pass before the one that counts adds nothing to its digest.
one=$(sum --tokens 256 --heads 2 --dim 16 --strategy stream:64 --pattern causal)
expect 'a digest is of one pass' \
    test "$one" = "$(sum --tokens 256 --heads 2 --dim 16 --strategy stream:64 --pattern causal --warmup 2)"
expect 'data is made on the device without a word' grep -q '^data *made on the device' "$log"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
