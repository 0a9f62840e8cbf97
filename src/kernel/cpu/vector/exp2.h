/* exp2.h - 2^x for vectors. Written in the words of an ISA's vec.h. */
#ifndef RA__KERNEL_CPU_VECTOR_EXP2_H
#define RA__KERNEL_CPU_VECTOR_EXP2_H

/* 2^x = 2^n 2^f with n the integer nearest to x and f = x - n, which is exact. The second factor is
 * a minimax polynomial of degree 6 on [-1/2, 1/2] that is exactly 1 at 0. Relative error at most
 * 1.1 x 2^-24 for x from -126 to 0 (the polynomial itself 0.03, the rest rounding); exactly 0 from
 * -127 down and at -inf; NaN stays NaN. */
static inline vec vec_exp2(vec x)
{
    vec n = vec_round(x), f = vec_sub(x, n);
    vec p = vec_all(0x1.41fbbcp-13f);
    p = vec_fma(p, f, vec_all(0x1.5f3e52p-10f));
    p = vec_fma(p, f, vec_all(0x1.3b2d54p-7f));
    p = vec_fma(p, f, vec_all(0x1.c6af18p-5f));
    p = vec_fma(p, f, vec_all(0x1.ebfbdcp-3f));
    p = vec_fma(p, f, vec_all(0x1.62e430p-1f));
    p = vec_fma(p, f, vec_all(1.0f));
    return vec_scale2(p, n);
}

#endif
