/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_bf16.h - __nv_bfloat16 and __nv_bfloat162: conversions, and arithmetic through f32. */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"

namespace emulated
{

/* Rounds to nearest, ties to even; keeps NaN. */
inline uint16_t bfloat16_bits(float x)
{
    const uint32_t bits = same_bits<uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff; /* as the device writes it */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float bfloat16_value(uint16_t bits) { return same_bits<float>((uint32_t)bits << 16); }

} // namespace emulated

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : __x(emulated::bfloat16_bits(x)) {}
    __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
    operator float() const { return emulated::bfloat16_value(__x); }
    operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{ __x }; }
};
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
};
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return emulated::bfloat16_value(x.__x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return emulated::same_bits<__nv_bfloat16>(x);
}
inline __nv_bfloat16 __short_as_bfloat16(short x) { return emulated::same_bits<__nv_bfloat16>(x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return (short)x.__x; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(y));
}
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return __floats2bfloat162_rn(x, x); }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat162(x, y);
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat162(x, y);
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16((float)a + (float)b);
}
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16((float)a * (float)b);
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hmul(a.x, b.x), __hmul(a.y, b.y));
}

#endif
