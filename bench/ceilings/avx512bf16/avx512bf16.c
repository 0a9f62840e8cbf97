/* SPDX-License-Identifier: Apache-2.0 */
/* avx512bf16.c - what AVX-512 BF16 can do: vdpbf16ps, two products of bf16 added to each f32. */
#include "ceilings/ceiling.h"

#include <immintrin.h>

enum { ROWS = 6, VECS = 4, STEPS = 256, LANES = 16 };

/* Random bits in a narrow range of exponents; half of them negative, so that sums stay small. */
static __m512bh random_numbers(uint32_t seed)
{
    uint16_t bits[2 * LANES];
    __m512bh numbers;
    for (int i = 0; i < 2 * LANES; i++) {
        seed = seed * 1664525u + 1013904223u;
        bits[i] = (uint16_t)((seed >> 16 & 0x80ff) | 0x3e00);
    }
    __builtin_memcpy(&numbers, bits, sizeof numbers);
    return numbers;
}

static double dot_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    __m512 sum[ROWS][VECS];
    __m512bh left = random_numbers(1), right = random_numbers(2);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++) sum[r][v] = _mm512_set1_ps(0.1f + (float)(r + v));
    for (int64_t i = 0; i < rounds * STEPS; i++)
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right);
    ceiling_use(sum);
    return 4.0 * LANES * ROWS * VECS * STEPS * (double)rounds;
}

const struct ceiling ceiling_dpbf16_avx512 = {
    .name = "dpbf16-avx512",
    .summary = "bf16 products, vdpbf16ps",
    .unit = "GFLOP/s",
    .needs = "AVX-512 BF16",
    .usable = ceiling_has_avx512bf16,
    .work = dot_work,
};
