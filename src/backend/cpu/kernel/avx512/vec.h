/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - the vector operations of the AVX-512 kernel: sixteen f32 at a time. The algorithms in
 * kernel/vector are written with these operations and know no instruction set. */
#ifndef RA__BACKEND_CPU_KERNEL_AVX512_VEC_H
#define RA__BACKEND_CPU_KERNEL_AVX512_VEC_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;

/* A matrix product keeps MR x TILE_VECS sums in registers: 24 of the 32, beside 4 vectors of
 * B and one of A. */
enum { LANES = 16, MR = 6, TILE_VECS = 4 };

static inline vec vec_zero(void) { return _mm512_setzero_ps(); }
static inline vec vec_all(float x) { return _mm512_set1_ps(x); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec x) { _mm512_storeu_ps(p, x); }

static inline vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); } /* a b + c */
static inline vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); } /* b where one is NaN */
static inline vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); } /* likewise */

/* x where a < b, otherwise, and where one is NaN, y. */
static inline vec vec_below(vec a, vec b, vec x, vec y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline float vec_first(vec x) { return _mm512_cvtss_f32(x); }

/* Over all lanes, in a fixed order. */
static inline float vec_sum(vec x) { return _mm512_reduce_add_ps(x); }
static inline float vec_largest(vec x) { return _mm512_reduce_max_ps(x); }

static inline vec vec_ceil(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_CEIL); }

/* x - floor(x), in [0, 1); 0 for infinities. */
static inline vec vec_fraction(vec x) { return _mm512_reduce_ps(x, _MM_FROUND_FLOOR); }

/* p 2^floor(x), but 0 where x < -126, whatever p is. The comparison holds for NaN, so NaN stays. */
static inline vec vec_scale2(vec p, vec x)
{
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, p, x);
}

static inline vec vec_widen_bf16(const uint16_t *p)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

static inline vec vec_widen_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* From pairs of halves, the first in the low half: all the first, and all the second. */
static inline void vec_split_bf16(vec pairs, vec x[2])
{
    __m512i bits = _mm512_castps_si512(pairs);
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    x[1] = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-0x10000)));
}

static inline void vec_split_f16(vec pairs, vec x[2])
{
    __m512i bits = _mm512_castps_si512(pairs);
    x[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits));
    x[1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}

/* Adding 0x7fff plus the lowest bit that stays rounds to nearest even. */
static inline void vec_narrow_bf16(uint16_t *p, vec x)
{
    __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i halves = _mm512_mask_mov_epi32(rounded, nan, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(halves));
}

static inline void vec_narrow_f16(uint16_t *p, vec x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Transposes a LANES x LANES square, first inside quarters of 4 x 4, then the quarters: after the
 * first loop, quarter n of r[4 i + j] holds column 4 n + j of rows 4 i to 4 i + 3. */
static inline void vec_transpose(vec r[LANES])
{
    for (int i = 0; i < LANES; i += 4) {
        vec low01 = _mm512_unpacklo_ps(r[i], r[i + 1]), high01 = _mm512_unpackhi_ps(r[i], r[i + 1]);
        vec low23 = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        vec high23 = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        r[i] = _mm512_shuffle_ps(low01, low23, 0x44);
        r[i + 1] = _mm512_shuffle_ps(low01, low23, 0xee);
        r[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
        r[i + 3] = _mm512_shuffle_ps(high01, high23, 0xee);
    }
    for (int j = 0; j < 4; j++) {
        vec low01 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x44);
        vec high01 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xee);
        vec low23 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0x44);
        vec high23 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0xee);
        r[j] = _mm512_shuffle_f32x4(low01, low23, 0x88);
        r[j + 4] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
        r[j + 8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
        r[j + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
}

#endif
