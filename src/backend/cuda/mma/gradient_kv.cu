/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_kv.cu - which kernel for dk and dv a step gets. */
#include "backend/cuda/mma/gradient_kv.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS, int SIZE> struct gradient_kv_start {
    using Shape = gradient_kv_shape<T, D, TERMS, SIZE>;
    static_assert(SIZE == 0 || Shape::BYTES <= SHARED_EVERYWHERE<T>, "the second is the last");
    static constexpr bool LAST = Shape::BYTES <= SHARED_EVERYWHERE<T>;
    static int run(const ra__cuda_step &step, void *stream)
    {
        using F = Shape;
        const int64_t tiles = (int64_t)step.key_tile_count * step.kv_heads * step.batch;
        return launch(gradient_kv_kernel<gradient_kv_tile<F>>, tiles, 1, F::THREADS, F::BYTES, step,
                      access_of(step, true), stream);
    }
};

} // namespace

int ra__cuda_mma_gradient_kv(const struct ra__cuda_step *step, void *stream)
{
    if (step->key_tile_count == 0) return 0;
    return start_kernel<gradient_kv_start>(*step, stream);
}

int ra__cuda_mma_gradient_keys(int dtype, int dim, int value_dim)
{
    if (dtype == RA__CUDA_F32) return gradient_kv_shape<float, 128, false, 0>::KEYS;
    switch (class_of(dim, value_dim)) {
    case 64: return gradient_kv_shape<bf16, 64, false, 0>::KEYS;
    case 128: return gradient_kv_shape<bf16, 128, false, 0>::KEYS;
    default: return gradient_kv_shape<bf16, 256, false, 0>::KEYS;
    }
}
