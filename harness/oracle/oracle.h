/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h - attention in double precision, directly from its definition, one query row at a time.
 *
 * Beside the exact value of every number stand what an error bound is made of: the same sum in the
 * plain arithmetic of the trial's dtype (`naive`), the sum of the sizes of its terms, and how far
 * it can move when every score moves by one rounding in f32 of its own terms (`moved`). The last
 * keeps the bound tight where scores are large: a row whose largest score is far above the others
 * hardly moves, however large it is. Where tensor cores of a GPU may have computed the score, what
 * they cut off counts as well. No code is shared with the library. */
#ifndef HARNESS_ORACLE_H
#define HARNESS_ORACLE_H

#include "harness/base/complain.h"
#include "harness/data/data.h"
#include "mask.h"
#include "harness/data/terms.h"
#include "harness/problem/trial.h"

/* Where numbers come from: a row as f32, either in place or copied to `scratch`. */
struct source {
    const float *(*row)(void *context, enum tensor tensor, int64_t batch, int64_t position,
                        int64_t head, float *scratch);
    void *context;
    const struct terms *terms; /* sinks and bias; NULL = none */
};

struct oracle {
    const struct trial *trial;
    struct mask mask; /* of every sequence */
    double scale;
    bool cuts_sums; /* scores may be computed by tensor cores */
    struct source source;
};
int oracle_open(struct oracle *oracle, const struct trial *trial, struct source source);
void oracle_close(struct oracle *oracle);

/* Some numbers, and what their bounds are made of. */
struct triple {
    double *exact, *terms, *moved;
    float *naive;
};
int triple_open(struct triple *triple, size_t count); /* zeros */
void triple_close(struct triple *triple);
void triple_clear(struct triple *triple, int64_t count);

/* One number, likewise. */
struct number {
    double exact, terms, moved;
    float naive;
};

/* One query row, and memory to compute it; opened once, used for many rows. Its fields are many
 * because the oracle keeps, of every key, each number that a bound is made of. */
struct oracle_row {
    int64_t seen;  /* keys this row sees and no bias hides */
    int64_t pairs; /* keys the pattern shows it, each as often as it counts */
    double lse;    /* -inf where nothing is seen; NaN where a score is */
    float naive_lse;
    double lse_moved;  /* as `moved` above */
    struct triple out; /* value_dim */
    struct triple dq;  /* dim; only of a backward trial */
    /* Of the keys seen, kept for oracle_add_keys(): how often each counts, its score and one
     * rounding of it, its weight, how far that moves (`moved` where weights are made to add up to
     * 1, `drift` where they come from the LSE, as in the backward pass), what dropout makes of it
     * (0, or 1 / (1 - rate)), what softcap leaves of a gradient, and the gradient of q.k. */
    int64_t *keys;
    double *count, *score, *rounding, *weight, *moved, *drift, *kept, *bend;
    double *slope, *slope_terms, *slope_moved;
    float *naive_weight, *naive_bend, *naive_slope;
    float *q, *k, *v, *dout; /* scratch rows */
    const float *q_row, *dout_row;
};
int oracle_row_open(struct oracle_row *row, const struct oracle *oracle);
void oracle_row_close(struct oracle_row *row);

/* Computes a row: out and LSE, and dQ for a backward trial. */
void oracle_compute(const struct oracle *oracle, int64_t batch, int64_t query, int64_t head,
                    struct oracle_row *row);

/* Adds the contribution of the computed row to dK and dV of its KV head, [key, dim]. */
void oracle_add_keys(const struct oracle *oracle, const struct oracle_row *row, struct triple *dk,
                     struct triple *dv);

/* dK and dV of one key alone, [dim]. Takes out and LSE of every query from the source, for
 * computing them here would cost the whole problem. `row` serves as scratch. */
void oracle_key(const struct oracle *oracle, int64_t batch, int64_t key, int64_t kv_head,
                struct oracle_row *row, struct triple *dk, struct triple *dv);

/* Adds what one query gives to the gradient of a head's sink. Takes out and LSE from the source
 * likewise. */
void oracle_add_sink(const struct oracle *oracle, int64_t batch, int64_t query, int64_t head,
                     struct oracle_row *row, struct number *sum);

#endif
