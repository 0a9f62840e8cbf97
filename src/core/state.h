/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - the running softmax (m, l, acc) of one query row in f32, outside the kernels: how two
 * states are merged, how a state becomes output, and how two finished outputs are merged. m is in
 * units of log2, as in kernel.h; LSE is a natural logarithm. m = -inf is the empty state. */
#ifndef RA__CORE_STATE_H
#define RA__CORE_STATE_H

#include "ringattn.h"

#define RA__LOG2_E 1.4426950408889634074 /* log2(e): natural to log2 units */
#define RA__LN_2 0.69314718055994530942  /* ln(2): log2 to natural units */

struct ra__state_row {
    float *m, *l;
    float *acc; /* [value_dim] */
};

/* The states of `rows` rows in one block of memory: all m, then all l, then all acc. */
static inline struct ra__state_row ra__state_row_at(float *states, int64_t rows, int value_dim,
                                                    int64_t row)
{
    return (struct ra__state_row){ states + row, states + rows + row,
                                   states + 2 * rows + row * value_dim };
}

/* The empty state. */
void ra__state_clear_row(struct ra__state_row row, int value_dim);

/* into += from, for states that folded different keys. `from` is only read. */
void ra__state_merge_row(struct ra__state_row into, struct ra__state_row from, int value_dim);

/* The same for `count` rows from `first` on, of two blocks of `rows` rows. */
void ra__state_merge_rows(float *into, float *from, int64_t rows, int value_dim, int64_t first,
                          int64_t count);

/* The end of a row: out = acc / divisor. */
struct ra__state_end {
    float divisor; /* l plus the sink's weight, in units of 2^m; never 0 */
    float lse;     /* natural; -inf for the empty state without a sink, the sink itself with one */
};

/* `sink` is the logit of one more key, of value 0, in natural units; -inf = none. */
struct ra__state_end ra__state_end(float m, float l, float sink);

/* out in `dtype`, 0 for the empty state, and the LSE (NULL = not wanted). */
void ra__state_finish_row(struct ra__state_row row, int value_dim, float sink, ra_dtype dtype,
                          void *out, float *lse);

/* Two finished rows into the first: L = logaddexp(L1, L2), o = exp(L1 - L) o1 + exp(L2 - L) o2. */
void ra__partial_merge_row(float *out, float *lse, const float *other_out, float other_lse,
                           int dim);

#endif
