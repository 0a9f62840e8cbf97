/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_q.cu - which kernel for dq a step gets. */
#include "backend/cuda/mma/gradient_q.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS, int SIZE> struct gradient_q_start {
    using Shape = gradient_q_shape<T, D, TERMS, SIZE>;
    static_assert(SIZE == 0 || Shape::BYTES <= SHARED_EVERYWHERE<T>, "the second is the last");
    static constexpr bool LAST = Shape::BYTES <= SHARED_EVERYWHERE<T>;
    static int run(const ra__cuda_step &step, void *stream)
    {
        using F = Shape;
        return launch(gradient_q_kernel<F>, step.tiles, 1, F::THREADS, F::BYTES, step,
                      access_of(step, true), stream);
    }
};

} // namespace

int ra__cuda_mma_gradient_q(const struct ra__cuda_step *step, void *stream)
{
    if (step->tiles == 0) return 0;
    return start_kernel<gradient_q_start>(*step, stream);
}

int ra__cuda_mma_gradient_rows(int dtype, int dim, int value_dim)
{
    if (dtype == RA__CUDA_F32) return gradient_q_shape<float, 128, false, 0>::ROWS;
    return class_of(dim, value_dim) <= 128 ? gradient_q_shape<bf16, 128, false, 0>::ROWS
                                           : gradient_q_shape<bf16, 256, false, 0>::ROWS;
}
