/* SPDX-License-Identifier: Apache-2.0 */
/* tanh.h - the hyperbolic tangent for vectors, with its derivative. Written with the operations of
 * an ISA's vec.h, on top of exp2.h. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_TANH_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_TANH_H

#include "backend/cpu/kernel/vector/exp2.h"
#include "core/state.h"

/* tanh u, and in *slope 1 - tanh^2 u. Below 5/8 a minimax polynomial, odd and with slope 1 at 0, of
 * relative error 0.08 x 2^-24 itself; from there on with e = exp(2u)
 *     tanh u = (e - 1) / (e + 1)      1 - tanh^2 u = 4 e / (e + 1)^2
 * which keeps its digits in the small slopes of large u. Relative error of tanh at most 3.6 x
 * 2^-24, of the slope 3.1 (1 + |u|) 2^-24. Beyond 40 both stay what they are there, +-1 and 7e-35;
 * NaN stays NaN. */
static inline vec vec_tanh(vec u, vec *slope)
{
    vec z = vec_mul(u, u), near = vec_all(0x1.9p-2f); /* (5/8)^2 */
    vec p = vec_all(-0x1.75e1bap-8f);
    p = vec_fma(p, z, vec_all(0x1.522696p-6f));
    p = vec_fma(p, z, vec_all(-0x1.b83c5ap-5f));
    p = vec_fma(p, z, vec_all(0x1.110726p-3f));
    p = vec_fma(p, z, vec_all(-0x1.555532p-2f));
    vec small = vec_fma(vec_mul(u, z), p, u);

    vec bound = vec_max(vec_all(-40.0f), vec_min(vec_all(40.0f), u)); /* so that e is finite */
    vec e = vec_exp2(vec_mul(bound, vec_all((float)(2.0 * RA__LOG2_E))));
    vec inverse = vec_div(vec_all(1.0f), vec_add(e, vec_all(1.0f)));
    vec large = vec_mul(vec_sub(e, vec_all(1.0f)), inverse);
    vec steep = vec_fma(vec_sub(vec_zero(), small), small, vec_all(1.0f));
    vec flat = vec_mul(vec_mul(vec_all(4.0f), vec_mul(e, inverse)), inverse);
    *slope = vec_below(z, near, steep, flat);
    return vec_below(z, near, small, large);
}

#endif
