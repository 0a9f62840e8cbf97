/* SPDX-License-Identifier: Apache-2.0 */
/* pass.cuh - a product of a whole block, chunk by chunk, while the chunks after it arrive. */
#ifndef RA__CUDA_SIMT_PASS_CUH
#define RA__CUDA_SIMT_PASS_CUH

#include "backend/cuda/simt/feed.cuh"
#include "backend/cuda/simt/product.cuh"

namespace simt
{

/* The first chunk, which is in the current stage, and the chunk that follows the last. */
struct product {
    feed first, after;
};

/* The very first chunk of all, before any product. */
template <class S>
__device__ inline void first_chunk(feeds<S> &from, float factor, const stages<S> &stages)
{
    const feed first = { SCORES, 0, 0 };
    chunk_registers<S> raw;
    begin_chunk(from, first, 0, raw);
    end_chunk(from, first, factor, raw, stages.current());
    __syncthreads();
}

/* x = rows columns^T over `chunks` chunks of dims. */
template <class S>
__device__ inline void multiply_all(feeds<S> &from, product which, int chunks, int first_column,
                                    float factor, stages<S> &stages, float (&x)[S::MR][8])
{
    clear(x);
#pragma unroll 1
    for (int c = 0; c < chunks; c++) {
        chunk_registers<S> raw;
        feed next = which.after;
        if (c + 1 < chunks) next = feed{ which.first.kind, c + 1, which.first.parity };
        begin_chunk(from, next, first_column, raw);
        multiply<S>(stages.rows(c), stages.current(), x);
        end_chunk(from, next, factor, raw, stages.other());
        stages.advance();
    }
}

/* sums += weights tokens over the columns of a block. `masked`: some weight may be hidden. */
template <class S>
__device__ inline void accumulate_all(feeds<S> &from, product which, int first_column, float factor,
                                      bool masked, const float *weights, stages<S> &stages,
                                      float (&sums)[S::MR][S::VC])
{
#pragma unroll 1
    for (int c = 0; c < COLUMNS / S::TOKENS; c++) {
        chunk_registers<S> raw;
        feed next = which.after;
        if (c + 1 < COLUMNS / S::TOKENS) next = feed{ which.first.kind, c + 1, which.first.parity };
        begin_chunk(from, next, first_column, raw);
        accumulate<S>(weights, c * S::TOKENS, stages.current(),
                      masked && is_raised(from.not_finite), sums);
        end_chunk(from, next, factor, raw, stages.other());
        stages.advance();
    }
}

} // namespace simt

#endif
