#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmarks with --device cuda on an emulated GPU: tensors stay in its memory, rows name it, suites
# leave out what it does not do, and a report is made of them.
# usage: bench.sh BUILD
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins" RINGATTN_EMULATED_LEAKS=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
log=$work/log
passed=0 failed=0
. "$(dirname "$0")/helpers.sh"

run() { "$build/ringattn" "$@" >"$log" 2>&1; }
has() { grep -q -e "$1" "$log"; }
lacks() { ! has "$1"; }

for problem in 'causal n=90 h=4/2 d=16 ring=3 zigzag backward' 'full n=40 h=2 d=64 bf16 sinks alibi backward strides=padded' \
    'window:9 n=60 h=2 d=8 order=hilbert' 'full n=1 nk=1500 h=2 d=64 f16' 'causal n=64 h=2 d=16 stream:16'; do
    expect "case: $problem" run bench case "$problem device=cuda" --runs 2
    expect "its row names the device: $problem" has '"device": "cuda"'
    expect "and the GPU: $problem" has '"device_name": "Emulated GPU 0"'
done

suite() { run bench "$1" --quick --device cuda --quiet --out "$work/results" --match "$2"; }
no_suite() { ! suite "$@"; }
expect 'what no configuration has is refused' no_suite kernels 'n=64 '
expect 'with a reason' has 'no configuration contains'
expect 'kernels of the device' run bench kernels --quick --device cuda --rivals no --tokens 64 --heads 1 --quiet \
    --out "$work/results" --match 'd=64 bf16'
expect 'are those of the GPU' has 'kernel=mma'
expect 'and no others' lacks 'kernel=avx2\|kernel=scalar'
expect 'ceilings of the device' run bench kernels --quick --device cuda --quiet --out "$work/results" --match ceiling:
expect 'are its own' has 'mma-bf16 .*GFLOP/s'
expect 'f32 as well' has 'mma-tf32x3 .*GFLOP/s'
expect 'and no others' lacks 'fma-avx2\|threads'
expect 'a row is beside its ceiling' run bench case 'full n=64 h=2 d=64 bf16 device=cuda' --runs 2
expect 'of its kernel' has '"ceiling": "mma-bf16"'
expect 'a decode is beside reading' run bench case 'full n=1 nk=1500 h=2 d=64 bf16 device=cuda' --runs 2
expect 'of memory' has '"ceiling": "read-memory"'
too_fast() { ! RINGATTN_EMULATED_CEILING=1e-9 run bench kernels --quick --device cuda --rivals no --tokens 64 --heads 1 --quiet \
    --out "$work/fast" --match 'full n=64 h=1 d=64 bf16'; }
expect 'nothing is faster than its ceiling' too_fast
expect 'and it is said' has 'is faster than its ceiling mma-bf16'
no_ceiling() { ! run bench case 'ceiling:warp device=cuda'; }
expect 'a ceiling that the device does not have' no_ceiling
expect 'is refused' has 'cuda has no ceiling "warp"'
expect 'errors by ring size' suite scaling 'n=1024 h=2 d=64 f16 ring=4'
expect 'the baseline is for CPUs' no_suite compare 'standard'
expect 'so it is left out' has 'no configuration contains'
expect_not() { what=$1; shift; refuses() { ! "$@"; }; expect "$what" refuses "$@"; }
expect_not 'rows of two devices in one folder' run bench scaling --quick --quiet --out "$work/results" --match 'f16 ring=4'
expect 'are refused with both' has 'has rows of the device cuda; choose another folder for cpu'
expect_not 'a device that is not known' run bench kernels --quick --device gpu
expect 'is refused' has 'there is no device "gpu"'
expect 'a report' run report "$work/results" --out "$work/report.html"
expect 'of that GPU' grep -q 'Exact attention on Emulated GPU 0:' "$work/report.md"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
