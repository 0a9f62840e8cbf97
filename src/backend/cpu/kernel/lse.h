/* SPDX-License-Identifier: Apache-2.0 */
/* lse.h - which rows backward can recompute weights for, from an LSE in f32.
 *
 * A weight is exp(x - LSE). An LSE of 2^20 is rounded by up to 1/16 in f32, and all weights of its
 * row are wrong by that much; at 2^32 they are 0 or inf. From 2^20 on a row counts as one without
 * weights, and ra__lse_check() refuses it unless its gradient is 0 anyway, as that of padding is:
 * no row gets a wrong gradient. Infinite and NaN values pass: they come from such inputs. */
#ifndef RA__BACKEND_CPU_KERNEL_LSE_H
#define RA__BACKEND_CPU_KERNEL_LSE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "backend/cpu/kernel/kernel.h"

#define RA__LSE_MOST 0x1p20f

/* Too large to recompute weights from? */
static inline bool ra__lse_coarse(float lse)
{
    return fabsf(lse) >= RA__LSE_MOST && fabsf(lse) <= FLT_MAX;
}

/* No weights are to be recomputed for this row. */
static inline bool ra__lse_weightless(float lse) { return lse == -INFINITY || ra__lse_coarse(lse); }

/* RA_ERR_UNSUPPORTED if a coarse row of one batch item has a gradient: q_count queries of all
 * heads. dlse.data may be NULL. */
ra_status ra__lse_check(const struct ra__shape *shape, int64_t q_count, struct ra__column lse,
                        struct ra__matrix dout, struct ra__column dlse);

#endif
