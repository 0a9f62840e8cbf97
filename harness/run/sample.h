/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - the rows of a result that the oracle will look at, kept where the result itself is
 * not. */
#ifndef HARNESS_SAMPLE_H
#define HARNESS_SAMPLE_H

#include "harness/data/data.h"

/* [position of the sample][batch][head][dim] */
struct sample {
    int64_t *indices; /* of its positions */
    int count;
    int64_t batch, heads, dim;
    ra_dtype dtype;
    char *rows;
};

/* `indices`: the index of every position, in an order; NULL: the position itself. */
int sample_open(struct sample *sample, const struct trial *trial, enum tensor tensor,
                const int64_t *indices);
void sample_close(struct sample *sample); /* accepts a zeroed one */

size_t sample_bytes(const struct sample *sample); /* of one position */

/* Where the i-th position of a batch item belongs. */
char *sample_at(const struct sample *sample, int i, int64_t batch);

/* One row of a head as f32; NaN where its index is not in the sample. */
void sample_read(const struct sample *sample, int64_t batch, int64_t index, int64_t head,
                 float *to);

#endif
