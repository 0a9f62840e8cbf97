/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cu - the forward kernels that are built, and which of them a problem gets.
 *
 * A row per kernel, in forward.list; the measurements that chose it are in docs/GPU.md. */
#include "backend/cuda/sm90/launch.cuh"

namespace
{

struct kernel {
    int dim, dtype;
    int rows; /* the fewest queries of a head that it pays for */
    ra__sm90_shape (*shape)(void);
    int (*workers)(void);
    int (*launch)(const ra__sm90_forward &args, cudaStream_t stream);
};

template <class F> struct kernel kernel_of(int dtype, int rows)
{
    return { F::DIM, dtype, rows, sm90::shape_of<F>, sm90::workers_of<F>, sm90::launch<F> };
}

/* The first row that fits is taken. */
const struct kernel kernels[] = {
#define ROW(dim, consumers, keys, stages, cluster, turns, q_registers, rows)                       \
    kernel_of<                                                                                     \
        sm90::Forward<__nv_bfloat16, dim, consumers, keys, stages, cluster, turns, q_registers>>(  \
        RA__SM90_BF16, rows),                                                                      \
        kernel_of<                                                                                 \
            sm90::Forward<__half, dim, consumers, keys, stages, cluster, turns, q_registers>>(     \
            RA__SM90_F16, rows),
#include "backend/cuda/sm90/forward.list"
#undef ROW
};

const struct kernel *find(int dim, int dtype, int rows)
{
    for (const struct kernel &row : kernels)
        if (row.dim == dim && row.dtype == dtype && rows >= row.rows) return &row;
    return NULL;
}

} // namespace

extern "C" {

int ra__sm90_forward_shape(int dim, int dtype, int rows, struct ra__sm90_shape *shape, int *workers)
{
    const struct kernel *kernel = find(dim, dtype, rows);
    if (!kernel) return cudaErrorNotSupported;
    *shape = kernel->shape();
    *workers = kernel->workers();
    return *workers > 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

int ra__sm90_forward_launch(const struct ra__sm90_forward *args, int dim, int dtype, int rows,
                            void *stream)
{
    const struct kernel *kernel = find(dim, dtype, rows);
    return kernel ? kernel->launch(*args, (cudaStream_t)stream) : (int)cudaErrorNotSupported;
}
}
