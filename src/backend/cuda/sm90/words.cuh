/* SPDX-License-Identifier: Apache-2.0 */
/* words.cuh - the instructions of sm_90a that CUDA C++ has no word for, one function each.
 *
 * Knows nothing of attention. Shared memory is addressed by 32-bit numbers (`shared_address`).
 * Everything is inlined by force: ptxas serialises wgmma across a call. */
#ifndef RA__SM90_WORDS_CUH
#define RA__SM90_WORDS_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__

constexpr unsigned ALL_LANES = 0xFFFFFFFF;

DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* The same value in every lane, in a form that the compiler knows to be the same. What is read from
 * memory and then branched on must go through this, even far from the main loop: after a branch
 * that might diverge, ptxas keeps ring positions and matrices in vector registers, and every
 * wgmma pays for moving them. */
DEVICE int uniform(int x) { return __reduce_max_sync(ALL_LANES, x); }

/* ---- mbarriers ---- */

DEVICE void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

DEVICE void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive, and expect so many bytes from the copy engine before the phase ends. */
DEVICE void barrier_expect(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* At the same barrier of CTA `rank` of the cluster. The default scope is enough: what the arrival
 * announces is that wgmma has read, and the reader waited for that. */
DEVICE void barrier_arrive_at(uint32_t barrier, int rank)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

DEVICE void barrier_wait(uint32_t barrier, uint32_t phase)
{
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
                 "r"(phase)
                 : "memory");
}

/* ---- named barriers, clusters, registers ---- */

DEVICE void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

DEVICE void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* All threads of the cluster, or of the CTA where it is alone; lanes of a warp may come apart. */
template <int CLUSTER> DEVICE void everyone_sync(void)
{
    if constexpr (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else asm volatile("barrier.sync 0;" ::: "memory");
}

template <int CLUSTER> DEVICE int cluster_rank(void)
{
    int rank = 0;
    if constexpr (CLUSTER > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

template <int REGISTERS> DEVICE void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> DEVICE void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* The number of the thread in its warpgroup, read anew at each use: it costs less than a register
 * that lives through the main loop. */
DEVICE int thread_in_group(void)
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread & 127;
}

/* ---- shared memory ---- */

DEVICE void shared_store(uint32_t address, int4 x)
{
    asm volatile("st.shared.v4.s32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}

DEVICE int4 shared_load4(uint32_t address)
{
    int4 x;
    asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

DEVICE int shared_load(uint32_t address)
{
    int x;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

/* One word of the shared memory of CTA `rank`. */
DEVICE void shared_store_at(uint32_t address, int rank, int x)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "st.shared::cluster.s32 [remote], %2;\n}" ::"r"(address),
                 "r"(rank), "r"(x)
                 : "memory");
}

/* Four 8x8 matrices of 16-bit numbers, the register operand A of wgmma. */
DEVICE void load_matrices(uint32_t *to, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* Four 8x8 matrices out of registers; the same, transposed. */
DEVICE void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
DEVICE void store_matrices_transposed(uint32_t address, const uint32_t *from)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
        : "memory");
}

DEVICE float2 shared_load2(uint32_t address)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
    return x;
}

DEVICE void shared_store4(uint32_t address, const float *x)
{
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}

/* ---- the copy engine (TMA) ---- */

struct box {
    int column, row, panel, head, batch; /* where the box starts, in the order of the map */
};

DEVICE void map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map));
}

DEVICE void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, struct box at)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6,%7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(at.column), "r"(at.row), "r"(at.panel), "r"(at.head),
                 "r"(at.batch)
                 : "memory");
}

/* To the same address of every CTA in `ranks`, and to its barrier. */
DEVICE void copy_in_all(uint32_t to, const CUtensorMap *map, uint32_t barrier, struct box at,
                        uint16_t ranks)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3,%4,%5,%6,%7}], [%2], %8;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(at.column), "r"(at.row), "r"(at.panel), "r"(at.head),
                 "r"(at.batch), "h"(ranks)
                 : "memory");
}

/* Plain stretches of memory, 16-byte multiples. */
DEVICE void copy_in_plain(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* 16 bytes to memory where they are wanted: by a predicate, not by a branch. And always at once: an
 * assignment may be made into four stores. */
DEVICE void memory_store(void *to, int4 x, bool wanted)
{
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %5, 0;\n"
                 "@wanted st.global.cg.v4.s32 [%0], {%1,%2,%3,%4};\n}" ::"l"(to),
                 "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"((int)wanted)
                 : "memory");
}

/* The line of memory at `from`, towards the L2 cache. */
DEVICE void memory_prefetch(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/* Kernels of one stream that follow one another (programmatic dependent launch): this one waits
 * until the one before it has ended, and lets the next one start. In this order, since the next one
 * may be a kernel of the caller that reads, before it waits, what kernels before this one wrote. */
DEVICE void kernel_follow(void)
{
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
}

/* f32 numbers in shared memory added to memory, which is asked to stay in the L2 cache. */
DEVICE void add_out(float *to, uint32_t from, int bytes)
{
    const uint64_t evict_last = 0x14F0000000000000;
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 "
                 "[%0], [%1], %2, %3;\ncp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes), "l"(evict_last)
                 : "memory");
}

/* The same numbers in place of what is there. */
DEVICE void set_out(float *to, uint32_t from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

DEVICE void add_out_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
DEVICE void add_out_done(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* A number in memory that clusters wait for: until it is `value`; and one more, for the next. What
 * the copy engine wrote before `turn_pass` is there for whoever has waited. */
DEVICE void turn_wait(const int *turn, int value)
{
    int found;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(turn) : "memory");
    } while (found != value);
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

DEVICE void turn_pass(int *turn)
{
    asm volatile("fence.proxy.async.global;\nred.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn)
                 : "memory");
}

/* What this thread wrote to shared memory is there for wgmma and the copy engine. */
DEVICE void shared_publish(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- arithmetic ---- */

/* The same number, of which the compiler knows nothing more: multiples of it are sums, instead of
 * products that are made of its parts anew. */
DEVICE int64_t opaque(int64_t x)
{
    asm("" : "+l"(x));
    return x;
}

DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers of a 16-bit type, the first in the low half. */
template <class T> DEVICE uint32_t pack(float low, float high);
template <> DEVICE uint32_t pack<__nv_bfloat16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
template <> DEVICE uint32_t pack<__half>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

#endif
