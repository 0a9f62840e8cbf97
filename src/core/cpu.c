/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - CPU features by the compiler's own query, which also asks the operating system. */
#include "core/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <sys/syscall.h>

enum { LOOKED = 1, AVX2 = 2, AVX512 = 4, AVX512BF16 = 8, AMX = 16 };

/* F16C, AVX-512 BF16 and AMX are queried by hand, because some compilers do not know them. They
 * need nothing of the system beyond what AVX2 and AVX-512 need; tiles are asked for apart. */
static unsigned look(void)
{
    unsigned a, b, c, d, found = LOOKED;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return found;
    found |= AVX2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return found;
    found |= AVX512;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5)) return found;
    found |= AVX512BF16;
    const unsigned tiles = 1u << 24 | 1u << 22; /* and their products of bf16 */
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles) == tiles) found |= AMX;
    return found;
}

/* Looks once: in a virtual machine a CPUID instruction takes tens of microseconds. */
static bool has(unsigned feature)
{
    static atomic_uint known;
    unsigned found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) atomic_store_explicit(&known, found = look(), memory_order_relaxed);
    return (found & feature) != 0;
}

bool ra__cpu_has_avx2(void) { return has(AVX2); }
bool ra__cpu_has_avx512(void) { return has(AVX512); }
bool ra__cpu_has_avx512bf16(void) { return has(AVX512BF16); }

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

bool ra__cpu_has_amx(void) { return has(AMX) && ask_for_tiles(); }

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
