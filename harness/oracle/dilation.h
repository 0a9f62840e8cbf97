/* SPDX-License-Identifier: Apache-2.0 */
/* dilation.h - the dilated pattern for the oracle, by its formulas, one pair at a time. */
#ifndef HARNESS_DILATION_H
#define HARNESS_DILATION_H

#include "harness/base/complain.h"

struct dilation {
    struct dilation_branch {
        int64_t segment, rate;
    } * branches; /* owned */
    int count;
    bool dedup;  /* a key counts once */
    bool groups; /* each group of heads has one branch */
    bool block;  /* a branch of rate r gives blocks of ceil(heads / r) heads one offset each */
};

/* Reads "2048/1,4096/2" and moves past it. */
int dilation_open(struct dilation *dilation, const char **at);
void dilation_close(struct dilation *dilation);

/* How often query `query` of `head`, one of `heads`, sees `key`; both are indices. */
int dilation_count(const struct dilation *dilation, int64_t heads, int64_t head, int64_t query,
                   int64_t key);

/* All keys that a query may see, in any head, are in [*first, *end), which is no longer than
 * dilation_most(). */
void dilation_range(const struct dilation *dilation, int64_t query, int64_t *first, int64_t *end);
int64_t dilation_most(const struct dilation *dilation);

#endif
