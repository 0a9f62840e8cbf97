set(flags -mavx2 -mfma)
set(needs __x86_64__ __AVX2__ __FMA__)
