#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `plan --device cuda` on an emulated GPU: the kernel and the bytes of a run, rank by rank.
# usage: plan.sh BUILD
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins" RINGATTN_EMULATED_LEAKS=1
log=$build/tests/cuda/plan.log
passed=0 failed=0
. "$(dirname "$0")/helpers.sh"

# figure NAME: as the command has printed it.
figure() { sed -n "s/^  \"$1\": \(.*\),$/\1/p" "$log"; }
figures() { for name in device kernel peak_bytes_per_rank bytes_sent_per_rank; do figure $name; done; }

# same PROBLEM...: planned and run on $device.
device=cuda
same() {
    "$build/ringattn" plan --device $device --machine h200 --json "$@" >"$log" 2>&1 || return 1
    planned=$(figures)
    "$build/ringattn" run --device $device --json "$@" >"$log" 2>&1 || return 1
    [ "$(figures | wc -l)" -eq 4 ] && [ "$planned" = "$(figures)" ] && [ "$(figure device)" = "\"$device\"" ]
}

# A measurement on a GPU would be too short; the error says what to give instead.
refused() {
    "$build/ringattn" plan --device cuda --tokens 512 >"$log" 2>&1
    [ $? -eq 2 ] && grep -q 'a GPU is not measured; --machine NAME or --flops' "$log"
}
shown() {
    "$build/ringattn" plan --device cuda --tokens 512 --machine h200 --backward >"$log" 2>&1 &&
        grep -q '^device .* memory of the GPU$' "$log"
}

# How far predictions are off is known for CPUs.
honest() {
    "$build/ringattn" plan --device cuda --tokens 512 --flops 5e14 >"$log" 2>&1 &&
        grep -q 'were not compared with runs$' "$log"
}

# Decoding on Hopper: sm90 leaves split keys to mma, and says so.
decoding='--tokens 1 --kv-tokens 5000 --heads 2 --dim 64 --dtype bf16'
left_out() {
    # shellcheck disable=SC2086
    RINGATTN_EMULATED_SM=90 "$build/ringattn" run --device cuda $decoding --json >"$log" 2>&1 &&
        [ "$(figure kernel)" = '"mma"' ] &&
        RINGATTN_EMULATED_SM=90 "$build/ringattn" run --device cuda $decoding --kernel sm90 --json >"$log" 2>&1 &&
        [ "$(figure kernel)" = '"mma"' ]
}

expect 'what is not known' honest
expect 'the kernel that runs' left_out
expect 'one rank' same --tokens 100 --dtype bf16 --pattern causal
expect 'one rank, backward' same --tokens 70 --pattern window:20 --backward
expect 'a ring' same --tokens 100 --heads 2 --dtype f16 --pattern causal --ring 3 --backward
expect 'allgather' same --tokens 100 --heads 2 --dtype bf16 --ring 2 --strategy allgather
expect 'dilated' same --tokens 128 --heads 4 --dtype bf16 --pattern dilated:32/1,64/2 --ring 2 --backward
expect 'no figures of the GPU' refused
measured() {
    "$build/ringattn" run --device cuda --tokens 64 --heads 1 --ring 2 --strategy auto --json >"$log" 2>&1 &&
        grep -q 'us (measured), .* GB/s (measured), .* GFLOP/s a rank (measured)' "$log"
}
expect 'a run measures' measured
expect 'memory of the GPU' shown

# GPUs of two kinds: the plan is for the one that is named, not for the one that is current.
export RINGATTN_EMULATED_GPUS=2
device=cuda:1
for kinds in 80,90 90,80; do
    export RINGATTN_EMULATED_SM=$kinds
    expect "the second GPU of $kinds" same --tokens 600 --heads 4 --dtype bf16 --pattern causal --backward
    expect "a ring there, $kinds" same --tokens 600 --heads 2 --dtype bf16 --ring 2
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
