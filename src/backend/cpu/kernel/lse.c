/* SPDX-License-Identifier: Apache-2.0 */
/* lse.c - see lse.h. */
#include "backend/cpu/kernel/lse.h"

#include <inttypes.h>

#include "core/dtype.h"
#include "core/status.h"

static int coarse_rows(const float *lse, int heads)
{
    int count = 0;
    for (int h = 0; h < heads; h++) count += ra__lse_coarse(lse[h]);
    return count;
}

static bool has_gradient(const struct ra__shape *shape, struct ra__matrix dout,
                         struct ra__column dlse, int64_t i, int h)
{
    const int64_t index = i * dout.row_stride + h * dout.head_stride;
    const void *row = (const char *)dout.data + index * (int64_t)ra__dtype_bytes(shape->dtype);
    for (int d = 0; d < shape->value_dim; d++)
        if (ra__load(shape->dtype, row, d) != 0.0f) return true;
    return dlse.data && dlse.data[i * dlse.row_stride + h] != 0.0f;
}

ra_status ra__lse_check(const struct ra__shape *shape, int64_t q_count, struct ra__column lse,
                        struct ra__matrix dout, struct ra__column dlse)
{
    for (int64_t i = 0; i < q_count; i++) {
        const float *row = lse.data + i * lse.row_stride;
        if (!coarse_rows(row, shape->q_heads)) continue;
        for (int h = 0; h < shape->q_heads; h++)
            if (ra__lse_coarse(row[h]) && has_gradient(shape, dout, dlse, i, h))
                return ra__fail(RA_ERR_UNSUPPORTED,
                                "gradient: the LSE of query %" PRId64 " of this rank, head %d, is "
                                "%g; beyond %g f32 is too coarse to recompute weights from it: "
                                "make the scores smaller",
                                i, h, (double)row[h], (double)RA__LSE_MOST);
    }
    return RA_OK;
}
