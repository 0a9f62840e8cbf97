/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - CPU features by the compiler's own query, which also asks the operating system. */
#include "core/cpu.h"

#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <sys/syscall.h>

/* Queried by hand, because some compilers do not know it. It needs nothing of the system beyond
 * what AVX2 needs. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool ra__cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool ra__cpu_has_avx512(void)
{
    return ra__cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* Queried by hand too. */
bool ra__cpu_has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return ra__cpu_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

/* Measured: Sapphire Rapids multiplies pairs of bf16 at half the rate of f32, Zen 4 at twice
 * that. */
bool ra__cpu_bf16_is_slow(void) { return __builtin_cpu_is("intel"); }

/* Linux requires a process to ask before it uses tiles; asking again is free. */
static bool ask_for_tiles(void)
{
#ifdef SYS_arch_prctl
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool ra__cpu_has_amx(void)
{
    const unsigned tiles = 1u << 24, bf16 = 1u << 22;
    unsigned a, b, c, d;
    return ra__cpu_has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles) &&
           (d & bf16) && ask_for_tiles();
}

#else

bool ra__cpu_has_avx2(void) { return false; }
bool ra__cpu_has_avx512(void) { return false; }
bool ra__cpu_has_avx512bf16(void) { return false; }
bool ra__cpu_bf16_is_slow(void) { return false; }
bool ra__cpu_has_amx(void) { return false; }

#endif

int ra__cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
