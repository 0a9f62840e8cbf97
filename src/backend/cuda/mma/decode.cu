/* SPDX-License-Identifier: Apache-2.0 */
/* decode.cu - which kernel a step with few queries gets. */
#include "backend/cuda/mma/decode.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

template <class T, int D, bool TERMS, int SIZE> struct decode_start {
    using Shape = decode_shape<T, D, SIZE>;
    static constexpr bool LAST = SIZE == 1;
    static_assert(SIZE == 0 || Shape::BYTES <= SHARED_EVERYWHERE<T>, "the second is the last");
    static int run(const ra__cuda_step &step, void *stream)
    {
        using F = Shape;
        return launch(decode_kernel<F>, step.tiles, step.ranges, F::THREADS, F::BYTES, step,
                      access_of(step, false), stream);
    }
};

} // namespace

int ra__cuda_mma_decodes(const struct ra__cuda_step *step)
{
    /* At most 16 rows of a KV head: then it has one tile, whatever size tables were made for. */
    return step->dtype != RA__CUDA_F32 && step->ranges > 1 && !needs_terms(*step) &&
           step->split_queries * (step->q_heads / step->kv_heads) <= 16;
}

int ra__cuda_mma_decode(const struct ra__cuda_step *step, void *stream)
{
    return start_half<decode_start, false>(*step, stream);
}
