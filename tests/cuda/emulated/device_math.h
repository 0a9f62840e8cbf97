/* SPDX-License-Identifier: Apache-2.0 */
/* device_math.h - numbers in device code: bits, conversions and the fast approximations, which are
 * exact here. */
#ifndef EMULATED_DEVICE_MATH_H
#define EMULATED_DEVICE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emulated
{
template <typename To, typename From> inline To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float reciprocal_sqrt(float x) { return 1.0f / sqrtf(x); }
inline double reciprocal_sqrt_double(double x) { return 1.0 / sqrt(x); }
inline float fast_exp(float x) { return expf(x); }
inline float fast_exp10(float x) { return powf(10.0f, x); }
inline float fast_log(float x) { return logf(x); }
inline float fast_log2(float x) { return log2f(x); }
inline float fast_log10(float x) { return log10f(x); }
inline float fast_sin(float x) { return sinf(x); }
inline float fast_cos(float x) { return cosf(x); }
inline float fast_pow(float x, float y) { return powf(x, y); }
} // namespace emulated

/* Macros, because the C library declares some of these names, and newer ones declare rsqrt. */
#define rsqrtf emulated::reciprocal_sqrt
#define rsqrt emulated::reciprocal_sqrt_double
#define __expf emulated::fast_exp
#define __exp10f emulated::fast_exp10
#define __logf emulated::fast_log
#define __log2f emulated::fast_log2
#define __log10f emulated::fast_log10
#define __sinf emulated::fast_sin
#define __cosf emulated::fast_cos
#define __powf emulated::fast_pow

inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

/* ---- Bits. ---- */

inline int __float_as_int(float x) { return emulated::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulated::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulated::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated::same_bits<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned __brev(unsigned x)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1u) << (31 - i);
    return result;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned choice = selector >> 4 * i;
        unsigned byte = (unsigned)(bytes >> 8 * (choice & 7)) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0; /* the sign, repeated */
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}
inline int __mul24(int a, int b) { return (int)((unsigned)a * (unsigned)b); }

/* ---- Conversions. ---- */

inline int __float2int_rn(float x) { return (int)lrintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_ru(float x) { return (int)ceilf(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)llrintf(x); }
inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }

/* ---- min and max, for the pairs of types that CUDA has. ---- */

#define EMULATED_MIN_MAX(RESULT, A, B)                                                             \
    inline RESULT min(A a, B b) { return (RESULT)a < (RESULT)b ? (RESULT)a : (RESULT)b; }          \
    inline RESULT max(A a, B b) { return (RESULT)a > (RESULT)b ? (RESULT)a : (RESULT)b; }
#define EMULATED_MIN_MAX_INTEGERS(SIGNED, UNSIGNED)                                                \
    EMULATED_MIN_MAX(SIGNED, SIGNED, SIGNED)                                                       \
    EMULATED_MIN_MAX(UNSIGNED, UNSIGNED, UNSIGNED)                                                 \
    EMULATED_MIN_MAX(UNSIGNED, SIGNED, UNSIGNED)                                                   \
    EMULATED_MIN_MAX(UNSIGNED, UNSIGNED, SIGNED)
EMULATED_MIN_MAX_INTEGERS(int, unsigned int)
EMULATED_MIN_MAX_INTEGERS(long, unsigned long)
EMULATED_MIN_MAX_INTEGERS(long long, unsigned long long)
#undef EMULATED_MIN_MAX_INTEGERS
#undef EMULATED_MIN_MAX

inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#endif
