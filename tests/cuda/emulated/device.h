/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the language of device code: qualifiers, barriers, warp collectives and atomics. */
#ifndef EMULATED_DEVICE_H
#define EMULATED_DEVICE_H

/* Before __noinline__ becomes a macro: the standard library uses that word in attributes. */
#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "device_math.h"
#include "emulated.h"
#include "vector_functions.h"

#define __device__
#define __host__
#define __global__
#define __constant__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) ((void)0)
#define __assume(condition) ((void)0)

constexpr int warpSize = 32;

/* ---- Barriers. ---- */

inline void __syncthreads() { emulated::block_barrier(emulated::REDUCE_NONE, 0); }
inline int __syncthreads_or(int p) { return emulated::block_barrier(emulated::REDUCE_OR, p); }
inline int __syncthreads_and(int p) { return emulated::block_barrier(emulated::REDUCE_AND, p); }
inline int __syncthreads_count(int p) { return emulated::block_barrier(emulated::REDUCE_COUNT, p); }

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated::collect(emulated::COLLECTIVE_SYNCWARP, mask, nullptr, 0);
}

/* One thread runs at a time, so memory is always in order. */
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emulated::yield(); }
[[noreturn]] inline void __trap() { emulated::fail("__trap()"); }
inline void cudaGridDependencySynchronize() { emulated::follow(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

/* ---- Warp collectives. ---- */

namespace emulated
{
/* The value of the lane that `source` names, among `width` lanes that end with the calling lane's
 * group; the calling lane's own value where that is outside of it. */
template <typename T> inline T shuffled(unsigned mask, T value, int source, bool inside)
{
    const T *all = collect_values(COLLECTIVE_SHUFFLE, mask, value);
    if (!inside) return value;
    if (!(mask >> source & 1))
        fail("a shuffle reads lane %d, which its mask %08x omits", source, mask);
    return all[source];
}
inline int group_start(int width) { return lane() & ~(width - 1); }
} // namespace emulated

template <typename T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    const int from = emulated::group_start(width) + (source & (width - 1));
    return emulated::shuffled(mask, value, from, true);
}

template <typename T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    const int from = emulated::lane() ^ bits;
    return emulated::shuffled(mask, value, from, from < emulated::group_start(width) + width);
}

template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    const int from = emulated::lane() - (int)delta;
    return emulated::shuffled(mask, value, from, from >= emulated::group_start(width));
}

template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    const int from = emulated::lane() + (int)delta;
    return emulated::shuffled(mask, value, from, from < emulated::group_start(width) + width);
}

inline unsigned __activemask() { return emulated::live_lanes(); }

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const bool *all = emulated::collect_values(emulated::COLLECTIVE_VOTE, mask, predicate != 0);
    const unsigned lanes = emulated::collected_lanes();
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1) result |= (unsigned)all[i] << i;
    return result;
}

inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <typename T> inline unsigned __match_any_sync(unsigned mask, T value)
{
    const T *all = emulated::collect_values(emulated::COLLECTIVE_MATCH, mask, value);
    const unsigned lanes = emulated::collected_lanes();
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if ((lanes >> i & 1) && all[i] == value) result |= 1u << i;
    return result;
}

namespace emulated
{
template <typename T, typename Combine>
inline T reduced(unsigned mask, T value, const Combine &combine)
{
    const T *all = collect_values(COLLECTIVE_REDUCE, mask, value);
    const unsigned lanes = collected_lanes();
    T result = value;
    for (int i = 0; i < 32; i++)
        if ((lanes >> i & 1) && i != lane()) result = combine(result, all[i]);
    return result;
}
} // namespace emulated

#define EMULATED_REDUCE(NAME, TYPE, EXPRESSION)                                                    \
    inline TYPE NAME(unsigned mask, TYPE value)                                                    \
    {                                                                                              \
        return emulated::reduced(mask, value, [](TYPE a, TYPE b) -> TYPE { return EXPRESSION; });  \
    }
