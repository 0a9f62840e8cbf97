/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_q.cu - which kernel for dq a step gets. */
#include "backend/cuda/mma/gradient_q.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS> int start(const ra__cuda_step &step, void *stream)
{
    using F = gradient_q_shape<T, D, TERMS>;
    return launch(gradient_q_kernel<F>, step.tiles, 1, F::THREADS, F::BYTES, step,
                  access_of(step, true), stream);
}

template <class T, int D> int by_terms(const ra__cuda_step &step, void *stream)
{
    return needs_terms(step) ? start<T, D, true>(step, stream) : start<T, D, false>(step, stream);
}

template <class T> int by_dim(const ra__cuda_step &step, void *stream)
{
    switch (class_of(step.dim, step.value_dim)) {
    case 64: return by_terms<T, 64>(step, stream);
    case 128: return by_terms<T, 128>(step, stream);
    case 256: return by_terms<T, 256>(step, stream);
    default: return (int)cudaErrorInvalidValue;
    }
}

} // namespace

int ra__cuda_mma_gradient_q(const struct ra__cuda_step *step, void *stream)
{
    if (step->tiles == 0) return 0;
    return step->dtype == RA__CUDA_BF16 ? by_dim<bf16>(*step, stream) : by_dim<f16>(*step, stream);
}

int ra__cuda_mma_gradient_rows(int dim, int value_dim)
{
    return class_of(dim, value_dim) <= 128 ? gradient_q_shape<bf16, 128, false>::ROWS
                                           : gradient_q_shape<bf16, 256, false>::ROWS;
}
