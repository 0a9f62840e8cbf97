/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cu - the forward kernels that are built, and which of them a problem gets.
 *
 * A row per kernel, in forward.list; the measurements that chose it are in docs/GPU.md. */
#include "backend/cuda/sm90/launch.cuh"

namespace
{

struct kernel {
    int dim, dtype, terms, views;
    int rows; /* the fewest queries of a head that it pays for */
    ra__sm90_shape (*shape)(void);
    int (*clusters)(void);
    int (*launch)(const ra__sm90_forward &args, cudaStream_t stream);
};

template <class F> struct kernel kernel_of(int dtype, int rows)
{
    return { F::DIM,
             dtype,
             F::TERMS,
             F::VIEWS > 1,
             rows,
             sm90::shape_of<F>,
             sm90::clusters_of<F>,
             sm90::launch<F> };
}

/* The first one that can do all that is needed is taken. */
const struct kernel kernels[] = {
#define ENTRY(rows, ...)                                                                           \
    kernel_of<sm90::Forward<__nv_bfloat16, __VA_ARGS__>>(RA__SM90_BF16, rows),                     \
        kernel_of<sm90::Forward<__half, __VA_ARGS__>>(RA__SM90_F16, rows),
#include "backend/cuda/sm90/forward.list"
#undef ENTRY
};

const struct kernel *find(const struct ra__sm90_needs *needs)
{
    for (const struct kernel &entry : kernels)
        if (entry.dim == needs->dim && entry.dtype == needs->dtype && needs->rows >= entry.rows &&
            entry.views >= !!needs->views && !(needs->terms & ~entry.terms))
            return &entry;
    return NULL;
}

} // namespace

extern "C" {

int ra__sm90_forward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                           int *clusters)
{
    const struct kernel *kernel = find(needs);
    if (!kernel) return cudaErrorNotSupported;
    *shape = kernel->shape();
    *clusters = kernel->clusters();
    return *clusters > 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

int ra__sm90_forward_launch(const struct ra__sm90_forward *args, const struct ra__sm90_needs *needs,
                            void *stream)
{
    const struct kernel *kernel = find(needs);
    return kernel ? kernel->launch(*args, (cudaStream_t)stream) : (int)cudaErrorNotSupported;
}
}
