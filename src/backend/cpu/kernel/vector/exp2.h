/* SPDX-License-Identifier: Apache-2.0 */
/* exp2.h - 2^x for vectors. Written with the operations of an ISA's vec.h and of operand_*.h. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_EXP2_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_EXP2_H

/* 2^(y - 1/2): a caller that multiplies before this call adds the half there, for free. With n =
 * floor(y) and g = y - n this is 2^n 2^(g - 1/2), and g is in [0, 1) around the 1/2 that belongs to
 * integers. The second factor is a polynomial of degree 5, exactly 1 at g = 1/2. Relative error at
 * most 2.4 x 2^-24 down to y = -125.5, rounding included; exactly 0 from -126.5 down and at -inf;
 * NaN stays NaN. */
static inline vec vec_exp2_up(vec y)
{
    vec g = vec_fraction(y), p = vec_all(0x1.5bbbe8p-10f);
    p = vec_fma(p, g, vec_all(0x1.a08202p-8f));
    p = vec_fma(p, g, vec_all(0x1.436be6p-5f));
    p = vec_fma(p, g, vec_all(0x1.5bc5b4p-3f));
    p = vec_fma(p, g, vec_all(0x1.f5e5acp-2f));
    p = vec_fma(p, g, vec_all(0x1.6a09e4p-1f));
    return operand_scale2(p, y);
}

/* 2^x. Rounding the sum costs up to 0.7 (|x| + 1/2) 2^-24 more, as rounding x itself would. */
static inline vec vec_exp2(vec x) { return vec_exp2_up(vec_add(x, vec_all(0.5f))); }

#endif
