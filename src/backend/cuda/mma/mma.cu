/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cu - attention by tensor cores with mma.sync, for sm_80 and later: the table entries.
 *
 * mma: weights p, and ds backward, are rounded to the dtype of the inputs before they are
 * multiplied; all sums are f32.
 * tf32x3: the same kernels in f32, whose products are three of TF32 each; see tf32x3.cuh. */
#include "backend/cuda/mma/mma.h"

static int takes_half(int dtype, int dim, int value_dim, int backward)
{
    (void)backward;
    return (dtype == RA__CUDA_BF16 || dtype == RA__CUDA_F16) && dim <= 256 && value_dim <= 256;
}

static int takes_f32(int dtype, int dim, int value_dim, int backward)
{
    (void)backward;
    return dtype == RA__CUDA_F32 && dim <= 128 && value_dim <= 128;
}

static int half_is_for(int sm) { return sm >= 80; }
/* Others multiply TF32 no faster than f32, and have less shared memory. */
static int f32_is_for(int sm) { return sm == 80 || sm == 90 || sm == 100; }

static struct ra__cuda_tiling tiling(int dtype, int dim, int value_dim)
{
    struct ra__cuda_tiling t;
    t.tile_rows = ra__cuda_mma_forward_rows(dtype, dim, value_dim);
    t.gradient_rows = ra__cuda_mma_gradient_rows(dtype, dim, value_dim);
    t.tile_keys = ra__cuda_mma_gradient_keys(dtype, dim, value_dim);
    return t;
}

extern "C" const struct ra__kernel ra__cuda_kernel_mma = {
    /* name */ "mma",
    /* summary */ "tensor cores by mma.sync, bf16 and f16",
    /* dtypes */ 1u << RA__CUDA_BF16 | 1u << RA__CUDA_F16,
    /* sm */ 80,
    /* gpus */ "8.0 or later",
    half_is_for,
    takes_half,
    tiling,
    ra__cuda_mma_forward,
    ra__cuda_mma_gradient_q,
    ra__cuda_mma_gradient_kv,
    ra__cuda_mma_gradient_any_order,
    /* writes keys */ 1,
    /* scheduler */ 0,
};

extern "C" const struct ra__kernel ra__cuda_kernel_tf32x3 = {
    /* name */ "tf32x3",
    /* summary */ "tensor cores by mma.sync, f32 as three products of TF32",
    /* dtypes */ 1u << RA__CUDA_F32,
    /* sm */ 80,
    /* gpus */ "8.0, 9.0 or 10.0",
    f32_is_for,
    takes_f32,
    tiling,
    ra__cuda_mma_forward,
    ra__cuda_mma_gradient_q,
    ra__cuda_mma_gradient_kv,
    /* any order */ 0,
    /* writes keys */ 1,
    /* scheduler */ 0,
};
