#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every compiler builds every kernel of this CPU's family, whatever names it gives to its macros.
# usage: compilers.sh BUILD_DIR CMAKE
set -eu
dir=$1/compilers cmake=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(uname -m)" = x86_64 ] || { echo "the kernels here are for x86_64"; exit 77; }
rm -rf "$dir"
mkdir -p "$dir"

tried=0
for cc in gcc clang; do
    # A compiler from before AMX rightly leaves that kernel out.
    "$cc" -mamx-bf16 -E -x c /dev/null >/dev/null 2>&1 || { echo "$cc: not here, or too old"; continue; }
    "$cmake" -S "$source" -B "$dir/$cc" -DCMAKE_C_COMPILER=$cc -DRINGATTN_BUILD_TESTS=OFF -DRINGATTN_CUDA=OFF -DRINGATTN_BUILD_EXAMPLES=OFF \
        -DRINGATTN_BUILD_PEERS=OFF -DRINGATTN_MPI=OFF >"$dir/$cc.log" 2>&1 || { cat "$dir/$cc.log"; exit 1; }
    for flags in "$source"/src/backend/cpu/kernel/*/flags.cmake; do
        kernel=$(basename "$(dirname "$flags")")
        grep -q "✓ kernel $kernel\$" "$dir/$cc.log" || { echo "$cc does not build the kernel $kernel"; exit 1; }
    done
    echo "$cc builds every kernel"
    tried=$((tried + 1))
done
[ $tried -gt 0 ] || exit 77
