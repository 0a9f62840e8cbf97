/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_any_order.cu - which kernel for all three gradients a step gets. */
#include "backend/cuda/mma/gradient_any_order.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS, int SIZE> struct gradient_any_order_start {
    using Shape = gradient_any_order_shape<T, D, TERMS, SIZE>;
    static_assert(SIZE < 2 || Shape::BYTES <= SHARED_EVERYWHERE<T>, "the third is the last");
    static constexpr bool LAST = Shape::BYTES <= SHARED_EVERYWHERE<T>;
    static_assert(Shape::KEYS * Shape::PER_TILE == gradient_kv_shape<T, D, TERMS, 0>::KEYS,
                  "the same tiles of keys");
    static int run(const ra__cuda_step &step, void *stream)
    {
        using F = Shape;
        const int64_t tiles = (int64_t)step.key_tile_count * step.kv_heads * step.batch;
        return launch(gradient_kv_kernel<gradient_any_order_tile<F>>, tiles * F::PER_TILE, 1,
                      F::THREADS, F::BYTES, step, access_of(step, true), stream);
    }
};

} // namespace

int ra__cuda_mma_gradient_any_order(const struct ra__cuda_step *step, void *stream)
{
    if (step->key_tile_count == 0) return 0;
    return start_half<gradient_any_order_start, false>(*step, stream); /* others have terms */
}
