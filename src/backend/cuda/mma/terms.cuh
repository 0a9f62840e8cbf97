/* SPDX-License-Identifier: Apache-2.0 */
/* terms.cuh - score terms on fragments of a warp. A score with all terms is a lot of code, and a
 * fragment must not be indexed by a variable: so the loop works on the first column of fragments
 * only and rotates the others into its place. */
#ifndef RA__BACKEND_CUDA_MMA_TERMS_CUH
#define RA__BACKEND_CUDA_MMA_TERMS_CUH

#include "backend/cuda/mma/fragments.cuh"
#include "backend/cuda/score.cuh"

namespace ra::mma
{

/* Fragments (i, 0) to the end, all others one down; N times is no change. */
template <int M, int N> __device__ __forceinline__ void rotate(float (&c)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float first = c[i][0][e];
#pragma unroll
            for (int j = 0; j + 1 < N; j++) c[i][j][e] = c[i][j + 1][e];
            c[i][N - 1][e] = first;
        }
}

/* Does what is added to a score hide the key at an index from the query? */
__device__ __forceinline__ bool hides(const ra__cuda_step &step, const query &q, int64_t index)
{
    return addend(step, q, original(step.terms, index)) * LOG2_E == -INFINITY;
}

} // namespace ra::mma

#endif
