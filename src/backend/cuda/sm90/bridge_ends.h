/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_ends.h - what happens before and after a GRADIENT step on the Hopper kernels: the engine's
 * LSE, delta and sums of dq are in rows, those of the kernels in blocks of queries. In plain C for
 * both sides; each function returns 0 or a CUDA error. */
#ifndef RA__SM90_BRIDGE_ENDS_H
#define RA__SM90_BRIDGE_ENDS_H

#include "backend/cuda/kernel.h"
#include "backend/cuda/sm90/sm90.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queries of one launch; in the workspace [batch][head][padded_rows]. */
struct ra__sm90_ends {
    int dim, block_queries;
    int batch, heads, rows, padded_rows;
    float scale;
    struct ra__cuda_tensor lse, delta; /* of the engine, f32 */
    struct ra__cuda_tensor dq;         /* sums of the engine in f32, or results in 16 bits */
    int dq_dtype;                      /* enum ra__cuda_dtype */
    float *lse2, *own_delta, *dq_sum;  /* of the kernel */
    int clears;                        /* dq_sum = 0; otherwise the kernel sets it */
    /* With views, as in struct ra__sm90_backward. block_views: that of a block of rows, or
     * RA__SM90_NO_VIEW; [head][block] in device memory. NULL: all rows follow one another. */
    struct ra__sm90_view views[RA__SM90_VIEWS];
    int32_t view_starts[RA__SM90_VIEWS];
    const uint8_t *block_views;
};

/* lse2 and delta as the kernel reads them; dq_sum = 0 where the kernel adds to it only. */
int ra__sm90_start_gradient(const struct ra__sm90_ends *ends, void *stream);

/* Adds dq_sum to the engine's sums of dq, or writes it as the result. */
int ra__sm90_end_gradient(const struct ra__sm90_ends *ends, void *stream);

#ifdef __cplusplus
}
#endif
#endif
