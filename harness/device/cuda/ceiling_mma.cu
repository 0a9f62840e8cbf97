/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling_mma.cu - tensor cores by mma.sync, for GPUs from sm_80 on. */
#include "harness/device/cuda/ceilings.h"

namespace
{

enum { WARPS = 8, CHAINS = 8 };

/* c += a b: 16 x 16 by 16 x 8 of bf16, or 16 x 8 by 8 x 8 of TF32. */
template <bool TF32>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2])
{
    if constexpr (TF32)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Each warp adds products to tiles that do not wait for one another. */
template <bool TF32>
__global__ void __launch_bounds__(32 * WARPS) mma_kernel(int64_t rounds, unsigned *sink)
{
    float sums[CHAINS][4] = {};
    unsigned a[4], b[CHAINS][2];
    for (int i = 0; i < 4; i++) a[i] = ceiling_pair(threadIdx.x * 4 + i);
    for (int i = 0; i < 2 * CHAINS; i++) b[i / 2][i % 2] = ceiling_pair(i * 1024 + threadIdx.x);
    for (int64_t round = 0; round < rounds; round++)
#pragma unroll
        for (int i = 0; i < CHAINS; i++) multiply<TF32>(sums[i], a, b[i]);
    float all = 0.0f;
    for (int i = 0; i < 4 * CHAINS; i++) all += sums[i / 4][i % 4];
    if (all == 0.1234567f) *sink = 1;
}

static_assert(CEILING_MMA_FLOPS == WARPS * CHAINS * 2 * 16 * 8 * 16, "work of a round");
static_assert(CEILING_TF32_FLOPS == WARPS * CHAINS * 2 * 16 * 8 * 8, "work of a round");

} // namespace

cudaError_t ceiling_launch_mma(const struct ceiling_launch *l)
{
    return ceiling_start(mma_kernel<false>, l->blocks, 32 * WARPS, 0, l->rounds, l->sink);
}

cudaError_t ceiling_launch_tf32(const struct ceiling_launch *l)
{
    return ceiling_start(mma_kernel<true>, l->blocks, 32 * WARPS, 0, l->rounds, l->sink);
}
