/* SPDX-License-Identifier: Apache-2.0 */
/* terms.h - the arrays a trial adds to its scores: logits of the sinks and a bias, synthetic or
 * from files. Bias rows are queries and its columns keys, both by original position. */
#ifndef HARNESS_TERMS_H
#define HARNESS_TERMS_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"

struct terms {
    float *sinks;                     /* [q_heads], or NULL */
    void *bias;                       /* [bias_batches, bias_heads, q_len, k_len], or NULL */
    bool mask;                        /* bytes, 0 hides the key; otherwise f32 that is added */
    int64_t bias_batches, bias_heads; /* 1, or all of them */
    int64_t q_len, k_len;
};

int terms_open(struct terms *terms, const struct trial *trial);
void terms_close(struct terms *terms);

/* What is added to a score; -INFINITY hides the key. 0 without a bias. */
float terms_bias(const struct terms *terms, int64_t batch, int64_t head, int64_t query,
                 int64_t key);

/* The bias rows of some queries, for a rank: [bias_batches, bias_heads, count, k_len], to be freed.
 * `queries` NULL = all of them in place, and then `*rows` is only borrowed. */
int terms_rows(const struct terms *terms, const int64_t *queries, int64_t count, void **rows);

/* The same as the library wants it. */
ra_bias terms_view(const struct terms *terms, const void *rows, int64_t count);

#endif
