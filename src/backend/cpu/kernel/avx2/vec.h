/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - the vector operations of the AVX2 kernel: eight f32 at a time. The algorithms in
 * kernel/vector are written with these operations and know no instruction set. */
#ifndef RA__BACKEND_CPU_KERNEL_AVX2_VEC_H
#define RA__BACKEND_CPU_KERNEL_AVX2_VEC_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256 vec;

/* A matrix product keeps MR x TILE_VECS sums in registers: 12 of the 16, beside 2 vectors of
 * B and one of A. */
enum { LANES = 8, MR = 6, TILE_VECS = 2 };

static inline vec vec_zero(void) { return _mm256_setzero_ps(); }
static inline vec vec_all(float x) { return _mm256_set1_ps(x); }
static inline vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vec_store(float *p, vec x) { _mm256_storeu_ps(p, x); }

static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); } /* a b + c */
static inline vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); } /* b where one is NaN */
static inline vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); } /* likewise */

/* x where a < b, otherwise, and where one is NaN, y. */
static inline vec vec_below(vec a, vec b, vec x, vec y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline float vec_first(vec x) { return _mm256_cvtss_f32(x); }

/* Over all lanes, in a fixed order. */
static inline float vec_sum(vec x)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float vec_largest(vec x)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline vec vec_ceil(vec x) { return _mm256_ceil_ps(x); }

/* x - floor(x), in [0, 1); NaN for infinities. */
static inline vec vec_fraction(vec x) { return _mm256_sub_ps(x, _mm256_floor_ps(x)); }

/* p 2^floor(x), but 0 where x < -126, whatever p is, and infinite from 128 on. The power is made of
 * its exponent bits; min and the comparison are written so that NaN stays. */
static inline vec vec_scale2(vec p, vec x)
{
    vec n = _mm256_floor_ps(x);
    __m256i integer = _mm256_cvtps_epi32(_mm256_min_ps(vec_all(128.0f), n));
    __m256i exponent = _mm256_add_epi32(integer, _mm256_set1_epi32(127));
    vec power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    vec normal = _mm256_cmp_ps(n, vec_all(-126.0f), _CMP_NLT_UQ);
    return _mm256_and_ps(_mm256_mul_ps(p, power), normal);
}

static inline vec vec_widen_bf16(const uint16_t *p)
{
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

static inline vec vec_widen_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* From pairs of halves, the first in the low half: all the first, and all the second. */
static inline void vec_split_bf16(vec pairs, vec x[2])
{
    __m256i bits = _mm256_castps_si256(pairs);
    x[0] = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    x[1] = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-0x10000)));
}

static inline void vec_split_f16(vec pairs, vec x[2])
{
    __m256i bits = _mm256_castps_si256(pairs);
    __m256i first = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    __m256i packed = _mm256_packus_epi32(first, _mm256_srli_epi32(bits, 16)); /* in quarters */
    packed = _mm256_permute4x64_epi64(packed, 0xd8);
    x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    x[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(packed, 1));
}

/* Adding 0x7fff plus the lowest bit that stays rounds to nearest even. */
static inline void vec_narrow_bf16(uint16_t *p, vec x)
{
    __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i halves = _mm256_blendv_epi8(rounded, quiet, nan);
    __m128i low = _mm256_castsi256_si128(halves), top = _mm256_extracti128_si256(halves, 1);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(low, top));
}

static inline void vec_narrow_f16(uint16_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Transposes a LANES x LANES square, first inside halves of 4 x 4, then the halves: after the first
 * loop, half n of r[4 i + j] holds column 4 n + j of rows 4 i to 4 i + 3. */
static inline void vec_transpose(vec r[LANES])
{
    for (int i = 0; i < LANES; i += 4) {
        vec low01 = _mm256_unpacklo_ps(r[i], r[i + 1]), high01 = _mm256_unpackhi_ps(r[i], r[i + 1]);
        vec low23 = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        vec high23 = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        r[i] = _mm256_shuffle_ps(low01, low23, 0x44);
        r[i + 1] = _mm256_shuffle_ps(low01, low23, 0xee);
        r[i + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
        r[i + 3] = _mm256_shuffle_ps(high01, high23, 0xee);
    }
    for (int j = 0; j < 4; j++) {
        vec low = r[j], high = r[j + 4];
        r[j] = _mm256_permute2f128_ps(low, high, 0x20);
        r[j + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

#endif
