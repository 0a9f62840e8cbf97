# SPDX-License-Identifier: Apache-2.0
set(flags -mavx2 -mfma -mf16c)
set(needs __x86_64__ __AVX2__ __FMA__ __F16C__)
