# SPDX-License-Identifier: Apache-2.0
set(flags -mavx512bf16 -mavx512f -mavx2 -mfma)
set(needs __x86_64__ __AVX512BF16__)
