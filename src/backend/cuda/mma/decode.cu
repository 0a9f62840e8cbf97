/* SPDX-License-Identifier: Apache-2.0 */
/* decode.cu - which kernel a step with few queries gets. */
#include "backend/cuda/mma/decode.cuh"
#include "backend/cuda/mma/launch.cuh"
#include "backend/cuda/mma/mma.h"

namespace
{

using namespace ra::mma;

/* Two CTAs share an SM, with as many stages as it has room for. */
template <class T, int D> int start(const ra__cuda_step &step, void *stream)
{
    using F = decode_shape<T, D, D <= 64 ? 4 : 3>;
    using Small = decode_shape<T, D, 2>;
    static_assert(Small::BYTES <= SHARED_EVERYWHERE, "the second is the last");
    const access how = access_of(step, false);
    shared_limits limits;
    const cudaError_t error = ask_limits(&limits);
    if (error != cudaSuccess) return (int)error;
    if (have_room(limits, F::BYTES, 2))
        return launch(decode_kernel<F>, step.tiles, step.ranges, F::THREADS, F::BYTES, step, how,
                      stream);
    return launch(decode_kernel<Small>, step.tiles, step.ranges, Small::THREADS, Small::BYTES, step,
                  how, stream);
}

template <class T> int start_by_class(const ra__cuda_step &step, void *stream)
{
    switch (class_of(step.dim, step.value_dim)) {
    case 64: return start<T, 64>(step, stream);
    case 128: return start<T, 128>(step, stream);
    case 256: return start<T, 256>(step, stream);
    default: return (int)cudaErrorInvalidValue;
    }
}

} // namespace

int ra__cuda_mma_decodes(const struct ra__cuda_step *step)
{
    /* At most 16 rows of a KV head: then it has one tile, whatever size tables were made for. */
    return step->ranges > 1 && !needs_terms(*step) &&
           step->split_queries * (step->q_heads / step->kv_heads) <= 16;
}

int ra__cuda_mma_decode(const struct ra__cuda_step *step, void *stream)
{
    return step->dtype == RA__CUDA_BF16 ? start_by_class<bf16>(*step, stream)
                                        : start_by_class<f16>(*step, stream);
}
