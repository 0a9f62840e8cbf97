# SPDX-License-Identifier: Apache-2.0
# Sanitizers look at every load, and would be what is measured.
set(flags -mavx2 -mfma -fno-sanitize=all)
set(needs __x86_64__ __AVX2__ __FMA__)
