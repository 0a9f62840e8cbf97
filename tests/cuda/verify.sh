#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The device cuda on an emulated GPU: problems of every kind against the fp64 oracle.
# usage: verify.sh BUILD
#
# The whole grid is for a real GPU (tools/gpu-check). Here every pattern, strategy, term, dtype and
# direction comes once or twice, with all kernels, with streams that run in another order each time.
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins"
passed=0 failed=0

verify() {
    if RINGATTN_EMULATED_LEAKS=1 "$build/ringattn" verify --device cuda "$@" >"$build/tests/cuda/verify.log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: verify --device cuda $*"
        tail -4 "$build/tests/cuda/verify.log"
    fi
}

seed=1
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    export RINGATTN_EMULATED_SEED=$((seed += 1))
    case $line in
    *kernel=sm90*) export RINGATTN_EMULATED_SM=90 ;;
    *) unset RINGATTN_EMULATED_SM ;;
    esac
    verify "$line"
done <<'CASES'
full n=70 h=2 d=40 backward
causal n=100 h=4/2 d=16 ring=3 zigzag backward kernel=simt
window:20 n=100 h=4/2 d=64 b=2 f16 backward kernel=simt
prefix:30 n=90 h=2 d=24 dv=40 bf16 backward
dilated:32/1,64/2,128/4 n=128 h=4 d=32 backward
dilated:8/1,24/3 n=53 h=4/2 d=8 b=2 sinks ring=3 backward
dilated:8/2;offsets=block;causal n=61 h=12/4 d=8 ring=4 zigzag allgather backward
blocks:16;local=1;global=1 n=120 h=2 d=32 ring=2 backward
blocks:8;strided=3;causal n=71 h=4/2 d=8 ring=5 ulysses
full;docs=0,30,31,61 n=61 h=2/1 d=16 ring=4 striped;perdoc backward
causal seqs=7/19,0/5,30/30,1/1,4/0,11/23 h=4/2 d=16 ring=3 zigzag backward
dilated:8/1,16/2 seqs=40,33,7/20 h=4 d=64 bf16 backward
window:9,3 seqs=1/40,20/20,3/9 h=2 d=64 f16 alibi ring=2 backward kernel=mma
full n=20 nk=61 offset=-30 h=2 d=24 ring=2 backward
causal n=41 nk=61 offset=-9 h=2 d=64 bf16 dropout=0.2 backward kernel=mma
causal n=61 h=4/2 d=12 b=2 f16 order=hilbert softcap=3 zigzag stream:16 backward
dilated:8/1,32/4;causal n=71 h=4/2 d=8 order=hilbert:9x8 ring=4 striped backward
causal n=75 h=4 d=128 bf16 bias=mask ring=3 backward
full n=75 h=4 d=64 bias=add ring=2 backward
full n=60 h=4 d=32 softcap=20 alibi bias=batch sinks dropout=0.1 backward seed=3
causal n=90 h=4/2 d=32 softcap=20 sinks dropout=0.1 ring=2 backward kernel=simt
full n=60 h=4 d=64 bf16 softcap=20 alibi sinks dropout=0.1 backward seed=3
causal n=1 nk=3000 h=8/2 d=64 bf16
causal n=1 nk=777 h=8/2 d=64 ring=4
causal n=1 nk=40000 h=4/2 d=32 bf16
causal n=1 nk=40000 h=2 d=16 ring=2
causal n=30 nk=100 h=2 d=16 ring=4 2d backward
causal n=100 nk=30 h=2 d=16 ring=2 backward
causal n=64 h=2 d=32 backward amp=200
full n=64 h=2 d=32 ring=8 2d backward gap=200
full n=40 h=2 d=576 dv=300 backward
full n=3 h=1 d=1 ring=5 backward
causal n=150 h=4 d=64 bf16 ring=2 zigzag backward
window:70 n=200 h=4/2 d=128 f16 backward
full n=70 h=2 d=256 bf16
causal n=37 h=4/2 d=20 dv=12 b=2 bf16 ring=2 backward strides=padded
full n=50 h=2 d=16 ring=3 ones
dilated:61/61 n=61 h=4 d=16 stream:32
dilated:61/61 n=61 h=4 d=64 bf16 stream:32
causal n=300 h=4/2 d=64 bf16 ring=2 backward kernel=sm90
causal n=300 h=2 d=128 f16 ulysses ring=2 backward kernel=sm90
window:64 n=500 h=4/2 d=64 bf16 b=2 backward any-order kernel=sm90
dilated:256/1,512/2 n=512 h=4 d=64 f16 backward kernel=sm90
blocks:64;local=4 n=700 h=2 d=128 bf16 ring=3 zigzag backward kernel=sm90
full;docs=0,200,260,500 n=500 h=2 d=64 bf16 sinks kernel=sm90
causal n=150 h=4/2 d=128 bf16 softcap=20 sinks ring=2 zigzag backward kernel=sm90
window:70 n=150 h=2 d=64 bf16 alibi sinks backward kernel=sm90
full n=140 h=2 d=64 f16 bias=mask dropout=0.2 ring=2 backward kernel=sm90
causal n=150 h=4/2 d=64 bf16 softcap=20 any-order backward kernel=sm90
causal n=400 h=2 d=64 bf16 backward amp=200 kernel=sm90
full n=900 h=1 d=64 bf16 ring=8 backward amp=50 gap=400 kernel=sm90
causal n=600 h=2 d=64 f16 stream:256 backward kernel=sm90
dilated:61/61 n=61 h=4 d=16 bf16 stream:16 kernel=simt
CASES

# GPUs with 48, 96 and 64 KiB of shared memory for a CTA.
for sm in 61 70 75; do
    export RINGATTN_EMULATED_SM=$sm
    verify 'causal n=100 h=4/2 d=64 alibi softcap=20 dropout=0.1 sinks ring=2 backward' \
        'full n=70 h=2 d=200 f16 bias=add backward' 'full n=130 h=2 d=64 backward' \
        'window:20 n=70 h=2 d=128 order=hilbert backward'
done
# A kernel of another device is refused once, before any case.
for words in 'verify --device cuda --kernel scalar' 'bench kernels --device cuda --quick --kernel scalar'; do
    # shellcheck disable=SC2086
    text=$("$build/ringattn" $words 2>&1)
    if [ $? -eq 2 ] && [ "$text" = "ringattn: --kernel: device cuda has no kernel \"scalar\"; it has simt, tf32x3, mma, sm90" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $words: $text"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
