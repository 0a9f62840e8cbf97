/* SPDX-License-Identifier: Apache-2.0 */
/* location.h - where tensors and packed numbers of a call are, as a backend sees them. */
#ifndef RA__EXEC_LOCATION_H
#define RA__EXEC_LOCATION_H

#include "core/program.h"

/* Both set what differs from call to call; the rest of *at is 0. */

/* A tensor of the caller, strides filled in. */
static inline void ra__locate_tensor(struct ra__location *at, const ra_tensor *tensor,
                                     ra_dtype dtype)
{
    at->data = tensor->data;
    at->storage.dtype = dtype;
    at->storage.batch_stride = tensor->batch_stride;
    at->storage.token_stride = tensor->position_stride;
    at->storage.head_stride = tensor->head_stride;
}

/* f32 numbers [batch, query, head, width]. */
static inline void ra__locate_packed(struct ra__location *at, const float *data, int64_t queries,
                                     int heads, int width)
{
    const int64_t token = (int64_t)heads * width;
    at->data = (char *)data;
    at->storage.dtype = RA_F32;
    at->storage.batch_stride = queries * token;
    at->storage.token_stride = token;
    at->storage.head_stride = width;
}

#endif
