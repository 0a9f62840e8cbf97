#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that processes read and write in parts hold the same bytes as those of one process with as many
# ranks: in any partition and order, converted or not, forward and backward.
# usage: files.sh BUILD LAUNCHER
set -eu
build=$1 launcher=$2
. "$(dirname "$0")/launch.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export RINGATTN_THREADS=1

# Inputs are outputs of small runs.
for seed in 1 2 3 4; do
    "$build/ringattn" run --tokens 101 --batch 2 --heads 4 --dim 16 --seed $seed --out in$seed.npy >/dev/null
done
"$build/ringattn" run --tokens 101 --batch 2 --heads 4 --dim 16 --lse dlse.npy >/dev/null

# same FLAGS...: of $inputs, to files that end in $ending
inputs="--q in1.npy --k in2.npy --v in3.npy --dout in4.npy --dlse dlse.npy"
ending=npy
same()
{
    set -- run $inputs --backward "$@" --out out.$ending --lse lse.$ending --dq dq.$ending --dk dk.$ending \
        --dv dv.$ending
    "$build/ringattn" "$@" --ring 3 >/dev/null
    mkdir -p local
    mv out.$ending lse.$ending dq.$ending dk.$ending dv.$ending local
    launch 3 "$build/ringattn" "$@" --transport mpi >said 2>&1 || { cat said; fail "$*"; }
    for file in out lse dq dk dv; do cmp local/$file.$ending $file.$ending || fail "$file of $*"; done
    [ -z "$(find . -name ".*.$ending*")" ] || fail "a temporary file is left: $*"
    rm out.$ending lse.$ending dq.$ending dk.$ending dv.$ending
}

same --pattern causal --partition striped
same --pattern causal --partition zigzag --order hilbert --dtype bf16
same --pattern dilated:16/1,32/2 --strategy allgather --dtype f16

# .safetensors: bf16 stays bf16, from files that hold it to files that do.
for seed in 1 2 3 4; do
    launch 2 "$build/ringattn" run --tokens 101 --batch 2 --heads 4 --dim 16 --seed $seed --dtype bf16 \
        --transport mpi --out in$seed.safetensors:x >/dev/null || fail "bf16 by two processes"
    grep -q '"dtype":"BF16","shape":\[2,101,4,16\]' in$seed.safetensors || fail "in$seed.safetensors is not bf16"
done
inputs="--q in1.safetensors:x --k in2.safetensors:x --v in3.safetensors --dout in4.safetensors --dlse dlse.npy"
ending=safetensors
same --pattern causal --partition zigzag
same --pattern causal --partition striped --order hilbert --dtype f32
# A name that other processes, too, take off the path.
launch 3 "$build/ringattn" run $inputs --backward --transport mpi --out o.safetensors:out --dk k.safetensors:dk >/dev/null ||
    fail "named tensors"
grep -q '"out":{"dtype":"BF16"' o.safetensors && grep -q '"dk":{"dtype":"BF16"' k.safetensors || fail "names of tensors"

# The figures of all ranks, printed by the first process only.
launch 3 "$build/ringattn" run --tokens 90 --heads 2 --dim 16 --transport mpi --json >said
[ "$(grep -c '"version"' said)" -eq 1 ] || fail "not one report"
grep -q '"flops_per_rank": \[345600, 345600, 345600\]' said || { cat said; fail "work of ranks"; }
grep -q '"bytes_sent_per_rank": \[15360, 15360, 15360\]' said || { cat said; fail "bytes sent"; }
grep -q '"peak_rss_bytes_per_rank": \[[0-9]*, [0-9]*, [0-9]*\]' said || { cat said; fail "memory of processes"; }
grep -q '"verified": true' said || { cat said; fail "not verified"; }
echo "files in parts have the bytes of whole ones"
