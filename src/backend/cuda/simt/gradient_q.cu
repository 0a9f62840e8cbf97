/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_q.cu - which kernel for dq takes which shape. */
#include "backend/cuda/simt/gradient_q.cuh"
#include "backend/cuda/simt/launch.cuh"
#include "backend/cuda/simt/simt.h"

namespace simt
{

template <class S> int launch_gradient_q(const ra__cuda_step &step, void *stream)
{
    return launch(gradient_q_kernel<S>, step, step.tiles, 1, gradient_q_memory<S>::BYTES, stream);
}

} // namespace simt

int ra__simt_gradient_rows(void) { return simt::shape<4, 8, 3, true, true>::ROWS; }

int ra__simt_gradient_q(const struct ra__cuda_step *step, void *stream)
{
    using namespace simt;
    const bool fast = is_fast_backward(*step);
    if (fast && step->dim <= 64)
        return launch_gradient_q<shape<4, 8, 3, true, true>>(*step, stream);
    if (fast && step->dim <= 128)
        return launch_gradient_q<shape<4, 16, 2, true, true>>(*step, stream);
    if (step->dim <= 64) return launch_gradient_q<shape<4, 8, 2, true, false>>(*step, stream);
    if (step->dim <= 128) return launch_gradient_q<shape<4, 16, 2, true, false>>(*step, stream);
    return launch_gradient_q<shape<4, 24, 2, true, false>>(*step, stream);
}
