/* SPDX-License-Identifier: Apache-2.0 */
/* operand_f32.h - the operands of matrix products: one f32 each. Inputs of other dtypes are
 * widened. Written with the operations of an ISA's vec.h. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_OPERAND_F32_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_OPERAND_F32_H

#include "core/dtype.h"

typedef float operand;

enum { PER_OPERAND = 1 };

/* Around the work on a key block: nothing to set for f32. */
static inline unsigned operand_begin(void) { return 0; }
static inline void operand_end(unsigned mode) { (void)mode; }

/* p 2^floor(x), but 0 where x < -126. */
static inline vec operand_scale2(vec p, vec x) { return vec_scale2(p, x); }

static inline vec operand_load(const operand *p) { return vec_load(p); }
static inline void operand_store(operand *p, vec x) { vec_store(p, x); }
static inline vec operand_broadcast(const operand *p) { return vec_all(*p); }

/* a b + c, in each lane. */
static inline vec operand_dot(vec a, vec b, vec c) { return vec_fma(a, b, c); }

/* LANES numbers of a tensor. */
static inline vec operand_read(ra_dtype dtype, const void *from)
{
    if (dtype == RA_F32) return vec_load(from);
    return dtype == RA_BF16 ? vec_widen_bf16(from) : vec_widen_f16(from);
}

/* Operands from consecutive numbers of a row, and from the same column of consecutive rows
 * (interleaved). */
static inline vec operand_row(const vec x[PER_OPERAND]) { return x[0]; }
static inline vec operand_interleave(const vec x[PER_OPERAND]) { return x[0]; }

/* LANES columns of PER_OPERAND rows of a tensor, interleaved. */
static inline vec operand_read_interleaved(ra_dtype dtype, const void *const from[PER_OPERAND])
{
    return operand_read(dtype, from[0]);
}

/* 2 LANES columns. */
static inline void operand_read_interleaved_pair(ra_dtype dtype,
                                                 const void *const from[PER_OPERAND], vec x[2])
{
    x[0] = operand_read(dtype, from[0]);
    x[1] = operand_read(dtype, (const char *)from[0] + LANES * ra__dtype_bytes(dtype));
}

/* Operands in 32 bits of a tensor, and those of a vector of such words, in the order of memory. */
static inline int operands_per_word(ra_dtype dtype) { return dtype == RA_F32 ? 1 : 2; }
static inline void operand_split(ra_dtype dtype, vec words, vec x[2])
{
    if (dtype == RA_F32) x[0] = words;
    else if (dtype == RA_BF16) vec_split_bf16(words, x);
    else vec_split_f16(words, x);
}

#endif
