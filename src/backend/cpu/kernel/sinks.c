/* SPDX-License-Identifier: Apache-2.0 */
/* sinks.c - the gradient of the sinks. The weight of a sink is exp(sink - LSE) and its value 0, so
 * its gradient is that weight times -delta. Once per query row: plain C in double. */
#include <math.h>

#include "backend/cpu/kernel/lse.h"

void ra__kernel_dsinks(int64_t q_count, float sink, struct ra__column lse, struct ra__column delta,
                       double *dsink)
{
    for (int64_t i = 0; i < q_count; i++) {
        if (ra__lse_weightless(lse.data[i * lse.row_stride])) continue;
        double sum = lse.data[i * lse.row_stride];
        double weight = sink == sum ? 1.0 : exp(sink - sum); /* 1 also where both are inf */
        *dsink -= weight * delta.data[i * delta.row_stride];
    }
}
