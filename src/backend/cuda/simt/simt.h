/* SPDX-License-Identifier: Apache-2.0 */
/* simt.h - attention with f32 multiply-adds, for any NVIDIA GPU. The contract is in
 * backend/cuda/kernel.h; the table entry is ra__cuda_kernel_simt.
 *
 * Tiles depend on the shared memory of the current device: `tiling` and the launches of its steps
 * must see the same one. */
#ifndef RA__CUDA_SIMT_SIMT_H
#define RA__CUDA_SIMT_SIMT_H

#include "backend/cuda/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ra__kernel ra__cuda_kernel_simt;

/* Do so many CTAs with so much shared memory run on an SM of the current device? */
int ra__simt_shared_fits(int ctas, int bytes);

int ra__simt_forward_rows(int dtype, int dim, int value_dim);
int ra__simt_gradient_rows(void);
int ra__simt_gradient_keys(void);

int ra__simt_forward(const struct ra__cuda_step *step, void *stream);
int ra__simt_gradient_q(const struct ra__cuda_step *step, void *stream);
int ra__simt_gradient_kv(const struct ra__cuda_step *step, void *stream);

#ifdef __cplusplus
}
#endif
#endif
