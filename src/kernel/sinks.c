/* sinks.c - the gradient of the sinks. The weight of a sink is exp(sink - LSE) and its value 0, so
 * its gradient is that weight times -delta. Once per query row: plain C in double. */
#include <math.h>

#include "kernel/kernel.h"

void ra__kernel_dsinks(const struct ra__shape *shape, int64_t q_count, const float *sinks,
                       struct ra__column lse, struct ra__column delta, double *dsinks)
{
    for (int64_t i = 0; i < q_count; i++)
        for (int h = 0; h < shape->q_heads; h++) {
            double sum = lse.data[i * lse.row_stride + h];
            if (sum == -INFINITY) continue; /* neither keys nor a sink */
            double weight = sinks[h] == sum ? 1.0
                                            : exp(sinks[h] - sum); /* also where both are inf */
            dsinks[h] -= weight * delta.data[i * delta.row_stride + h];
        }
}
