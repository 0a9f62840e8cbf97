/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - the insides of the CPU backend: how the steps of a program are divided into jobs, and
 * which thread runs them when. LOAD and STORE are queued, for a thread of their own. Any other step
 * is issued and done at once, by the calling thread and the workers of its rank. */
#ifndef RA__BACKEND_CPU_CPU_H
#define RA__BACKEND_CPU_CPU_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cpu/chunks.h"
#include "backend/cpu/tasks.h"
#include "backend/cpu/workers.h"
#include "backend/cpu/kernel/kernel.h"

extern const struct ra__backend ra__backend_cpu;

struct ra__cpu {
    struct ra__workers *workers;
    struct ra__copier *copier; /* NULL: no step needed one */
    bool smt;
};

/* A row of an ATTEND step in the order of its schedule: those with the largest jobs come first. */
struct ra__scheduled {
    int row;             /* of the program */
    int64_t work;        /* of its largest job: pairs, with those between that are hidden */
    int64_t jobs_before; /* in the step */
};

/* ATTEND: how a row is divided into jobs, where that differs from row to row. */
struct ra__row_size {
    int queries, front, fine; /* as in struct ra__chunks */
};

/* GRADIENT: the chunks of all rows that start with the same head are distributed evenly over the
 * query chunks of a step. */
struct ra__portion {
    int64_t before, all; /* chunks of such rows: of those before this one, and of all of the step */
};

/* A program, divided into jobs. */
struct ra__cpu_program {
    const struct ra__program *program;
    struct ra__chunks all_heads;    /* of rows with all heads */
    struct ra__chunks one_head;     /* of rows with other heads: one head per job */
    struct ra__row_size *row_sizes; /* ATTEND, [row]; NULL: as above */
    struct ra__scheduled *schedule; /* ATTEND, [row]: those of a step in its rows' places */
    int64_t *jobs;                  /* ATTEND, MERGE: [step], for each range of keys */
    struct ra__portion *portions;   /* GRADIENT, [row] */
    int *grid;                      /* GRADIENT, [step]: chunks of its keys, and of its queries */
    int64_t *first_item;            /* LOAD, STORE, GATHER: [piece], within its step */
    int most_keys;                  /* of a row that repeats, or of any where keys are split */
};

/* Both programs of a plan, and what their steps use one after the other. */
struct ra__cpu_plan {
    const struct ra__kernel *kernel;
    struct ra__cpu_program programs[2]; /* by direction */
    char *workspace;                    /* of kernels, one part per thread */
    size_t workspace_bytes;             /* of a part */
    struct ra__key_run *moved;          /* ATTEND: keys of a job that are not as in the program,
                                           [thread][most_keys] */
    struct ra__tasks *tasks;            /* GRADIENT: of the step that runs */
    atomic_bool *done;                  /* [task][KV head of a batch item] of it */
    struct ra__range *key_ranges; /* [KV head]: the tokens of its keys in the step that runs */
    double *sink_sums;            /* SINKS: [q_heads] */
    char *rows;                   /* LOAD, STORE: rows of the caller on their way */
    size_t rows_bytes;
    atomic_int_least64_t pairs;
};

/* A step that runs. */
struct ra__running {
    struct ra__cpu *cpu;
    struct ra__cpu_plan *plan;
    const struct ra__cpu_program *program;
    const struct ra__launch *launch;
};

static inline const struct ra__program *ra__program_of(const struct ra__running *run)
{
    return run->program->program;
}

/* What the step that runs works on. */
static inline const struct ra__side *ra__work_of(const struct ra__running *run)
{
    return ra__work_side(ra__program_of(run), run->launch->step);
}

/* Some queries of one row of a family, for some heads of one KV head. */
struct ra__job {
    const struct ra__plan_row *row;
    int64_t repeat;        /* which row of the family */
    int64_t offset, count; /* queries of the row */
    struct ra__job_heads heads;
    const struct ra__key_run *runs; /* the keys they meet */
    int run_count;
    int range; /* of split keys */
    int thread;
};

/* The position of the first query of a job. */
static inline int64_t ra__job_position(const struct ra__job *job)
{
    const struct ra__plan_row *row = job->row;
    return row->q_pos + job->repeat * row->q_pos_advance + job->offset * row->q_step;
}

/* The keys of a run between the first and the last one that a query of the job sees. */
static inline int64_t ra__job_keys(const struct ra__job *job, const struct ra__key_run *run,
                                   int64_t *first)
{
    int64_t position = ra__job_position(job), unused, end;
    ra__band_clip(run, position, first, &unused);
    ra__band_clip(run, position + (job->count - 1) * job->row->q_step, &unused, &end);
    return ra__max(end - *first, 0);
}

/* How a row is divided: its chunks, their number, and the number of jobs. */
struct ra__chunks ra__chunks_of(const struct ra__cpu_program *program,
                                const struct ra__plan_row *row);
int64_t ra__count_chunks(const struct ra__cpu_program *program, const struct ra__plan_row *row);
int64_t ra__count_jobs(const struct ra__cpu_program *program, const struct ra__plan_row *row);

/* Sets the queries of a job of job->row: its chunk-th part of them, over all rows of the family. */
void ra__job_set(struct ra__job *job, const struct ra__chunks *chunks, int64_t chunk);

/* ---- prepare.c ---- */

ra_status ra__cpu_prepare(const struct ra__setup *setup, struct ra__arena *arena, void **prepared);
void ra__cpu_release(void *prepared, struct ra__buffers *pool, const struct ra__account *account);

