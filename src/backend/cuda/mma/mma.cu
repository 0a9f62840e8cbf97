/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cu - attention by tensor cores with mma.sync, for sm_80 and later: the table entry.
 *
 * Weights p, and ds backward, are rounded to the dtype of the inputs before they are multiplied;
 * all sums are f32. */
#include "backend/cuda/mma/mma.h"

static int takes(int dtype, int dim, int value_dim, int backward)
{
    (void)backward;
    return (dtype == RA__CUDA_BF16 || dtype == RA__CUDA_F16) && dim <= 256 && value_dim <= 256;
}

static struct ra__cuda_tiling tiling(int dtype, int dim, int value_dim)
{
    (void)dtype;
    struct ra__cuda_tiling t;
    t.tile_rows = ra__cuda_mma_forward_rows(dim, value_dim);
    t.gradient_rows = ra__cuda_mma_gradient_rows(dim, value_dim);
    t.tile_keys = ra__cuda_mma_gradient_keys(dim, value_dim);
    return t;
}

extern "C" const struct ra__kernel ra__cuda_kernel_mma = {
    /* name */ "mma",
    /* summary */ "tensor cores by mma.sync, bf16 and f16",
    /* dtypes */ 1u << RA__CUDA_BF16 | 1u << RA__CUDA_F16,
    /* sm */ 80,
    /* sm_last */ 0,
    takes,
    tiling,
    ra__cuda_mma_forward,
    ra__cuda_mma_gradient_q,
    ra__cuda_mma_gradient_kv,
    ra__cuda_mma_gradient_any_order,
    /* scheduler */ 0,
};
