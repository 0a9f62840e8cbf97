/* state.c - see state.h. Called once per row, so plain C and double where it helps. */
#include "kernel/state.h"

#include <math.h>

#include "core/dtype.h"

void ra__state_merge_row(struct ra__state_row into, struct ra__state_row from, int value_dim)
{
    float m = *into.m > *from.m ? *into.m : *from.m;
    float shift = m == -INFINITY ? 0.0f : m; /* two empty states: -inf - -inf is never evaluated */
    float keep = (float)exp2((double)*into.m - shift), add = (float)exp2((double)*from.m - shift);
    for (int d = 0; d < value_dim; d++) into.acc[d] = into.acc[d] * keep + from.acc[d] * add;
    *into.l = *into.l * keep + *from.l * add;
    *into.m = m;
}

float ra__state_lse(float m, float l)
{
    if (l == 0.0f) return -INFINITY;
    return (float)((m + log2((double)l)) * RA__LN_2);
}

void ra__state_finish_row(struct ra__state_row row, int value_dim, ra_dtype dtype, void *out,
                          float *lse)
{
    float l = *row.l;
    for (int d = 0; d < value_dim; d++) ra__store(dtype, out, d, l == 0.0f ? 0.0f : row.acc[d] / l);
    if (lse) *lse = ra__state_lse(*row.m, l);
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
