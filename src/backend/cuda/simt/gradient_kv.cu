/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_kv.cu - which kernel for dk and dv takes which shape. */
#include "backend/cuda/simt/gradient_kv.cuh"
#include "backend/cuda/simt/launch.cuh"
#include "backend/cuda/simt/simt.h"

namespace simt
{

template <class S> int launch_gradient_kv(const ra__cuda_step &step, void *stream)
{
    const int64_t tiles = (int64_t)step.key_tile_count * step.batch * step.kv_heads;
    return launch(gradient_kv_kernel<S>, step, tiles, 1,
                  gradient_kv_memory<S>::bytes(step.terms.any), stream);
}

/* With score terms weights are there twice, which is more than the 48 KiB that a CTA of compute
 * capability 6 can have. */
using wide = shape<4, 16, 2, true, false>;
using wide_local = shape<4, 16, 2, true, false, true>;

static bool has_room_for_terms(void)
{
    return ra__simt_shared_fits(1, gradient_kv_memory<wide>::bytes(true));
}

} // namespace simt

int ra__simt_gradient_keys(void) { return simt::shape<4, 8, 2, true, true>::ROWS; }

int ra__simt_gradient_kv(const struct ra__cuda_step *step, void *stream)
{
    using namespace simt;
    const bool fast = is_fast_backward(*step), small = step->dim <= 64 && step->value_dim <= 64;
    if (step->terms.any && !has_room_for_terms())
        return launch_gradient_kv<wide_local>(*step, stream);
    if (fast && small) return launch_gradient_kv<shape<4, 8, 2, true, true>>(*step, stream);
    if (fast) return launch_gradient_kv<shape<4, 16, 2, true, true>>(*step, stream);
    if (small) return launch_gradient_kv<shape<4, 8, 2, true, false>>(*step, stream);
    return launch_gradient_kv<wide>(*step, stream);
}
