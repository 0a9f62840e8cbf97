/* SPDX-License-Identifier: Apache-2.0 */
/* location.h - where tensors and packed numbers of a call are, as a backend sees them. */
#ifndef RA__EXEC_LOCATION_H
#define RA__EXEC_LOCATION_H

#include "core/program.h"

/* A tensor of the caller, strides filled in. */
static inline struct ra__location ra__tensor_at(const ra_tensor *tensor, ra_dtype dtype)
{
    return (struct ra__location){ .data = tensor->data,
                                  .storage = { .dtype = dtype,
                                               .batch_stride = tensor->batch_stride,
                                               .token_stride = tensor->position_stride,
                                               .head_stride = tensor->head_stride } };
}

/* f32 numbers [batch, query, head, width]. */
static inline struct ra__location ra__packed_at(const float *data, int64_t queries, int heads,
                                                int width)
{
    const int64_t token = (int64_t)heads * width;
    return (struct ra__location){ .data = (char *)data,
                                  .storage = { .dtype = RA_F32,
                                               .batch_stride = queries * token,
                                               .token_stride = token,
                                               .head_stride = width } };
}

#endif
