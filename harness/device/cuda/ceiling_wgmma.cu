/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling_wgmma.cu - tensor cores by wgmma, for Hopper. */
#include "harness/device/cuda/ceilings.h"

namespace
{

/* A tile is [rows][64] of 16 bits, in lines of 128 bytes as TMA swizzles them: for a rate any order
 * of the numbers will do. */
enum { GROUPS = 2, LINE = 128, A_BYTES = 64 * LINE, B_BYTES = 256 * LINE, DEPTH = 4 };
enum { BYTES = GROUPS * A_BYTES + B_BYTES, THREADS = 128 * GROUPS };

__device__ uint64_t describe(const void *tile)
{
    const uint64_t address = (uint64_t)__cvta_generic_to_shared(tile) >> 4 & 0x3fff;
    return address | 1ull << 16 | (uint64_t)(8 * LINE >> 4) << 32 | 1ull << 62;
}

#define NUMBERS_4(n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3])
#define NUMBERS_16(n) NUMBERS_4(n), NUMBERS_4(n + 4), NUMBERS_4(n + 8), NUMBERS_4(n + 12)
#define NUMBERS_64(n) NUMBERS_16(n), NUMBERS_16(n + 16), NUMBERS_16(n + 32), NUMBERS_16(n + 48)

/* 64 x 16 by 16 x 256. */
__device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        : NUMBERS_64(0), NUMBERS_64(64)
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(THREADS, 1) wgmma_kernel(int64_t rounds, unsigned *sink)
{
    extern __shared__ __align__(1024) unsigned tiles[];
    float d[128] = {};
    for (int i = threadIdx.x; i < BYTES / 4; i += THREADS) tiles[i] = ceiling_pair(i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const char *base = (const char *)tiles;
    const uint64_t b = describe(base), a = describe(base + B_BYTES + threadIdx.x / 128 * A_BYTES);
    for (int64_t round = 0; round < rounds; round++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < DEPTH; k++) multiply(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float all = 0.0f;
    for (int i = 0; i < 128; i++) all += d[i];
    if (all == 0.1234567f) *sink = 1;
}

static_assert(CEILING_WGMMA_FLOPS == GROUPS * DEPTH * 2 * 64 * 256 * 16, "work of a round");

} // namespace

cudaError_t ceiling_launch_wgmma(const struct ceiling_launch *l)
{
    const cudaError_t error = cudaFuncSetAttribute(
        (const void *)wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    return error ? error
                 : ceiling_start(wgmma_kernel, l->blocks, THREADS, BYTES, l->rounds, l->sink);
}
