/* SPDX-License-Identifier: Apache-2.0 */
/* backward.cuh - exact attention backward for Hopper (sm_90a): bf16 or f16 in, f32 sums.
 *
 * A CTA takes items of 128 keys (sm90.h, struct ra__sm90_backward) and walks over
 * blocks of queries that see them; keys and values stay in shared memory, dk and dv in registers.
 * Two consumer warpgroups own 64 keys each. Scores are computed transposed (keys x queries), so
 * that P and dS come out of the softmax in the form in which products with dO and Q take them from
 * registers. dS also goes to shared memory, where both consumers read it for their half of dq. dq
 * is written to a staging buffer and added to memory in f32 by the copy engine; two warps of the
 * producer warpgroup see to that.
 *
 * Blocks of queries are aligned to multiples of QUERIES, so that a block of dq is one stretch of
 * dq_sum, in the order of the accumulators: prepare() clears it, finish() brings it into rows.
 *
 * Adds to dq come in any order, and the last bits of dq with them; ORDERED kernels add in the order
 * that order.c has worked out.
 *
 * With LAG, dq of a block is computed one block later: it does not wait for the other consumer. */
#ifndef RA__SM90_BACKWARD_CUH
#define RA__SM90_BACKWARD_CUH

#include "backend/cuda/sm90/backward_consumer.cuh"
#include "backend/cuda/sm90/backward_ends.cuh"

namespace sm90
{

template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    backward(const __grid_constant__ BackwardMaps<F> maps,
             const __grid_constant__ ra__sm90_backward args,
             const __grid_constant__ struct factors by)
{
    const BackwardShared<F> shared = { shared_address(ra_shared) };
    const int group = __shfl_sync(ALL_LANES, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) backward_init<F>(shared);
    __syncthreads();
    if (group == 0) {
        registers_give<F::PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(ALL_LANES, threadIdx.x >> 5, 0);
        if (warp == 0) {
            BackwardLoader<F> loader = { args, shared, maps, 0, 0 };
            loader.run();
        } else if (warp < 3) {
            DqAdder<F> adder = { args, shared, warp - 1, 0, 0, NULL };
            adder.run();
        }
    } else {
        registers_take<F::CONSUMER_REGISTERS>();
        BackwardConsumer<F> consumer = { args, by, shared, group - 1, 0, 0 };
        consumer.run();
    }
}

} // namespace sm90
#endif
