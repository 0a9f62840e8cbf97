/* SPDX-License-Identifier: Apache-2.0 */
/* mma.h - between the files of this folder: the functions of the table entries, and tile sizes. */
#ifndef RA__BACKEND_CUDA_MMA_MMA_H
#define RA__BACKEND_CUDA_MMA_MMA_H

#include "backend/cuda/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

int ra__cuda_mma_forward(const struct ra__cuda_step *step, void *stream);
/* Forward with split keys and few rows; is a step one of these? */
int ra__cuda_mma_decode(const struct ra__cuda_step *step, void *stream);
int ra__cuda_mma_decodes(const struct ra__cuda_step *step);
int ra__cuda_mma_gradient_q(const struct ra__cuda_step *step, void *stream);
int ra__cuda_mma_gradient_kv(const struct ra__cuda_step *step, void *stream);
int ra__cuda_mma_gradient_any_order(const struct ra__cuda_step *step, void *stream);

/* Queries of a tile, and keys. */
int ra__cuda_mma_forward_rows(int dtype, int dim, int value_dim);
int ra__cuda_mma_gradient_rows(int dtype, int dim, int value_dim);
int ra__cuda_mma_gradient_keys(int dtype, int dim, int value_dim);

extern const struct ra__kernel ra__cuda_kernel_mma, ra__cuda_kernel_tf32x3;

#ifdef __cplusplus
}
#endif
#endif