EMULATED_REDUCE(__reduce_max_sync, int, a > b ? a : b)
EMULATED_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
EMULATED_REDUCE(__reduce_min_sync, int, a < b ? a : b)
EMULATED_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
EMULATED_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
EMULATED_REDUCE(__reduce_add_sync, unsigned, a + b)
EMULATED_REDUCE(__reduce_and_sync, unsigned, a &b)
EMULATED_REDUCE(__reduce_or_sync, unsigned, a | b)
EMULATED_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef EMULATED_REDUCE

/* ---- Atomics: all of them return the old value. ---- */

#define EMULATED_ATOMIC(NAME, TYPE, EXPRESSION)                                                    \
    EMULATED_UNWATCHED inline TYPE NAME(TYPE *address, TYPE value)                                 \
    {                                                                                              \
        emulated::race_access(address, sizeof *address, emulated::ACCESS_CHANGE);                  \
        const TYPE old = *address;                                                                 \
        *address = (TYPE)(EXPRESSION);                                                             \
        return old;                                                                                \
    }
#define EMULATED_ATOMIC_INTEGERS(NAME, EXPRESSION)                                                 \
    EMULATED_ATOMIC(NAME, int, EXPRESSION)                                                         \
    EMULATED_ATOMIC(NAME, unsigned int, EXPRESSION)                                                \
    EMULATED_ATOMIC(NAME, long long, EXPRESSION)                                                   \
    EMULATED_ATOMIC(NAME, unsigned long long, EXPRESSION)

EMULATED_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)value)
EMULATED_ATOMIC(atomicAdd, unsigned int, old + value)
EMULATED_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATED_ATOMIC(atomicAdd, float, old + value)
EMULATED_ATOMIC(atomicAdd, double, old + value)
EMULATED_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
EMULATED_ATOMIC(atomicSub, unsigned int, old - value)
EMULATED_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
EMULATED_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
EMULATED_ATOMIC_INTEGERS(atomicAnd, old &value)
EMULATED_ATOMIC_INTEGERS(atomicOr, old | value)
EMULATED_ATOMIC_INTEGERS(atomicXor, old ^ value)
EMULATED_ATOMIC(atomicExch, int, value)
EMULATED_ATOMIC(atomicExch, unsigned int, value)
EMULATED_ATOMIC(atomicExch, unsigned long long, value)
EMULATED_ATOMIC(atomicExch, float, value)
EMULATED_ATOMIC(atomicInc, unsigned int, old >= value ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
#undef EMULATED_ATOMIC_INTEGERS
#undef EMULATED_ATOMIC

#define EMULATED_CAS(TYPE)                                                                         \
    EMULATED_UNWATCHED inline TYPE atomicCAS(TYPE *address, TYPE compare, TYPE value)              \
    {                                                                                              \
        emulated::race_access(address, sizeof *address, emulated::ACCESS_CHANGE);                  \
        const TYPE old = *address;                                                                 \
        if (old == compare) *address = value;                                                      \
        return old;                                                                                \
    }
EMULATED_CAS(int)
EMULATED_CAS(unsigned int)
EMULATED_CAS(unsigned long long)
#undef EMULATED_CAS

/* ---- Loads and stores with a cache hint. ---- */

template <typename T> inline T __ldg(const T *p) { return *p; }
template <typename T> inline T __ldca(const T *p) { return *p; }
template <typename T> inline T __ldcg(const T *p) { return *p; }
template <typename T> inline T __ldcs(const T *p) { return *p; }
template <typename T> inline T __ldlu(const T *p) { return *p; }
template <typename T> inline T __ldcv(const T *p) { return *p; }
template <typename T> inline void __stcg(T *p, T value) { *p = value; }
template <typename T> inline void __stcs(T *p, T value) { *p = value; }
template <typename T> inline void __stwb(T *p, T value) { *p = value; }
template <typename T> inline void __stwt(T *p, T value) { *p = value; }

inline size_t __cvta_generic_to_shared(const void *p) { return emulated::shared_address(p); }

#endif
