/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c - what AVX-512 can do: f32 multiply-adds and exponentials. */
#include "ceilings/ceiling.h"

#include <immintrin.h>

/* 24 sums are more than two units that take four cycles each can have under way. */
enum { ROWS = 6, VECS = 4, STEPS = 256, LANES = 16 };

static double fma_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    __m512 sum[ROWS][VECS], factor = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(0.0013f);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++) sum[r][v] = _mm512_set1_ps(0.1f + (float)(r + v));
    for (int64_t i = 0; i < rounds * STEPS; i++)
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) sum[r][v] = _mm512_fmadd_ps(sum[r][v], factor, addend);
    ceiling_use(sum);
    return 2.0 * LANES * ROWS * VECS * STEPS * (double)rounds;
}

/* 2^x by its nearest integer, a polynomial of degree 6 for the rest, and a scaling: the least that
 * f32 accuracy takes. The coefficients are those of Taylor, for only their number matters. */
static inline __m512 exp2_of(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT), f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.540353e-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.333356e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618129e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550411e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402265e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Each chain feeds its power into the next exponent, times -1/2, so that it stays between 0 and 1;
 * the product stands for the maximum that a softmax subtracts. */
static double exp2_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    enum { CHAINS = 12 };
    (void)data;
    (void)bytes;
    __m512 x[CHAINS], half = _mm512_set1_ps(-0.5f);
    for (int c = 0; c < CHAINS; c++) x[c] = _mm512_set1_ps(-0.07f * (float)c);
    for (int64_t i = 0; i < rounds * STEPS; i++)
        for (int c = 0; c < CHAINS; c++) x[c] = exp2_of(_mm512_mul_ps(x[c], half));
    ceiling_use(x);
    return (double)LANES * CHAINS * STEPS * (double)rounds;
}

const struct ceiling ceiling_fma_avx512 = {
    .name = "fma-avx512",
    .summary = "f32 multiply-adds, AVX-512",
    .unit = "GFLOP/s",
    .needs = "AVX-512 F",
    .usable = ceiling_has_avx512,
    .work = fma_work,
};

const struct ceiling ceiling_exp2_avx512 = {
    .name = "exp2-avx512",
    .summary = "2^x, polynomial of degree 6, AVX-512",
    .unit = "Gexp/s",
    .needs = "AVX-512 F",
    .usable = ceiling_has_avx512,
    .work = exp2_work,
};
