/* SPDX-License-Identifier: Apache-2.0 */
/* words.cuh - the instructions that CUDA C has no names for, one small function each. Nothing here
 * knows attention. tests/cuda/emulated has the same words for the CPU. */
#ifndef RA__BACKEND_CUDA_MMA_WORDS_CUH
#define RA__BACKEND_CUDA_MMA_WORDS_CUH

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace ra::mma
{

using bf16 = __nv_bfloat16;
using f16 = __half;

/* The address of shared memory, as the instructions below take it. */
__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Asynchronous copies from global to shared memory; zeros where there is nothing to copy. */
__device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_4(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 4 : 0)
                 : "memory");
}
/* Copies since the last call become a group; wait until at most PENDING groups are not done. */
__device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* A barrier of some warps, `threads` threads; id is 1 to 15. */
__device__ __forceinline__ void barrier_of(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The same address, as a value of its own: the compiler derives the next ones from it by constants,
 * instead of from what it was computed from. */
__device__ __forceinline__ float *computed(float *address)
{
    asm("" : "+l"(address));
    return address;
}

/* Atomic additions to global memory that nothing waits for. Two numbers are aligned to 8 bytes. */
__device__ __forceinline__ void add_atomic(float *to, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x));
}
__device__ __forceinline__ void add_atomic(float *to, float low, float high)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(low), "f"(high));
#else
    add_atomic(to, low);
    add_atomic(to + 1, high);
#endif
}

/* c[16 x 8] += a[16 x 16] b[16 x 8] */
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);
#define RA__MULTIPLY_ADD(T, operation)                                                             \
    template <>                                                                                    \
    __device__ __forceinline__ void multiply_add<T>(float(&c)[4], const uint32_t(&a)[4],           \
                                                    uint32_t b0, uint32_t b1)                      \
    {                                                                                              \
        asm("mma.sync.aligned." operation " {%0, %1, %2, %3}, "                                    \
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                        \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                       \
    }
RA__MULTIPLY_ADD(bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
RA__MULTIPLY_ADD(f16, "m16n8k16.row.col.f32.f16.f16.f32")
/* TF32: a[16 x 8] b[8 x 8], and the last 13 bits of both are ignored. */
RA__MULTIPLY_ADD(float, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef RA__MULTIPLY_ADD

/* 2^x within 2 ulp; 0 for -inf, exactly 1 for 0. */
__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers rounded to nearest; the first in the low half. */
template <class T> __device__ __forceinline__ uint32_t pack(float low, float high);
template <> __device__ __forceinline__ uint32_t pack<bf16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
template <> __device__ __forceinline__ uint32_t pack<f16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* And back. */
template <class T> __device__ __forceinline__ float2 unpack(uint32_t both);
template <> __device__ __forceinline__ float2 unpack<bf16>(uint32_t both)
{
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
template <> __device__ __forceinline__ float2 unpack<f16>(uint32_t both)
{
    return __half22float2(*(const __half2 *)&both);
}

/* 0x7FFF in the halves that hold an infinity or NaN, 0 in the others: x 0 + 0. */
template <class T> __device__ __forceinline__ uint32_t not_finite(uint32_t x);
template <> __device__ __forceinline__ uint32_t not_finite<bf16>(uint32_t x)
{
    uint32_t marks;
    asm("fma.rn.bf16x2 %0, %1, %2, %2;" : "=r"(marks) : "r"(x), "r"(0));
    return marks;
}
template <> __device__ __forceinline__ uint32_t not_finite<f16>(uint32_t x)
{
    uint32_t marks;
    asm("fma.rn.f16x2 %0, %1, %2, %2;" : "=r"(marks) : "r"(x), "r"(0));
    return marks;
}

} // namespace ra::mma

#endif
