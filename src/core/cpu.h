/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - the features of this CPU, queried at run time, so that one binary runs everywhere. True
 * only if the operating system saves the registers too. Always false on machines that are not
 * x86. */
#ifndef RA__CORE_CPU_H
#define RA__CORE_CPU_H

#include <stdbool.h>

bool ra__cpu_has_avx2(void);       /* AVX2, FMA and F16C */
bool ra__cpu_has_avx512(void);     /* AVX-512 F, BW, DQ and VL, and all of the above */
bool ra__cpu_has_avx512bf16(void); /* AVX-512 BF16, and all of the above */
bool ra__cpu_bf16_is_slow(void);   /* are products of bf16 pairs slower than FMA of f32? */
bool ra__cpu_has_amx(void);        /* AMX-BF16, allowed by the system, and all of the above */

/* The cores this process may use. */
int ra__cores(void);

#endif
