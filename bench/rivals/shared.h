/* SPDX-License-Identifier: Apache-2.0 */
/* shared.h - the tensors of a problem in memory that another process can map: inputs, which both
 * read, and results, which it writes. rivals.py knows their places. */
#ifndef BENCH_RIVALS_SHARED_H
#define BENCH_RIVALS_SHARED_H

#include "harness/run/engine.h"

struct shared {
    int file; /* inherited by processes that are started */
    char *memory;
    size_t bytes;
    struct view views[TENSOR_COUNT]; /* no data: LSE and its gradient, which rivals do not have */
    struct inputs inputs;            /* the same for an engine: no gradient of the LSE */
};

/* Synthetic data, packed. */
int shared_open(struct shared *shared, const struct trial *trial);
void shared_close(struct shared *shared); /* accepts one that was never opened */

#endif
