/* SPDX-License-Identifier: Apache-2.0 */
/* backward_ends.cuh - the small kernels before and after the backward kernel. */
#ifndef RA__SM90_BACKWARD_ENDS_CUH
#define RA__SM90_BACKWARD_ENDS_CUH

#include "backend/cuda/sm90/backward_shape.cuh"

namespace sm90
{

/* The dot product of eight numbers of a 16-bit type. */
template <class T> DEVICE float dot8(uint4 a, uint4 b)
{
    const T *x = (const T *)&a, *y = (const T *)&b;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf((float)x[i], (float)y[i], sum);
    return sum;
}

/* lse2 in units of log2, +inf for rows without gradient; delta = rowsum(dout out); dq_sum = 0. A
 * row is DIM / 8 lanes; rows up to padded_rows are written. */
template <class F>
__global__ void __launch_bounds__(256) prepare(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    enum { LANES = F::DIM / 8 };
    const int64_t at = (int64_t)blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const ra__sm90_tensor &o = args.out, &g = args.dout;
    if (at >= (int64_t)o.batch * o.heads * args.padded_rows) return;
    const int row = at % args.padded_rows, head = at / args.padded_rows % o.heads;
    const int batch = at / args.padded_rows / o.heads;
    float4 *sum = (float4 *)(args.dq_sum + at * F::DIM) + 2 * lane;
    sum[0] = sum[1] = make_float4(0, 0, 0, 0);
    float delta = 0;
    if (row < o.rows) {
        const T *x = (const T *)o.data + batch * o.batch_stride + head * o.head_stride +
                     row * o.row_stride + 8 * lane;
        const T *y = (const T *)g.data + batch * g.batch_stride + head * g.head_stride +
                     row * g.row_stride + 8 * lane;
        delta = dot8<T>(__ldg((const uint4 *)x), __ldg((const uint4 *)y));
    }
#pragma unroll
    for (int i = LANES / 2; i; i >>= 1) delta += __shfl_xor_sync(ALL_LANES, delta, i);
    if (lane) return;
    if (F::ORDERED && row % F::QUERIES == 0)
        *(int2 *)(args.turns + at / F::QUERIES * 2) = make_int2(0, 0);
    float lse = INFINITY;
    if (row < o.rows)
        lse = args.lse.data[batch * args.lse.batch_stride + head * args.lse.head_stride +
                            row * args.lse.row_stride] *
              1.4426950408889634f;
    args.lse2[at] = lse == -INFINITY ? INFINITY : lse;
    args.delta[at] = delta;
}

/* Of dq in shared memory: neighbours are in other banks. */
template <class F> using padded_row = typename F::type[F::DIM + 8];

/* dq out of dq_sum: one block of queries per CTA, put into rows in shared memory. */
template <class F>
__global__ void __launch_bounds__(256) finish(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    padded_row<F> *rows = (padded_row<F> *)ra_shared; /* [QUERIES] */
    const int per_head = args.padded_rows / F::QUERIES, block = blockIdx.x % per_head;
    const int head = blockIdx.x / per_head % args.dq.heads,
              batch = blockIdx.x / per_head / args.dq.heads;
    const int half = threadIdx.x >> 7, thread = threadIdx.x & 127, lane = thread & 31;
#pragma unroll
    for (int walk = 0; walk < F::WALKS; walk++) {
        const float4 *from = (const float4 *)(args.dq_sum +
                                              (((size_t)blockIdx.x * F::WALKS + walk) * 2 + half) *
                                                  F::HALF) +
                             thread;
#pragma unroll
        for (int i = 0; i < F::HALF / 512; i++) {
            const float4 x = __ldcs(from + i * 128);
            const int column = 16 * (thread >> 5) + (lane >> 2) +
                               (F::PANELS > 1 ? 64 * (2 * walk + half) : 0);
            const int row = 8 * i + 2 * (lane & 3) + (F::PANELS > 1 ? 0 : half * (F::QUERIES / 2));
            rows[row][column] = (T)(x.x * args.scale);
            rows[row + 1][column] = (T)(x.y * args.scale);
            rows[row][column + 8] = (T)(x.z * args.scale);
            rows[row + 1][column + 8] = (T)(x.w * args.scale);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < F::QUERIES * F::DIM / 8; i += 256) {
        const int row = block * F::QUERIES + i / (F::DIM / 8), column = i % (F::DIM / 8) * 8;
        if (row >= args.dq.rows) continue;
        T *to = (T *)args.dq.data + batch * args.dq.batch_stride + head * args.dq.head_stride +
                row * args.dq.row_stride + column;
        *(uint4 *)to = *(const uint4 *)&rows[i / (F::DIM / 8)][column];
    }
}

/* dk and dv of items whose queries were shared out: a warp per key. */
template <class F>
__global__ void __launch_bounds__(256) merge_keys(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    const int task = blockIdx.x * 8 + (threadIdx.x >> 5), key = task % F::KEYS, lane = lane_of();
    const ra__sm90_merge merge = args.merges[task / F::KEYS];
    if (key >= merge.q_count) return;
    for (int column = 2 * lane; column < 2 * F::DIM; column += 64) {
        float2 sum = make_float2(0, 0);
        for (int i = 0; i < merge.part_count; i++) {
            const float *from = args.parts + (size_t)(merge.first_part + i) * F::PART_FLOATS;
            const float2 x = *(const float2 *)(from + key * 2 * F::DIM + column);
            sum.x += x.x;
            sum.y += x.y;
        }
        const ra__sm90_tensor &out = column < F::DIM ? args.dk : args.dv;
        const ra__sm90_column &sums = column < F::DIM ? args.dk_sum : args.dv_sum;
        const int kv_head = merge.head / (args.q.heads / out.heads), row = merge.q_row + key;
        float2 *travelling = (float2 *)(sums.data + merge.batch * sums.batch_stride +
                                        kv_head * sums.head_stride + row * sums.row_stride +
                                        column % F::DIM);
        const int flags = merge.flags | args.item_flags;
        if (!(flags & RA__SM90_FIRST)) sum.x += travelling->x, sum.y += travelling->y;
        T *to = (T *)out.data + merge.batch * out.batch_stride + kv_head * out.head_stride +
                row * out.row_stride + column % F::DIM;
        if (flags & RA__SM90_LAST) *(uint32_t *)to = pack<T>(sum.x, sum.y);
        else *travelling = sum;
    }
}

} // namespace sm90
#endif
