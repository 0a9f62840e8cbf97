/* SPDX-License-Identifier: Apache-2.0 */
/* tile.cuh - what kernels share: places in rings, and rows of a warpgroup's accumulators written to
 * memory. */
#ifndef RA__SM90_TILE_CUH
#define RA__SM90_TILE_CUH

#include "backend/cuda/sm90/sm90.h"
#include "backend/cuda/sm90/wgmma.cuh"

extern __shared__ __align__(1024) unsigned char ra_shared[];

namespace sm90
{

/* A place in a ring; `lap` is the parity of the times it went round. */
struct ring {
    int slot;
    uint32_t lap;
};

template <int STAGES> DEVICE void ring_step(struct ring &at)
{
    if (++at.slot == STAGES) at.slot = 0, at.lap ^= 1;
}

DEVICE int lane_of(void) { return threadIdx.x & 31; }

/* Lanes of a warp that arrive at an mbarrier when the warp has read what a slot held. One is
 * enough: __syncwarp orders the reads of the others before it. racecheck of compute-sanitizer does
 * not follow that, so kernels for it let every lane arrive (docs/GPU.md). */
#ifdef RA__SM90_EVERY_LANE
constexpr int WARP_ARRIVALS = 32;
#else
constexpr int WARP_ARRIVALS = 1;
#endif

/* Waits for the warp; true for the lanes that then arrive. */
DEVICE bool warp_may_arrive(void)
{
    __syncwarp();
    return WARP_ARRIVALS == 32 || (thread_in_group() & 31) == 0;
}

DEVICE void warp_arrive(uint32_t barrier)
{
    if (warp_may_arrive()) barrier_arrive(barrier);
}

/* At that barrier of every CTA of the cluster. */
template <int CTAS> DEVICE void warp_arrive_at_all(uint32_t barrier)
{
    const int lane = thread_in_group() & 31;
    __syncwarp();
    if constexpr (WARP_ARRIVALS == 1) {
        if (lane < CTAS) barrier_arrive_at(barrier, lane);
    } else {
        for (int i = 0; i < CTAS; i++) barrier_arrive_at(barrier, i);
    }
}

/* For a warp of which one lane then starts what ends the phase after this one: a lane that lags
 * behind would miss its phase, and wait for the next one of this parity. */
DEVICE void warp_wait(uint32_t barrier, uint32_t phase)
{
    barrier_wait(barrier, phase);
    __syncwarp();
}

/* Where a row of a run is: its view, and the row in it. */
template <class F> DEVICE int view_of(int row)
{
    return F::VIEWS > 1 ? row >> RA__SM90_RUN_VIEW_SHIFT : 0;
}
template <class F> DEVICE int row_of(int row)
{
    return F::VIEWS > 1 ? row & RA__SM90_VIEW_ROWS : row;
}

/* Lane i of a quad gives words[j] to lane j, and gets its words[i]. */
DEVICE int4 quad_transpose(int4 x)
{
    const int lane = threadIdx.x & 3;
    int a = __shfl_xor_sync(ALL_LANES, lane & 1 ? x.x : x.y, 1);
    int b = __shfl_xor_sync(ALL_LANES, lane & 1 ? x.z : x.w, 1);
    if (lane & 1) x.x = a, x.z = b;
    else x.y = a, x.w = b;
    a = __shfl_xor_sync(ALL_LANES, lane & 2 ? x.x : x.z, 2);
    b = __shfl_xor_sync(ALL_LANES, lane & 2 ? x.y : x.w, 2);
    if (lane & 2) x.x = a, x.y = b;
    else x.z = a, x.w = b;
    return x;
}

/* Two rows per thread of a 64 x 2 N tile of sums, each times its factor, in 16-bit numbers, 16
 * bytes per lane. `row` is the thread's first one in the tensor; of its rows and the one 8 further
 * on only those before `rows_left` are written. Not AT_ONCE, the compiler may write 16 bytes in
 * four parts, which takes fewer registers. */
template <class T, bool AT_ONCE = true, int N>
DEVICE void store_rows(const float (&x)[N], float f0, float f1, const ra__sm90_tensor &to,
                       int batch, int head, int row, int rows_left)
{
    T *at = (T *)to.data + batch * to.batch_stride + head * to.head_stride + row * to.row_stride +
            8 * (thread_in_group() & 3);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool wanted = 8 * i < rows_left;
        const float f = i ? f1 : f0;
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
            const float *o = x + 4 * j + 2 * i;
            const int4 words = quad_transpose(
                make_int4(pack<T>(o[0] * f, o[1] * f), pack<T>(o[4] * f, o[5] * f),
                          pack<T>(o[8] * f, o[9] * f), pack<T>(o[12] * f, o[13] * f)));
            T *here = at + 8 * i * to.row_stride + 8 * j;
            if constexpr (AT_ONCE) memory_store(here, words, wanted);
            else if (wanted) *(int4 *)here = words;
        }
    }
}

/* The same of 64 columns by way of 2 KB of shared memory of the warp: with half of the
 * instructions, and whole rows leave. `to`: where row lane / 8 of the warp goes, 8 columns for each
 * lane; every fourth row is `step` numbers further on; rows before `rows` are written. */
template <class T>
DEVICE void store_rows_staged(const float (&x)[32], float f0, float f1, T *to, int64_t step,
                              int rows, uint32_t staging)
{
    /* Of a row's 16-byte pieces, number i is at place i ^ (row % 8). */
    const int lane = lane_of(), row = lane & 15, above = lane >> 3;
    const uint32_t into = staging + row * 128 + (((lane >> 4) ^ (row & 7)) << 4);
    const uint32_t from = staging + above * 128 + (((lane & 7) ^ above) << 4);
    int4 words[4];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const float *o = x + 4 * j;
        store_matrices(into ^ j << 4, pack<T>(o[0] * f0, o[1] * f0), pack<T>(o[2] * f1, o[3] * f1),
                       pack<T>(o[4] * f0, o[5] * f0), pack<T>(o[6] * f1, o[7] * f1));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = shared_load4((from ^ (i & 1) << 6) + i * 512);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++, to += step) memory_store(to, words[i], 4 * i + above < rows);
}

} // namespace sm90
#endif
