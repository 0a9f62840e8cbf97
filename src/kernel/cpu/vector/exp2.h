/* exp2.h - 2^x for vectors. Written in the words of an ISA's vec.h. */
#ifndef RA__KERNEL_CPU_VECTOR_EXP2_H
#define RA__KERNEL_CPU_VECTOR_EXP2_H

/* 2^x = 2^n 2^f with n the integer nearest to x and f = x - n, which is exact. The second factor is
 * a minimax polynomial of degree 5 on [-1/2, 1/2] that is exactly 1 at 0. Relative error at most
 * 2.6 x 2^-24 for x from -126 to 0 (1.6 the polynomial itself, the rest rounding); exactly 0 from
 * -127 down and at -inf; NaN stays NaN. */
static inline vec vec_exp2(vec x)
{
    vec n = vec_round(x), f = vec_sub(x, n);
    vec p = vec_all(0x1.5bb9fcp-10f);
    p = vec_fma(p, f, vec_all(0x1.3cea96p-7f));
    p = vec_fma(p, f, vec_all(0x1.c6b70ep-5f));
    p = vec_fma(p, f, vec_all(0x1.ebf9bep-3f));
    p = vec_fma(p, f, vec_all(0x1.62e42ap-1f));
    p = vec_fma(p, f, vec_all(1.0f));
    return vec_scale2(p, n);
}

#endif
