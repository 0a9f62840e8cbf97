/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fp16.h - __half and __half2: conversions, and arithmetic through f32. */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H

#include "cuda_runtime.h"

namespace emulated
{

/* Rounds to nearest, ties to even; keeps NaN, and the numbers below the normal ones. */
inline uint16_t half_bits(float x)
{
    const uint32_t bits = same_bits<uint32_t>(x);
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;                      /* NaN, as the device writes it */
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to inf */
    if (size >= 0x38800000u) {                                  /* 2^-14: normal */
        const uint32_t odd = size >> 13 & 1u;
        return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + odd) >> 13));
    }
    /* In units of 2^-24, exactly: the sum is rounded where those end. */
    const float unit = same_bits<float>(size) + 0.5f;
    return (uint16_t)(sign | (same_bits<uint32_t>(unit) - 0x3f000000u));
}

inline float half_value(uint16_t bits)
{
    const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
    if (size >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size >= 0x0400u) return same_bits<float>(sign | ((size << 13) + 0x38000000u));
    return same_bits<float>(sign | same_bits<uint32_t>((float)size * 0x1p-24f));
}

} // namespace emulated

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short __x;
    __half() = default;
    __half(float x) : __x(emulated::half_bits(x)) {}
    __half(__half_raw raw) : __x(raw.x) {}
    operator float() const { return emulated::half_value(__x); }
    operator __half_raw() const { return __half_raw{ __x }; }
};
typedef __half half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half low, __half high) : x(low), y(high) {}
};
typedef __half2 half2;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __half2float(__half x) { return emulated::half_value(x.__x); }
inline __half __ushort_as_half(unsigned short x) { return emulated::same_bits<__half>(x); }
inline __half __short_as_half(short x) { return emulated::same_bits<__half>(x); }
inline unsigned short __half_as_ushort(__half x) { return x.__x; }
inline short __half_as_short(__half x) { return (short)x.__x; }
inline __half2 __floats2half2_rn(float x, float y) { return __half2(__half(x), __half(y)); }
inline __half2 __float2half2_rn(float x) { return __half2(__half(x), __half(x)); }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 v)
{
    return make_float2(__half2float(v.x), __half2float(v.y));
}
inline __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __half2half2(__half x) { return __half2(x, x); }
inline __half2 make_half2(__half x, __half y) { return __half2(x, y); }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return __half2float(v.x); }
inline float __high2float(__half2 v) { return __half2float(v.y); }
inline __half __hadd(__half a, __half b) { return __half((float)a + (float)b); }
inline __half __hsub(__half a, __half b) { return __half((float)a - (float)b); }
inline __half __hmul(__half a, __half b) { return __half((float)a * (float)b); }
inline __half2 __hadd2(__half2 a, __half2 b) { return __half2(__hadd(a.x, b.x), __hadd(a.y, b.y)); }
inline __half2 __hmul2(__half2 a, __half2 b) { return __half2(__hmul(a.x, b.x), __hmul(a.y, b.y)); }

#endif
