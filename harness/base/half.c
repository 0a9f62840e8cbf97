/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - the 16-bit formats, rounded to nearest even. */
#include "half.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A half has 11 significant bits and steps of at least 2^-24, so scaling by that step and
 * rounding to a whole number is the conversion. nearbyint() rounds to even. */
static uint16_t to_f16(float value)
{
    uint16_t sign = (uint16_t)(bits_of(value) >> 16 & 0x8000);
    double size = fabs((double)value);
    if (isnan(value)) return (uint16_t)(sign | 0x7e00);
    if (size >= 65520.0) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)nearbyint(size * 0x1p24));
    int exponent;
    double fraction = frexp(size, &exponent); /* size = fraction 2^exponent, fraction in [0.5, 1) */
    int mantissa = (int)nearbyint(fraction * 2048.0); /* 1024 to 2048; 2048 carries on its own */
    return (uint16_t)(sign + ((exponent + 13) << 10) + mantissa);
}

static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, mantissa = half & 0x3ff;
    uint32_t exponent = half >> 10 & 0x1f;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent > 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
}

float half_round(ra_dtype dtype, float value)
{
    switch (dtype) {
    case RA_BF16: return float_of((uint32_t)to_bf16(value) << 16);
    case RA_F16: return from_f16(to_f16(value));
    default: return value;
    }
}

size_t half_bytes(ra_dtype dtype) { return dtype == RA_F32 ? 4 : 2; }

void half_to_float(ra_dtype dtype, const void *from, int64_t count, float *to)
{
    const uint16_t *halves = from;
    if (dtype == RA_F32) memcpy(to, from, (size_t)count * sizeof *to);
    if (dtype == RA_BF16)
        for (int64_t i = 0; i < count; i++) to[i] = float_of((uint32_t)halves[i] << 16);
    if (dtype == RA_F16)
        for (int64_t i = 0; i < count; i++) to[i] = from_f16(halves[i]);
}

void half_from_float(ra_dtype dtype, const float *from, int64_t count, void *to)
{
    uint16_t *halves = to;
    if (dtype == RA_F32) memcpy(to, from, (size_t)count * sizeof *from);
    if (dtype == RA_BF16)
        for (int64_t i = 0; i < count; i++) halves[i] = to_bf16(from[i]);
    if (dtype == RA_F16)
        for (int64_t i = 0; i < count; i++) halves[i] = to_f16(from[i]);
}

double half_unit(ra_dtype dtype)
{
    return dtype == RA_F32 ? 0x1p-24 : dtype == RA_BF16 ? 0x1p-8 : 0x1p-11;
}

double half_tiny(ra_dtype dtype) { return dtype == RA_F16 ? 0x1p-25 : 0x1p-126; }

const char *half_name(ra_dtype dtype)
{
    return dtype == RA_F32 ? "f32" : dtype == RA_BF16 ? "bf16" : "f16";
}
