/* SPDX-License-Identifier: Apache-2.0 */
/* simt.c - the table entry of the simt kernels. */
#include "backend/cuda/simt/simt.h"

static int takes(int dtype, int dim, int value_dim, int backward)
{
    (void)dtype, (void)backward;
    return dim >= 1 && dim <= 576 && value_dim >= 1 && value_dim <= 576;
}

static int is_for(int sm) { return sm >= 60; }

static struct ra__cuda_tiling tiling(int dtype, int dim, int value_dim)
{
    return (struct ra__cuda_tiling){
        .tile_rows = ra__simt_forward_rows(dtype, dim, value_dim),
        .gradient_rows = ra__simt_gradient_rows(),
        .tile_keys = ra__simt_gradient_keys(),
    };
}

const struct ra__kernel ra__cuda_kernel_simt = {
    .name = "simt",
    .summary = "f32 multiply-adds, any GPU",
    .dtypes = 1u << RA__CUDA_F32 | 1u << RA__CUDA_BF16 | 1u << RA__CUDA_F16,
    .sm = 60,
    .gpus = "6.0 or later",
    .is_for = is_for,
    .takes = takes,
    .tiling = tiling,
    .forward = ra__simt_forward,
    .gradient_q = ra__simt_gradient_q,
    .gradient_kv = ra__simt_gradient_kv,
};
