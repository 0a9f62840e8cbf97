/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.c - what AVX2 can do: f32 multiply-adds, and reading with loads of 32 bytes. */
#include "ceilings/ceiling.h"

#include <immintrin.h>

/* Independent sums: two multiply-adds a cycle that take four or five each need ten; 12 of the 16
 * registers are sums. */
enum { ROWS = 6, VECS = 2, STEPS = 256, LANES = 8 };

static double fma_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    __m256 sum[ROWS][VECS], factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(0.0013f);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++) sum[r][v] = _mm256_set1_ps(0.1f + (float)(r + v));
    for (int64_t i = 0; i < rounds * STEPS; i++)
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) sum[r][v] = _mm256_fmadd_ps(sum[r][v], factor, addend);
    ceiling_use(sum);
    return 2.0 * LANES * ROWS * VECS * STEPS * (double)rounds;
}

static double read_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    enum { SUMS = 8, WIDTH = 32 };
    __m256i sum[SUMS];
    for (int s = 0; s < SUMS; s++) sum[s] = _mm256_setzero_si256();
    for (int64_t i = 0; i < rounds; i++) {
        for (const unsigned char *at = data; at < data + bytes; at += SUMS * WIDTH)
            for (int s = 0; s < SUMS; s++) {
                __m256i word = _mm256_load_si256((const __m256i *)(const void *)(at + s * WIDTH));
                sum[s] = _mm256_xor_si256(sum[s], word);
            }
        ceiling_use(sum); /* every round reads again */
    }
    return (double)bytes * (double)rounds;
}

#define NEEDS .needs = "AVX2 and FMA", .usable = ceiling_has_avx2

const struct ceiling ceiling_fma_avx2 = {
    .name = "fma-avx2",
    .summary = "f32 multiply-adds, AVX2",
    .unit = "GFLOP/s",
    NEEDS,
    .work = fma_work,
};

const struct ceiling ceiling_read_l1 = {
    .name = "read-l1",
    .summary = "reading 16 KiB a thread",
    .unit = "GB/s",
    NEEDS,
    .bytes = 16 << 10,
    .work = read_work,
};

const struct ceiling ceiling_read_l2 = {
    .name = "read-l2",
    .summary = "reading 256 KiB a thread",
    .unit = "GB/s",
    NEEDS,
    .bytes = 256 << 10,
    .work = read_work,
};

const struct ceiling ceiling_read_memory = {
    .name = "read-memory",
    .summary = "reading memory",
    .unit = "GB/s",
    NEEDS,
    .bytes = CEILING_MEMORY,
    .work = read_work,
};
