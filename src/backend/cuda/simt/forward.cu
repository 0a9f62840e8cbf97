/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cu - which forward kernel takes which shape.
 *
 * Tiles of 128 rows keep Q in shared memory: the fastest, for f32 up to dims of 128, if two CTAs
 * fit an SM. All others take tiles of 64 rows and stream Q. Tiles are made before tensors are
 * known, so they depend on dtype and dims only. */
#include "backend/cuda/simt/forward.cuh"
#include "backend/cuda/simt/launch.cuh"
#include "backend/cuda/simt/simt.h"

namespace simt
{

struct entry {
    kernel_function function;
    int rows, bytes;
};

template <class S> entry entry_of(int dim)
{
    return entry{ forward_kernel<S>, S::ROWS, forward_memory<S>::bytes(dim) };
}

/* Q stays in shared memory. One kernel is enough for tensors that are not aligned. */
static entry resident(int dim, int value_dim, bool fast)
{
    if (!fast) return entry_of<shape<8, 16, 2, false, false>>(dim);
    if (value_dim <= 32) return entry_of<shape<8, 4, 2, false, true>>(dim);
    if (value_dim <= 64) return entry_of<shape<8, 8, 2, false, true>>(dim);
    if (value_dim <= 96) return entry_of<shape<8, 12, 2, false, true>>(dim);
    return entry_of<shape<8, 16, 2, false, true>>(dim);
}

/* Q is streamed. Values of more than 256 columns take passes of 192 or 256. */
static entry streamed(int dim, int value_dim)
{
    if (value_dim <= 64) return entry_of<shape<4, 8, 3, true, false>>(dim);
    if (value_dim <= 128) return entry_of<shape<4, 16, 2, true, false>>(dim);
    if ((value_dim + 191) / 192 == (value_dim + 255) / 256)
        return entry_of<shape<4, 24, 2, true, false>>(dim);
    return entry_of<shape<4, 32, 2, true, false>>(dim);
}

static entry choose(int dtype, int dim, int value_dim, bool fast)
{
    if (dtype != RA__CUDA_F32 || dim > 128 || value_dim > 128 || dim % 4 || value_dim % 4)
        return streamed(dim, value_dim);
    const entry best = resident(dim, value_dim, fast);
    const int most = resident(dim, value_dim, false).bytes; /* tiles must not depend on `fast` */
    return ra__simt_shared_fits(2, most) ? best : streamed(dim, value_dim);
}

} // namespace simt

int ra__simt_shared_fits(int ctas, int bytes)
{
    int device = 0, block = 0, all = 0, reserved = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) !=
            cudaSuccess)
        return 0;
    if (cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device) !=
        cudaSuccess)
        reserved = 0;
    return bytes <= block && ctas * (bytes + reserved) <= all;
}

int ra__simt_forward_rows(int dtype, int dim, int value_dim)
{
    return simt::choose(dtype, dim, value_dim, true).rows;
}

int ra__simt_forward(const struct ra__cuda_step *step, void *stream)
{
    const simt::entry entry = simt::choose(step->dtype, step->dim, step->value_dim,
                                           simt::is_fast(*step));
    return simt::launch(entry.function, *step, step->tiles, step->ranges, entry.bytes, stream);
}
