/* SPDX-License-Identifier: Apache-2.0 */
/* vector_functions.h - make_float4() and its like. */
#ifndef EMULATED_VECTOR_FUNCTIONS_H
#define EMULATED_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define EMULATED_MAKE(NAME, TYPE)                                                                  \
    inline NAME##1 make_##NAME##1(TYPE x) { return NAME##1 { x }; }                                \
    inline NAME##2 make_##NAME##2(TYPE x, TYPE y) { return NAME##2 { x, y }; }                     \
    inline NAME##3 make_##NAME##3(TYPE x, TYPE y, TYPE z) { return NAME##3 { x, y, z }; }          \
    inline NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { return NAME##4 { x, y, z, w }; }

EMULATED_MAKE(char, signed char)
EMULATED_MAKE(uchar, unsigned char)
EMULATED_MAKE(short, short)
EMULATED_MAKE(ushort, unsigned short)
EMULATED_MAKE(int, int)
EMULATED_MAKE(uint, unsigned int)
EMULATED_MAKE(longlong, long long)
EMULATED_MAKE(ulonglong, unsigned long long)
EMULATED_MAKE(float, float)
EMULATED_MAKE(double, double)
#undef EMULATED_MAKE

#endif
