/* SPDX-License-Identifier: Apache-2.0 */
/* operand_bf16.h - the operands of matrix products: two bf16 in 32 bits, the first in the low half.
 * Inputs are used as they are; weights and their gradients are rounded to bf16. Written for AVX-512
 * with its bf16 instructions. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_OPERAND_BF16_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_OPERAND_BF16_H

#include "core/dtype.h"

typedef uint32_t operand;

enum { PER_OPERAND = 2 };

/* Products of bf16 treat numbers below 2^-126 as 0. While a block is worked on, every other result
 * that small is flushed to 0 too: no comparison is needed for weights, and no slow subnormal
 * numbers are written. */
static inline unsigned operand_begin(void)
{
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON);
    return mode;
}
static inline void operand_end(unsigned mode) { _mm_setcsr(mode); }

/* vec_scale2() in that mode. */
static inline vec operand_scale2(vec p, vec x) { return _mm512_scalef_ps(p, x); }

static inline __m512bh operand_halves(vec x) { return (__m512bh)_mm512_castps_si512(x); }

static inline vec operand_load(const operand *p)
{
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
}

static inline void operand_store(operand *p, vec x)
{
    _mm512_storeu_si512(p, _mm512_castps_si512(x));
}

static inline vec operand_broadcast(const operand *p)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)*p));
}

/* The two products of a and b, plus c, in each lane. */
static inline vec operand_dot(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, operand_halves(a), operand_halves(b));
}

/* 2 LANES numbers of a tensor. */
static inline vec operand_read(ra_dtype dtype, const void *from)
{
    (void)dtype; /* bf16: the only dtype of this kernel */
    return operand_load(from);
}

/* Operands from consecutive numbers of a row, and from the same column of consecutive rows
 * (interleaved). */
static inline vec operand_row(const vec x[PER_OPERAND])
{
    return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(x[1], x[0]));
}

static inline vec operand_interleave(const vec x[PER_OPERAND])
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
                                           24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                           16, 0);
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi16(order, _mm512_castps_si512(operand_row(x))));
}

/* LANES columns of two rows of a tensor, interleaved. */
static inline vec operand_read_interleaved(ra_dtype dtype, const void *const from[PER_OPERAND])
{
    (void)dtype;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from[0]));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from[1]));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* 2 LANES columns, read as whole cache lines of the tensor. */
static inline void operand_read_interleaved_pair(ra_dtype dtype,
                                                 const void *const from[PER_OPERAND], vec x[2])
{
    (void)dtype;
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i first = _mm512_loadu_si512(from[0]), second = _mm512_loadu_si512(from[1]);
    x[0] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, low, second));
    x[1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, high, second));
}

/* Operands in 32 bits of a tensor, and those of a vector of such words. */
static inline int operands_per_word(ra_dtype dtype)
{
    (void)dtype;
    return 1;
}

static inline void operand_split(ra_dtype dtype, vec words, vec x[2])
{
    (void)dtype;
    x[0] = words;
}

#endif
