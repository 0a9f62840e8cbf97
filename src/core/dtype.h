/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - converts one number between its storage format and f32. Kernels convert whole vectors
 * by other means and must agree with these to the bit: widening is exact, narrowing rounds to
 * nearest even. */
#ifndef RA__CORE_DTYPE_H
#define RA__CORE_DTYPE_H

#include <stdint.h>
#include <string.h>

#include "ringattn.h"

static inline size_t ra__dtype_bytes(ra_dtype dtype) { return dtype == RA_F32 ? 4 : 2; }

static inline const char *ra__dtype_name(ra_dtype dtype)
{
    return dtype == RA_F32 ? "f32" : dtype == RA_BF16 ? "bf16" : "f16";
}

static inline float ra__f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t ra__f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ra__from_bf16(uint16_t h) { return ra__f32_from_bits((uint32_t)h << 16); }

static inline uint16_t ra__to_bf16(float x)
{
    uint32_t bits = ra__f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* quiet NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float ra__from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return ra__f32_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    /* Multiplying by 2^112 moves the exponent from bias 15 to bias 127, subnormals included. */
    float x = ra__f32_from_bits(magnitude << 13) * ra__f32_from_bits(0x77800000u);
    return ra__f32_from_bits(sign | ra__f32_bits(x));
}

static inline uint16_t ra__to_f16(float x)
{
    uint32_t bits = ra__f32_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more */
    if (magnitude <
        0x38800000u) { /* subnormal: adding 0.5 leaves the rounded value in the low bits */
        float shifted = ra__f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (ra__f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

static inline float ra__load(ra_dtype dtype, const void *data, int64_t i)
{
    if (dtype == RA_F32) return ((const float *)data)[i];
    uint16_t h = ((const uint16_t *)data)[i];
    return dtype == RA_BF16 ? ra__from_bf16(h) : ra__from_f16(h);
}

static inline void ra__store(ra_dtype dtype, void *data, int64_t i, float x)
{
    if (dtype == RA_F32) ((float *)data)[i] = x;
    else ((uint16_t *)data)[i] = dtype == RA_BF16 ? ra__to_bf16(x) : ra__to_f16(x);
}

#endif
