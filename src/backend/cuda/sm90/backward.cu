/* SPDX-License-Identifier: Apache-2.0 */
/* backward.cu - the backward kernels that are built, and which of them a problem gets.
 *
 * A row per kernel, in backward.list; the measurements that chose it are in docs/GPU.md. */
#include "backend/cuda/sm90/launch_backward.cuh"

namespace
{

struct kernel {
    int dim, dtype, terms, views, deterministic;
    ra__sm90_shape (*shape)(void);
    int (*clusters)(void);
    int (*launch)(const ra__sm90_backward &args, cudaStream_t stream);
};

template <class F> struct kernel kernel_of(int dtype)
{
    return { F::DIM,
             dtype,
             F::TERMS,
             F::VIEWS > 1,
             F::ORDERED,
             sm90::backward_shape_of<F>,
             sm90::backward_clusters_of<F>,
             sm90::launch_backward<F> };
}

/* The first one that can do all that is needed is taken. */
const struct kernel kernels[] = {
#define ENTRY(...)                                                                                 \
    kernel_of<sm90::Backward<__nv_bfloat16, __VA_ARGS__>>(RA__SM90_BF16),                          \
        kernel_of<sm90::Backward<__half, __VA_ARGS__>>(RA__SM90_F16),
#include "backend/cuda/sm90/backward.list"
#undef ENTRY
};

const struct kernel *find(const struct ra__sm90_needs *needs)
{
    for (const struct kernel &entry : kernels)
        if (entry.dim == needs->dim && entry.dtype == needs->dtype &&
            entry.views >= !!needs->views && entry.deterministic == !!needs->deterministic &&
            !(needs->terms & ~RA__SM90_SINKS & ~entry.terms))
            return &entry;
    return NULL;
}

} // namespace

extern "C" {

int ra__sm90_backward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                            int *clusters)
{
    const struct kernel *kernel = find(needs);
    if (!kernel) return cudaErrorNotSupported;
    *shape = kernel->shape();
    *clusters = kernel->clusters();
    return *clusters > 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

int ra__sm90_backward_launch(const struct ra__sm90_backward *args,
                             const struct ra__sm90_needs *needs, void *stream)
{
    const struct kernel *kernel = find(needs);
    return kernel ? kernel->launch(*args, (cudaStream_t)stream) : (int)cudaErrorNotSupported;
}
}
