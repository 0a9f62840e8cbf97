/* SPDX-License-Identifier: Apache-2.0 */
/* standard.h - attention with the score matrix in memory, on purpose: what the others are measured
 * against. Scores and weights of all heads exist at once, in the problem's dtype:
 * 2 batch heads queries keys bytes. */
#ifndef BENCH_STANDARD_H
#define BENCH_STANDARD_H

#include "harness/run/engine.h"

struct standard {
    const struct engine *engine; /* its tensors are read, its output and LSE are written */
    int threads;
    void *scores, *weights; /* [batch, head, query, key] */
    float *keys, *values;   /* [batch, KV head, dim, key] and [batch, KV head, key, value dim] */
    float *queries;         /* [batch, head, query, dim], scaled */
    size_t bytes;           /* of all that, and of the engine's tensors */
};

/* Bytes that it would take; the matrices are nearly all of them. */
double standard_needs(const struct trial *trial);

/* One rank; full or causal; no score terms. More than `memory` bytes (0: half of the machine's) are
 * refused. The engine stays open until standard_close(). */
int standard_open(struct standard *standard, const struct engine *engine, int64_t memory);
int standard_run(struct standard *standard, double *seconds);
void standard_close(struct standard *standard); /* accepts a half-opened one */

#endif