/* ---- schedule.c: ATTEND ---- */

/* Divides the rows into jobs for so many threads, and puts them in order. */
void ra__schedule(struct ra__cpu_program *program, int threads);

/* ---- gradient.c: GRADIENT ---- */

/* While a plan is made: into how many chunks of keys, and of queries, a step is divided. The most
 * that leave enough for each: of keys, of queries, and for each call of the kernel, unless rows
 * mostly keep together. */
int ra__gradient_grid(struct ra__cpu_plan *plan, const struct ra__step *step);

/* ---- job.c: one call of a kernel ---- */

/* Runs a job on the keys of a step. */
void ra__job_attend(const struct ra__running *run, const struct ra__job *job);
void ra__job_gradient(const struct ra__running *run, const struct ra__job *job);

/* What a backward job reads; and where in the bias, or its gradient, the row of query i is, for the
 * first head of the job. */
struct ra__job_inputs {
    struct ra__view view;
    struct ra__matrix dout;
    struct ra__column lse, delta;
};
struct ra__job_inputs ra__job_inputs(const struct ra__running *run, const struct ra__job *job);
int64_t ra__job_bias_row(const struct ra__running *run, const struct ra__job *job, int64_t i);

/* Merges the states of the ranges of split keys, and ends the rows that end here. */
void ra__job_merge(const struct ra__running *run, const struct ra__job *job);

/* ---- gather.c: pieces ---- */

/* How many tokens of a piece are moved at a time, and how many times that is. */
int64_t ra__tokens_per_item(const struct ra__program *program, const struct ra__piece *piece);
int64_t ra__piece_items(const struct ra__program *program, const struct ra__piece *piece);

/* Tokens [first, first + tokens) of a piece, of all batch items. */
void ra__piece_move(const struct ra__running *run, const struct ra__piece *piece, int64_t first,
                    int64_t tokens);

/* The same for one batch item of a LOAD or STORE, whose other end is rows that a caller gave or
 * takes, packed. */
struct ra__rows_moved {
    void *packed;
    int64_t batch, first, tokens;
};
void ra__piece_move_rows(const struct ra__running *run, const struct ra__piece *piece,
                         const struct ra__rows_moved *rows);

/* Where token `first` of a batch item is in the buffer of such a piece, if the buffer itself holds
 * rows as the caller does; NULL otherwise. */
void *ra__piece_packed(const struct ra__running *run, const struct ra__piece *piece, int64_t batch,
                       int64_t first);

/* ---- copier.c: LOAD and STORE ---- */

/* A thread of the device that copies while its other threads compute. It starts with the first step
 * that is given to it. */
struct ra__copier;
ra_status ra__copier_create(struct ra__copier **out);
void ra__copier_destroy(struct ra__copier *copier); /* accepts NULL */

/* Queues a step: they are done one after the other. Waits while the queue is full. */
ra_status ra__copier_issue(struct ra__copier *copier, const struct ra__running *run,
                           struct ra__event *done);
/* Until an event of the copier has passed; returns what went wrong in any step. */
ra_status ra__copier_wait(struct ra__copier *copier, const struct ra__event *event,
                          const struct ra__heartbeat *heartbeat);
/* Drops what has not begun, and waits for the rest. */
void ra__copier_drain(struct ra__copier *copier);

/* ---- Steps, by file ---- */

ra_status ra__cpu_attend(const struct ra__running *run);
ra_status ra__cpu_merge(const struct ra__running *run);
ra_status ra__cpu_gradient(const struct ra__running *run);
ra_status ra__cpu_bias(const struct ra__running *run); /* after it, where dbias is wanted */
ra_status ra__cpu_gather(const struct ra__running *run);
ra_status ra__cpu_delta(const struct ra__running *run);
ra_status ra__cpu_sinks(const struct ra__running *run);

/* body(context, item, thread) for all items, on all threads. */
static inline ra_status ra__cpu_run(const struct ra__running *run, const struct ra__work *work)
{
    return ra__workers_run(run->cpu->workers, work, run->launch->heartbeat);
}

/* Rows whose work is `bytes` bytes each are given to threads this many at a time: tens of
 * microseconds, since less is not worth a thread. */
static inline int64_t ra__rows_per_item(int64_t bytes)
{
    enum { ITEM_BYTES = 128 << 10 };
    return ra__max(ITEM_BYTES / ra__max(bytes, 1), 1);
}

/* Numbers of a buffer in this run, from a token and head of a batch item on. */
static inline struct ra__matrix ra__matrix_in(const struct ra__running *run, enum ra__buffer buffer,
                                              int64_t batch, int64_t token, int head)
{
    const struct ra__location *place = &run->launch->call->at[buffer];
    const struct ra__storage *s = &place->storage;
    int64_t at = batch * s->batch_stride + token * s->token_stride + head * s->head_stride;
    char *data = place->data ? place->data + at * (int64_t)ra__dtype_bytes(s->dtype) : NULL;
    return (struct ra__matrix){ data, s->token_stride, s->head_stride };
}

/* The same for one number per token and head, heads next to one another. */
static inline struct ra__column ra__column_in(const struct ra__running *run, enum ra__buffer buffer,
                                              int64_t batch, int64_t token, int head)
{
    struct ra__matrix matrix = ra__matrix_in(run, buffer, batch, token, head);
    return (struct ra__column){ matrix.data, matrix.row_stride };
}

#endif
