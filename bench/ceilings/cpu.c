/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - what this CPU has and the operating system lets us use. Compiled without flags of any
 * instruction set, for it runs everywhere. */
#include "ceiling.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of leaf 7 that some compilers' own query does not know. */
enum { AVX512_BF16 = 1 << 5, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };

/* arch_prctl: the tiles' registers are large, so Linux hands them out on request only. */
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };

bool ceiling_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool ceiling_has_avx512(void) { return ceiling_has_avx2() && __builtin_cpu_supports("avx512f"); }

bool ceiling_has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return ceiling_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
}

bool ceiling_has_amx(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

#else

bool ceiling_has_avx2(void) { return false; }
bool ceiling_has_avx512(void) { return false; }
bool ceiling_has_avx512bf16(void) { return false; }
bool ceiling_has_amx(void) { return false; }

#endif
