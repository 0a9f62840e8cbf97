/* SPDX-License-Identifier: Apache-2.0 */
/* vector_types.h - CUDA's small vectors with CUDA's alignments, for C and C++. */
#ifndef EMULATED_VECTOR_TYPES_H
#define EMULATED_VECTOR_TYPES_H

/* NAME1 .. NAME4 of TYPE; a vector of 2 or 4 is aligned to its size, at most 16 bytes. */
#define EMULATED_VECTORS(NAME, TYPE, ALIGN2, ALIGN4)                                               \
    struct NAME##1 { TYPE x; };                                                                    \
    struct __attribute__((aligned(ALIGN2))) NAME##2 { TYPE x, y; };                                \
    struct NAME##3 { TYPE x, y, z; };                                                              \
    struct __attribute__((aligned(ALIGN4))) NAME##4 { TYPE x, y, z, w; };                          \
    typedef struct NAME##1 NAME##1;                                                                \
    typedef struct NAME##2 NAME##2;                                                                \
    typedef struct NAME##3 NAME##3;                                                                \
    typedef struct NAME##4 NAME##4

EMULATED_VECTORS(char, signed char, 2, 4);
EMULATED_VECTORS(uchar, unsigned char, 2, 4);
EMULATED_VECTORS(short, short, 4, 8);
EMULATED_VECTORS(ushort, unsigned short, 4, 8);
EMULATED_VECTORS(int, int, 8, 16);
EMULATED_VECTORS(uint, unsigned int, 8, 16);
EMULATED_VECTORS(longlong, long long, 16, 16);
EMULATED_VECTORS(ulonglong, unsigned long long, 16, 16);
EMULATED_VECTORS(float, float, 8, 16);
EMULATED_VECTORS(double, double, 16, 16);

struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{ x, y, z }; }
#endif
};
typedef struct dim3 dim3;

#endif
