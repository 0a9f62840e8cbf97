/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h - one case: everything a problem string says, e.g.
 *
 *     causal n=4096 nk=8192 h=8/2 d=128 dv=64 b=2 bf16 ring=4 zigzag allgather backward seed=7
 *
 * trial.c holds the fields, problem.c the strings. Flags of the command line set the same fields
 * through the same functions. */
#ifndef HARNESS_TRIAL_H
#define HARNESS_TRIAL_H

#include "harness/base/complain.h"

enum trial_strides {
    STRIDES_PACKED,
    STRIDES_PADDED, /* gaps after every head and every position */
    STRIDES_HEADS   /* [batch, head, position, dim] in memory */
};

enum { KEYS_AUTO = -1, DTYPE_AUTO = -1 };

/* The library's own limits. */
#define TRIAL_RANKS_MOST 4096
#define TRIAL_THREADS_MOST 1024

/* Its fields are many because a problem string has many words: one field for each. */
struct trial {
    char *pattern;          /* owned, as the next five; NULL = full */
    char *order;            /* a name, or a .npy file of positions; NULL = sequential */
    char *alibi;            /* slopes separated by commas, "" = the standard ones; NULL = none */
    char *bias;             /* a kind of synthetic bias, or a .npy file; NULL = none */
    char *sinks;            /* a .npy file, "" = synthetic logits; NULL = none */
    char *seqs;             /* packed sequences, "QUERIES/KEYS,...": sequences.h; NULL = one */
    ra_sequence *sequences; /* by trial_resolve(), where there is seqs; owned */
    int64_t sequence_count;
    int64_t query_offset; /* of the positions of queries */
    float *slopes;        /* [q_heads] by trial_resolve(), where there is alibi; owned */
    const char *system;   /* a name of system.list; NULL = none */
    int64_t q_len;
    int64_t k_len; /* may be 0; KEYS_AUTO before trial_resolve() = q_len */
    int64_t batch;
    int64_t q_heads, kv_heads;
    int64_t dim, value_dim;
    int64_t ranks;
    int64_t threads; /* per rank; 0 = the library's choice */
    int64_t seed;
    int dtype;        /* ra_dtype, or DTYPE_AUTO before trial_resolve() */
    double scale;     /* 0 = 1/sqrt(dim) */
    double softcap;   /* 0 = none */
    double dropout;   /* fraction of the weights; its generator starts from `seed` */
    double amp;       /* scores reach about +-amp; 0 = as they come, about +-4 */
    double latency;   /* what predictions are made with; 0 = measured or usual, as the next two */
    double bandwidth; /* bytes per second */
    double flops;     /* per second and rank */
    double copy;      /* bytes per second of copies in memory; 0 = usual, as the next one */
    double load;      /* bytes per second that a stream loads or stores */
    const ra_machine *measured; /* borrowed; NULL = nothing was */
    double gap;                 /* scores of neighbouring quarters of the keys are this far apart */
    char partition[24], strategy[24], transport[24], kernel[24],
        device[24]; /* "" = the library's choice */
    enum trial_strides strides;
    bool backward;
    bool any_order; /* of the sums of dq */
    bool ones;      /* V = 1 everywhere */
};

/* Fields not given yet are 0, "", KEYS_AUTO or DTYPE_AUTO. */
void trial_default(struct trial *trial);
void trial_clear(struct trial *trial);

/* Sets one field by its key in a problem string; `what` names it in sentences ("--tokens",
 * "n="). */
int trial_set(struct trial *trial, const char *key, const char *what, const char *value);

/* A number for each key, from 0; -1 for unknown keys. */
int trial_field(const char *key, size_t length);
const char *trial_stride_name(enum trial_strides strides);

/* Reads a problem string, resolved. The trial needs trial_clear() also after a failure. */
int trial_parse(struct trial *trial, const char *text);

/* Are there fewer than 2^63 pairs of a query and a key, over heads and batch, whatever the pattern
 * is? The library, and everything here, counts them in an int64_t. */
bool trial_pairs_fit(const struct trial *trial);

/* Fills in what was not given; more pairs of one head than can be counted are refused, and slopes
 * that do not fit the heads. Pairs of all heads are for the library to refuse: it knows how many
 * keys a query of the pattern sees. */
int trial_resolve(struct trial *trial);

/* The problem string; only what differs from the defaults. NULL if memory ran out; to be freed. */
char *trial_format(const struct trial *trial);

/* The problem as the library wants it, all but pattern and order; its slopes stay
 * the trial's. */
ra_problem trial_problem(const struct trial *trial);

/* What its predictions are made with, as far as it was given. */
ra_machine trial_machine(const struct trial *trial);
/* Its device, as options of the library take it; is that the CPU? */
const char *trial_device(const struct trial *trial);
bool trial_on_cpu(const struct trial *trial);

/* The file of a bitmap in the pattern, to be freed; NULL if there is none. */
char *trial_bitmap(const struct trial *trial);

#endif
