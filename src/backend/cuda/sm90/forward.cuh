/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cuh - exact attention forward for Hopper (sm_90a): bf16 or f16 in, f32 sums.
 *
 * A cluster of 1 or 2 CTAs takes the items of its queue (sm90.h) one after the other. In a CTA, two
 * warps of one warpgroup feed the copy engine: one brings blocks of keys and values into two rings,
 * one brings queries. The other warpgroups, the consumers, own 64 query rows each and keep the
 * running softmax (m, l, o) in registers. In a cluster every block is loaded once and sent to both
 * CTAs.
 *
 * Consumers read no lists. With each block of keys comes an entry: the band of the block, and for
 * every consumer what the NEXT block is to it (enum code), so that its word is there before it is
 * needed. One code path then serves every pattern; only blocks that some row does not see in full
 * pay for masks, and a consumer skips blocks that none of its rows sees.
 *
 * Consumers issue products in turns, so that the softmax of one runs under the products of others.
 * All consumers of a CTA agree on which blocks all of them see (codes without ALONE), and each
 * takes one turn in each of these: no consumer waits for a turn that is not passed on. In other
 * blocks there are no turns, and a consumer may be ahead of the others by as many blocks as the
 * rings have.
 *
 * With JOINS, the last values of an item are issued with the first scores of the next one, and its
 * rows are written after that. So there are two slots of queries, and four places for what is said
 * about items: a place is written again when the consumer has released the queries of the item two
 * later, which it does after the item of this place has ended.
 *
 * Softmax without maxima: a row's reference m is its largest score in the first block that it sees.
 * Later blocks take exp2(x - m) as they come. P, l and o share the exponent range of f32 (f16: see
 * LIMIT), so a reference that is too low costs no accuracy. When the weights of a block pass LIMIT,
 * all is scaled down by a power of two. A jump so large that a weight becomes infinite is seen at
 * the end of the item (l or o is not finite): these rows are not written, and when the queue is
 * done the cluster replays such items with maxima taken in every block. So the result is exact for
 * every input; only its speed depends on the scores. Rows that are not finite even then may have
 * been spoilt by values that are hidden from them: see repair.cuh.
 *
 * State out is normalised to 1 <= l < 2 by powers of two, so m is within 1 + log2(keys) of the
 * largest score. Rows without keys give out = 0, lse = -inf. */
#ifndef RA__SM90_FORWARD_CUH
#define RA__SM90_FORWARD_CUH

#include "backend/cuda/sm90/forward_consumer.cuh"
#include "backend/cuda/sm90/forward_producer.cuh"

namespace sm90
{

template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    forward(const __grid_constant__ Maps<F> maps, const __grid_constant__ ra__sm90_forward args,
            const __grid_constant__ struct factors by)
{
    const Shared<F> shared = { shared_address(ra_shared) };
    const int group = __shfl_sync(ALL_LANES, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) shared_init<F>(shared);
    everyone_sync<F::CLUSTER>();
    kernel_follow();
    if (group == 0) {
        if constexpr (F::CONSUMERS > 1) registers_give<F::PRODUCER_REGISTERS>();
        produce<F>(args, shared, maps);
    } else {
        if constexpr (F::CONSUMERS > 1) registers_take<F::CONSUMER_REGISTERS>();
        consume<F>(args, by, shared, cluster_rank<F::CLUSTER>(), group - 1);
    }
}

/* Puts the parts of a tile together: eight numbers of a row for each lane. */
template <class F> constexpr int merge_lanes = F::DIM / 8; /* of a row */

template <class F>
__global__ void __launch_bounds__(256) merge(const __grid_constant__ ra__sm90_forward args)
{
    typedef typename F::type T;
    const int lanes = merge_lanes<F>, rows = F::ROWS * F::CLUSTER;
    const int task = (blockIdx.x * 256 + threadIdx.x) / lanes, row = task % rows;
    const int lane = threadIdx.x % lanes;
    const ra__sm90_merge merge = args.merges[task / rows]; /* the kernel before did not write it */
    kernel_follow();
    if (row >= merge.q_count) return;
    const struct place first = part_place<F>(args, merge.first_part, row);
    float m = -INFINITY, l = 0, o[8] = {};
    for (int i = 0; i < merge.part_count; i++) {
        const size_t at = (size_t)i * F::PART_FLOATS;
        const float4 *from = (const float4 *)(first.acc + at + 8 * lane);
        const float4 a = from[0], b = from[1];
        const float part_m = first.m[at], part_l = first.l[at];
        const float x[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
        const float top = fmaxf(m, part_m), safe = top == -INFINITY ? 0.f : top;
        const float before = exp2f(m - safe), f = exp2f(part_m - safe);
        m = top;
        l = before * l + f * part_l;
        for (int j = 0; j < 8; j++) o[j] = before * o[j] + f * x[j];
    }
    if (!(merge.flags & RA__SM90_LAST)) {
        const struct place to = state_place<F>(args, merge.flags, merge.batch, merge.head,
                                               merge.q_row + row);
        float4 *acc = (float4 *)(to.acc + 8 * lane);
        acc[0] = make_float4(o[0], o[1], o[2], o[3]);
        acc[1] = make_float4(o[4], o[5], o[6], o[7]);
        if (lane == 0) *to.m = m, *to.l = l;
        return;
    }
    float f = 1;
    if constexpr (F::TERMS & RA__SM90_SINKS)
        if (args.terms.sinks) fold_sink(args.terms.sinks[merge.head] * LOG2_E, m, l, f);
    const struct ra__sm90_view view = view_in<F>(args, merge.flags);
    const int q_row = view.first + (merge.q_row + row) * view.step;
    const ra__sm90_tensor &out = args.out;
    T *to = (T *)out.data + merge.batch * out.batch_stride + merge.head * out.head_stride +
            q_row * out.row_stride;
    f = l > 0 ? f / l : l;
    for (int j = 0; j < 4; j += 2) /* pairs j / 2 and j / 2 + 2 are neighbours */
        *(uint2 *)(to + column_at(8 * lane + j)) = make_uint2(
            pack<T>(o[j] * f, o[j + 1] * f), pack<T>(o[j + 4] * f, o[j + 5] * f));
    if (lane == 0) store_lse(args.lse, merge.batch, merge.head, q_row, m, l);
}

} // namespace sm90
#endif
