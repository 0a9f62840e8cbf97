/* SPDX-License-Identifier: Apache-2.0 */
/* delta.c - delta = rowsum(dout * out) - dlse, which backward needs once per query row. It is a
 * small part of the work of backward, so one plain loop serves every kernel. Sums are in double,
 * several at a time, because a single chain would be limited by latency. */
#include "core/dtype.h"
#include "backend/cpu/kernel/kernel.h"

static float row_delta(const struct ra__shape *shape, const void *out, const void *dout, float dlse)
{
    enum { LANES = 8 };
    double sums[LANES] = { 0.0 }, sum = 0.0;
    int whole = shape->value_dim / LANES * LANES;
    for (int d = 0; d < whole; d += LANES)
        for (int i = 0; i < LANES; i++)
            sums[i] += (double)ra__load(shape->dtype, out, d + i) *
                       ra__load(shape->dtype, dout, d + i);
    for (int d = whole; d < shape->value_dim; d++)
        sum += (double)ra__load(shape->dtype, out, d) * ra__load(shape->dtype, dout, d);
    for (int i = 0; i < LANES; i++) sum += sums[i];
    return (float)(sum - dlse);
}

static const void *row_at(ra_dtype dtype, struct ra__matrix from, int64_t i, int h)
{
    int64_t index = i * from.row_stride + h * from.head_stride;
    return (const char *)from.data + index * (int64_t)ra__dtype_bytes(dtype);
}

void ra__kernel_delta(const struct ra__shape *shape, int64_t q_count, int heads,
                      struct ra__matrix out, struct ra__matrix dout, struct ra__column dlse,
                      struct ra__column delta)
{
    for (int64_t i = 0; i < q_count; i++)
        for (int h = 0; h < heads; h++)
            delta.data[i * delta.row_stride + h] = row_delta(
                shape, row_at(shape->dtype, out, i, h), row_at(shape->dtype, dout, i, h),
                dlse.data ? dlse.data[i * dlse.row_stride + h] : 0.0f);
}
