/* SPDX-License-Identifier: Apache-2.0 */
/* backward.cu - the backward kernels that are built, and which of them a problem gets.
 *
 * A row per kernel, in backward.list; the measurements that chose it are in docs/GPU.md. */
#include "backend/cuda/sm90/launch_backward.cuh"

namespace
{

struct kernel {
    int dim, dtype, deterministic;
    ra__sm90_shape (*shape)(void);
    int (*workers)(void);
    int (*launch)(const ra__sm90_backward &args, cudaStream_t stream);
};

template <class F> struct kernel kernel_of(int dtype)
{
    return { F::DIM,
             dtype,
             F::ORDERED,
             sm90::backward_shape_of<F>,
             sm90::backward_workers_of<F>,
             sm90::launch_backward<F> };
}

const struct kernel kernels[] = {
#define ROW(dim, queries, lag, ordered, staging)                                                   \
    kernel_of<sm90::Backward<__nv_bfloat16, dim, queries, lag, ordered, staging>>(RA__SM90_BF16),  \
        kernel_of<sm90::Backward<__half, dim, queries, lag, ordered, staging>>(RA__SM90_F16),
#include "backend/cuda/sm90/backward.list"
#undef ROW
};

const struct kernel *find(int dim, int dtype, int deterministic)
{
    for (const struct kernel &row : kernels)
        if (row.dim == dim && row.dtype == dtype && row.deterministic == !!deterministic)
            return &row;
    return NULL;
}

} // namespace

extern "C" {

int ra__sm90_backward_shape(int dim, int dtype, int deterministic, struct ra__sm90_shape *shape,
                            int *workers)
{
    const struct kernel *kernel = find(dim, dtype, deterministic);
    if (!kernel) return cudaErrorNotSupported;
    *shape = kernel->shape();
    *workers = kernel->workers();
    return *workers > 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

int ra__sm90_backward_launch(const struct ra__sm90_backward *args, int dim, int dtype,
                             int deterministic, void *stream)
{
    const struct kernel *kernel = find(dim, dtype, deterministic);
    return kernel ? kernel->launch(*args, (cudaStream_t)stream) : (int)cudaErrorNotSupported;
}
}
