/* SPDX-License-Identifier: Apache-2.0 */
/* exec.h - runs the programs of a plan: the one place where plan, backend and transport meet. It
 * issues steps when the steps they wait for have been issued or are done, moves messages, counts,
 * and reports errors. It never looks at a number of a tensor. */
#ifndef RA__EXEC_EXEC_H
#define RA__EXEC_EXEC_H

#include "exec/handshake.h"
#include "exec/loan.h"
#include "exec/rank.h"
#include "plan/plan.h"

/* The caller's tensors of one run, strides filled in. */
struct ra__io {
    ra_tensor q, k, v, out, dout, dq, dk, dv;
    float *lse;
    const float *dlse;
    ra_bias bias;            /* strides filled in */
    const float *sinks;      /* NULL = none */
    float *dsinks;           /* NULL = not wanted */
    float *dbias;            /* likewise; strided like the bias */
    const int64_t *counts;   /* of keys; NULL = all are there */
    uint64_t seed;           /* of dropout */
    const ra_stream *stream; /* instead of tensors; NULL = none */
    void *queue;             /* of the caller, to be ordered with; NULL = none */
    ra_progress_fn progress;
    void *context;
};

/* The messages of a program, with the memory they use. */
struct ra__messages {
    struct ra__message *sends, *recvs;
    struct ra__round *rounds;
};

/* Where a step is in a run. */
enum ra__stage { RA__WAITING, RA__ISSUED, RA__DONE };

struct ra__step_progress {
    enum ra__stage stage;
    struct ra__event event; /* of an issued one; exchanges have none */
};

/* A plan with its memory. */
struct ra__exec {
    const struct ra__plan *plan;
    const struct ra__kernel *kernel;
    const struct ra__rank *rank;
    const struct ra__problem_terms *terms; /* belongs to the caller, as the plan does */
    struct ra__account *account;

    size_t room;                     /* bytes of the block, if ra__exec_memory() has found them */
    char *block;                     /* all arrays of the plan but its programs */
    void *buffers[RA__BUFFERS];      /* those the plan provides */
    void *prepared;                  /* the backend's */
    struct ra__messages messages[2]; /* by direction */
    struct ra__step_progress *steps; /* [step] of the run */
    struct ra__event *after;         /* [step]: those that the step being issued waits for */
    struct ra__handshake handshake;
    struct ra__call *call;  /* of the run */
    struct ra__loans loans; /* likewise */
    ra_stats stats;         /* of the last run */
};

/* What a plan will run on, as far as its memory depends on it. */
struct ra__target {
    const struct ra__backend *backend;
    const struct ra__kernel *kernel;
    int threads;
    const struct ra__problem_terms *terms;
    void *device; /* NULL: it is not open, and only its number is known */
    int number;
    const struct ra__kernel **runs; /* as in struct ra__setup */
};

/* Bytes by purpose that ra__exec_create() would take, with the plan's own and the caller's. */
ra_status ra__exec_memory(const struct ra__plan *plan, size_t plan_bytes,
                          const struct ra__target *target, ra_memory *out);

/* Takes all memory. `exec` is zeroed but for plan, kernel, rank, terms, account and room. */
ra_status ra__exec_create(struct ra__exec *exec);
void ra__exec_destroy(struct ra__exec *exec); /* accepts a half-made one, or one without a rank */

/* Where the buffers of a plan are; then, for each run, the caller's tensors and its score terms. */
void ra__call_prepare(struct ra__exec *exec);
void ra__call_set(struct ra__exec *exec, enum ra__direction direction, const struct ra__io *io);

ra_status ra__exec_run(struct ra__exec *exec, enum ra__direction direction,
                       const struct ra__io *io);

#endif
