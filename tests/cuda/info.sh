#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Emulated GPUs of several kinds: what `info` says of each, and the dtype and kernel that a run gets.
# usage: info.sh BUILD
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins" RINGATTN_EMULATED_LEAKS=1
log=$build/tests/cuda/info.log
passed=0 failed=0
. "$(dirname "$0")/helpers.sh"

has() { grep -q -e "$1" "$log"; }
lacks() { ! has "$1"; }
info() { "$build/ringattn" info "$@" >"$log" 2>&1; }
run() { "$build/ringattn" run --tokens 64 --heads 1 --verify --json "$@" >"$log" 2>&1; }

export RINGATTN_EMULATED_GPUS=3 RINGATTN_EMULATED_SM=90,61
expect 'three GPUs' info
expect 'the first' has '+ cuda:0 .*Emulated GPU 0: Hopper, compute capability 9.0, 8'
expect 'its kernel' has 'kernel sm90 for most'
expect 'the last' has '+ cuda:2 .*Emulated GPU 2: Pascal, compute capability 6.1'
expect 'its dtype' has 'dtype f32: Pascal'
expect 'kernels of both kinds' has '^kernel on cuda:0'
expect 'of the second' has '^kernel on cuda:1'
expect 'once for each kind' lacks '^kernel on cuda:2'
expect 'why another one is not usable' has 'compute capability 6.1, and it needs'
expect 'the same as JSON' info --json
expect 'with the architecture' has '"architecture": "Pascal"'
expect 'and the kernel' has '"kernel_auto": "simt"'

expect 'a run on the first' run --device cuda
expect 'has its dtype' has '"dtype": "bf16"'
expect 'one on the second' run --device cuda:1
expect 'has that of Pascal' has '"dtype": "f32"'
expect 'a dtype that is given' run --device cuda:1 --dtype f16
expect 'is kept' has '"dtype": "f16"'
refused() { "$build/ringattn" "$@" >"$log" 2>&1; [ $? -eq 2 ] && [ "$(wc -l <"$log")" -eq 1 ]; }
for verb in 'run --tokens 64' 'verify --quick' 'bench kernels --quick'; do
    # shellcheck disable=SC2086
    expect "a GPU that is not there: $verb" refused $verb --device cuda:9
    expect "in a sentence: $verb" has 'there is no cuda:9 here'
done
bench() { "$build/ringattn" bench case "$@" --runs 2 >"$log" 2>&1; }
expect 'bench case' bench 'full n=64 h=2 d=64' --device cuda:1
expect 'computes where it is told' has '"device": "cuda:1"'
expect 'one on the CPU' run
expect 'has f32' has '"dtype": "f32"'

export RINGATTN_EMULATED_GPUS=1
for row in '120 Blackwell bf16 mma' '89 Ada bf16 mma' '80 Ampere bf16 mma' '75 Turing f16 simt' '70 Volta f16 simt'; do
    set -- $row
    export RINGATTN_EMULATED_SM="$1"
    expect "$2" info
    expect "by name: $2" has ": $2.*, compute capability"
    expect "its dtype: $2" has "dtype $3:"
    expect "its kernel: $2" has "kernel $4 for most"
done
export RINGATTN_EMULATED_SM=52
expect 'a GPU that is too old' info
expect 'is listed' has '- cuda:0 .*older than Pascal'
expect 'with the reason' has 'there is no kernel for it'
RINGATTN_EMULATED_GPUS=0 info
expect 'no GPU at all' has '- cuda .*GPUs of NVIDIA'
expect 'is said' has 'no GPU can be used'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
