# SPDX-License-Identifier: Apache-2.0
set(flags -mamx-tile -mamx-bf16
    -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx2 -mfma -mf16c)
set(needs __x86_64__ __AVX512BW__ __AVX512DQ__ __AVX512VL__ __AVX512BF16__)
set(calls "_tile_dpbf16ps(0, 1, 2)") # compilers disagree about the names of AMX's macros
