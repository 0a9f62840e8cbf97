/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cu - which forward kernel a step gets. */
#include "backend/cuda/mma/forward.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS, int SIZE> struct forward_start {
    using Shape = forward_shape<T, D, TERMS, SIZE>;
    static constexpr bool LAST = !Shape::LARGE && Shape::BYTES <= SHARED_EVERYWHERE<T>;
    static_assert(SIZE == 0 || LAST, "the second is the last");
    static int run(const ra__cuda_step &step, void *stream)
    {
        using F = Shape;
        return launch(forward_kernel<F>, step.tiles, step.ranges, F::THREADS, F::BYTES, step,
                      access_of(step, false), stream);
    }
};

} // namespace

int ra__cuda_mma_forward(const struct ra__cuda_step *step, void *stream)
{
    if (step->tiles == 0) return 0;
    if (ra__cuda_mma_decodes(step)) return ra__cuda_mma_decode(step, stream);
    return start_kernel<forward_start>(*step, stream);
}

int ra__cuda_mma_forward_rows(int dtype, int dim, int value_dim)
{
    if (dtype == RA__CUDA_F32) return forward_shape<float, 128, false, 0>::ROWS;
    return class_of(dim, value_dim) <= 128 ? forward_shape<bf16, 128, false, 0>::ROWS
                                           : forward_shape<bf16, 256, false, 0>::ROWS;
}
