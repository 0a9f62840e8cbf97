# SPDX-License-Identifier: Apache-2.0
set(flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
set(needs __x86_64__ __AVX512F__ __AVX512BW__ __AVX512DQ__ __AVX512VL__)
