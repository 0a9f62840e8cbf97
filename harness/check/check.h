/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - compares what an engine computed with the oracle. The rule is in tally.h. */
#ifndef HARNESS_CHECK_H
#define HARNESS_CHECK_H

#include "harness/base/complain.h"
#include "harness/run/engine.h"

struct check_line {
    const char *name;    /* of the tensor */
    double error, bound; /* of the value with the largest error, or of one beyond its bound */
};

struct check {
    struct check_line lines[6]; /* out, lse, dq, dk, dv, dsinks */
    int count;
    bool sampled;       /* some queries and keys; otherwise all */
    int64_t rows, keys; /* compared: (batch, query, head) and (batch, key, KV head) */
    int64_t nan_rows;   /* of `rows`, which must be NaN because their input is */
    int64_t pairs;      /* as the oracle counts them; -1 where sampled */
    double worst;       /* largest error / bound */
    bool passed;
    char what[160]; /* what differed; "" if nothing did */
};

/* Compares everything if the problem is small, otherwise queries spread over it. EXIT_PASS also if
 * the results differ: see `passed`. */
int check_engine(const struct engine *engine, struct check *check);

/* Compares everything, whatever it costs. */
int check_engine_fully(const struct engine *engine, struct check *check);

/* Truth rule 1, for a trial with V = ones: ones, and zeros where LSE = -inf. Sets the largest
 * error. */
bool check_ones(const struct engine *engine, double *error);

#endif
