/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - see state.h. Called once per row, so plain C and double where it helps. */
#include "core/state.h"

#include <math.h>

#include "core/dtype.h"

void ra__state_clear_row(struct ra__state_row row, int value_dim)
{
    *row.m = -INFINITY;
    *row.l = 0.0f;
    for (int d = 0; d < value_dim; d++) row.acc[d] = 0.0f;
}

void ra__state_merge_row(struct ra__state_row into, struct ra__state_row from, int value_dim)
{
    float m = *into.m > *from.m ? *into.m : *from.m;
    float shift = m == -INFINITY ? 0.0f : m; /* two empty states: -inf - -inf is never evaluated */
    float keep = (float)exp2((double)*into.m - shift), add = (float)exp2((double)*from.m - shift);
    for (int d = 0; d < value_dim; d++) into.acc[d] = into.acc[d] * keep + from.acc[d] * add;
    *into.l = *into.l * keep + *from.l * add;
    *into.m = m;
}

/* In double, so that an m far above or below the sink does not overflow: if the divisor does, out
 * is 0 to full precision. */
void ra__state_merge_rows(float *into, float *from, int64_t rows, int value_dim, int64_t first,
                          int64_t count)
{
    for (int64_t row = first; row < first + count; row++)
        ra__state_merge_row(ra__state_row_at(into, rows, value_dim, row),
                            ra__state_row_at(from, rows, value_dim, row), value_dim);
}

struct ra__state_end ra__state_end(float m, float l, float sink)
{
    if (l == 0.0f) return (struct ra__state_end){ 1.0f, sink };
    double sum = m + log2((double)l);
    if (sink == -INFINITY) return (struct ra__state_end){ l, (float)(sum * RA__LN_2) };
    double logit = sink * RA__LOG2_E, high = logit > sum ? logit : sum;
    double low = logit > sum ? sum : logit;
    double both = high + log2(1.0 + exp2(low - high)); /* also where the sink is infinite */
    return (struct ra__state_end){ (float)(l + exp2(logit - m)), (float)(both * RA__LN_2) };
}

void ra__state_finish_row(struct ra__state_row row, int value_dim, float sink, ra_dtype dtype,
                          void *out, float *lse)
{
    struct ra__state_end end = ra__state_end(*row.m, *row.l, sink);
    for (int d = 0; d < value_dim; d++)
        ra__store(dtype, out, d, *row.l == 0.0f ? 0.0f : row.acc[d] / end.divisor);
    if (lse) *lse = end.lse;
}

void ra__partial_merge_row(float *out, float *lse, const float *other_out, float other_lse, int dim)
{
    if (other_lse == -INFINITY) return;
    double high = *lse > other_lse ? *lse : other_lse;
    double sum = high + log(exp(*lse - high) + exp(other_lse - high));
    double keep = exp(*lse - sum), add = exp(other_lse - sum);
    for (int d = 0; d < dim; d++) out[d] = (float)(keep * out[d] + add * other_out[d]);
    *lse = (float)sum;
}
