/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - the insides of the CUDA backend, a plug-in: one GPU as a device of a rank. Steps are
 * queued on streams: what computes, what loads and what stores each have one; where ranks share the
 * GPU, gathers are with the stores, and gradients may have one, too. They return when they are
 * queued; dependencies become events of CUDA. */
#ifndef RA__BACKEND_CUDA_CUDA_H
#define RA__BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/steps.h"
#include "core/dtype.h"
#include "core/plugin.h"

/* What the library lets a plug-in call. */
extern const struct ra__host *ra__cuda_host;

#define ra__cuda_fail(status, ...) (ra__cuda_host->set_error(__VA_ARGS__), (status))

/* An error with a sentence where a call of the runtime failed: RA_ERR_MEMORY, or RA_ERR_SYSTEM. */
#define RA__CUDA_TRY(call) RA__TRY(ra__cuda_check((int)(call), #call))
ra_status ra__cuda_check(int error, const char *call);

/* ---- device.c: the device, its queues and events --------------------------------------------- */

enum ra__cuda_queue_name {
    RA__CUDA_COMPUTE,
    RA__CUDA_GRADIENT, /* where ranks that share the GPU have an order; else the one above */
    RA__CUDA_LOAD,
    RA__CUDA_STORE,
    RA__CUDA_QUEUES
};

/* Event n is ring[n % RING]. One that is older than the ring has been recorded again, later on the
 * same stream: who waits for it waits longer than necessary, never too short. */
enum { RA__CUDA_RING = 256 };
struct ra__cuda_queue {
    cudaStream_t stream;
    cudaEvent_t ring[RA__CUDA_RING];
    uint64_t issued;
    char *rows; /* device memory: rows of callbacks on their way; NULL: none yet */
};

/* Pinned memory through which rows of callbacks pass. */
struct ra__cuda_staging {
    char *rows;            /* NULL: none yet */
    struct ra__event copy; /* the last one from or to it */
};

/* Calls on streams of the caller: caller.c. */
struct ra__cuda_caller {
    cudaEvent_t start; /* on a stream of the caller: our queues start after it */
    cudaEvent_t end;   /* of the last call on a stream of the caller that was not captured */
    bool follows;      /* the call is on a stream of the caller: its events are not queried */
    bool captured;     /* that stream is captured in a graph */
    bool unfinished;   /* the host has not waited for `end` */
    bool on_stream;    /* `end` is on the caller's stream, and our queues do not wait for it yet */
    unsigned long long stream_id; /* of that stream */
    cudaStream_t own_compute;     /* while the caller's stream is in its place; else NULL */
};

/* Functions of the driver; NULL: it cannot be asked. */
struct ra__cuda_driver {
    int (*context_state)(int number, unsigned *flags, int *active);
    int (*context_id)(void *context, unsigned long long *id); /* of the current one: NULL */
};

struct ra__cuda_device {
    int number;
    struct ra__cuda_driver driver;
    unsigned long long context; /* the ID of what everything below belongs to; 0: not known */
    struct ra__cuda_facts facts;
    struct ra__cuda_queue queues[RA__CUDA_QUEUES];
    struct ra__cuda_caller caller;
    struct ra__cuda_report *found;      /* by kernels, in device memory; not cleared by calls */
    struct ra__cuda_report *report;     /* its copy in pinned memory of the host */
    struct ra__event reported;          /* passes when the newest copy is there */
    struct ra__cuda_staging staging[2]; /* one is copied while the other is filled */
    int staged;                         /* the one used last */
    char *narrow;                       /* sums in 16 bits on their way to the caller; NULL: none */
};

/* Enough for one copy to be long against its start. */
enum { RA__CUDA_ROWS_BYTES = 16 << 20 };

ra_status ra__cuda_facts_of(int number, struct ra__cuda_facts *out);
ra_status ra__cuda_open(const struct ra__device_options *options, void **device);
void ra__cuda_close(void *device);
void *ra__cuda_alloc(void *device, size_t bytes);
void ra__cuda_free(void *device, void *memory, size_t bytes);
void ra__cuda_pin(void *device, void *memory, size_t bytes);
void ra__cuda_unpin(void *device, void *memory);
bool ra__cuda_is_on_device(const void *data); /* or in memory of the host? */
/* The same for what a caller may give in either. A graph would use what the host had when it was
 * captured, or could not wait for the host: a call that is captured is refused. */
ra_status ra__cuda_where_is(const struct ra__cuda_device *device, const void *data,
                            const char *what, bool *here);
ra_status ra__cuda_wait(void *device, const struct ra__event *event,
                        const struct ra__heartbeat *heartbeat);
void ra__cuda_drain(void *device);
/* Waits until everything that was issued has ended; its errors are of no consequence. */
void ra__cuda_synchronize(struct ra__cuda_device *device);
ra_status ra__cuda_copy(void *device, void *to, const void *from, size_t bytes);
cudaEvent_t ra__cuda_event_of(const struct ra__event *event);
ra_status ra__cuda_wait_for(const struct ra__cuda_device *device, cudaEvent_t event,
                            const struct ra__heartbeat *heartbeat);
/* Whatever is queued next waits for these events. */
ra_status ra__cuda_queue_after(struct ra__cuda_queue *queue, const struct ra__launch *launch);
/* The same on the host. */
ra_status ra__cuda_host_after(struct ra__cuda_device *device, const struct ra__launch *launch);
/* The host waits for everything that is queued, with heartbeats: before a copy to pageable memory,
 * which would block without them, so that peers would give this rank up. */
ra_status ra__cuda_host_after_queue(struct ra__cuda_device *device, struct ra__cuda_queue *queue,
                                    const struct ra__heartbeat *heartbeat);
/* An event after everything that is queued. */
ra_status ra__cuda_queue_mark(struct ra__cuda_queue *queue, struct ra__event *done);
bool ra__cuda_has_passed(const struct ra__event *event);
/* Fails if kernels have reported an error. */
ra_status ra__cuda_check_report(const struct ra__cuda_device *device);

/* ---- context.c: visits of a thread to a GPU, and contexts ------------------------------------ */

/* Makes the device that of the calling thread, until the visit ends with the block that it is
 * declared in: a caller may work on another one. Whatever uses memory, streams or events of a
 * device comes after enter(), in this function or in one that calls it: if the GPU was reset before
 * this call of the library, they are gone, and that is an error. */
struct ra__cuda_visit {
    int before; /* the device to go back to; RA__CUDA_NOWHERE: the same */
};
enum { RA__CUDA_NOWHERE = -1 };
ra_status ra__cuda_enter(const struct ra__cuda_device *device, struct ra__cuda_visit *visit);
/* To open it; remembers its context. */
ra_status ra__cuda_first_enter(struct ra__cuda_device *device, struct ra__cuda_visit *visit);
/* To end or free something. False: the GPU was reset, and there is nothing to be done. Other errors
 * are of no consequence, and the sentence of an error before stays. */
bool ra__cuda_enter_quietly(const struct ra__cuda_device *device, struct ra__cuda_visit *visit);
ra_status ra__cuda_visit_number(int number, struct ra__cuda_visit *visit); /* not open */
void ra__cuda_leave(struct ra__cuda_visit *visit);
#define RA__CUDA_VISIT(name)                                                                       \
    __attribute__((cleanup(ra__cuda_leave))) struct ra__cuda_visit name = { RA__CUDA_NOWHERE }
int ra__cuda_make_current(void *device);
void ra__cuda_restore(int before);

/* ---- caller.c: calls on streams of the caller ------------------------------------------------ */

ra_status ra__cuda_caller_open(struct ra__cuda_device *device);
void ra__cuda_caller_close(struct ra__cuda_device *device);
/* Waits for the last call; its errors are of no consequence. */
void ra__cuda_caller_synchronize(struct ra__cuda_device *device);
/* A call has failed: our queues are ours again. */
void ra__cuda_caller_reset(struct ra__cuda_device *device);
ra_status ra__cuda_follow(void *device, const void *prepared, enum ra__direction direction,
                          void *stream, struct ra__event *there);
ra_status ra__cuda_precede(void *device, void *stream);
ra_status ra__cuda_finish(void *device, const struct ra__heartbeat *heartbeat);

/* ---- tables.c: what kernels read of a program ------------------------------------------------ */

/* Of one step. */
struct ra__cuda_step_table {
    int first_slot, slot_count;
    int64_t tiles;
    int sections;
    int first_wave, wave_count;
    int64_t first_item, items; /* of its pieces */
};

/* Key tiles [first, first + count): launched together. */
struct ra__cuda_wave {
    int first, count;
};

/* Arrays of a program. In host memory while a plan is made, then copied to the device in one piece.
 * Its counts are what a first walk found. */
struct ra__cuda_tables {
    struct ra__cuda_row *rows;
    struct ra__cuda_run *runs;
    struct ra__cuda_slot *slots;
    struct ra__cuda_key_tile *key_tiles;
    struct ra__cuda_part *parts;
    struct ra__cuda_piece *pieces;
    int64_t row_count, run_count, slot_count, key_tile_count, part_count, piece_count;
};

struct ra__cuda_program {
    const struct ra__program *program;
    struct ra__cuda_tables tables;     /* on the device */
    struct ra__cuda_step_table *steps; /* [step], in host memory */
    struct ra__cuda_wave *waves;
    int wave_count;
    int64_t *pairs;   /* [step] */
    void *own;        /* of the plan's scheduler; NULL: none */
    bool writes_keys; /* its GRADIENT step writes dk and dv: their sums are not used */
    bool one_queue;   /* all of its steps are on the queue that computes; nobody waits for one */
};

/* ---- prepare.c: once per plan ---------------------------------------------------------------- */

/* Steps whose pairs count as soon as they are done. */
enum { RA__CUDA_PENDING = 64 };
struct ra__cuda_pending {
    struct ra__event event;
    int64_t pairs;
};

/* A copy on the device of what the caller has in host memory, made when a run first needs it. */
struct ra__cuda_twin {
    void *data;
    size_t bytes;
    uint64_t run; /* that it was made for, or that began with it */
};

struct ra__cuda_plan {
    const struct ra__kernel *kernel;            /* reads tables */
    const struct ra__cuda_scheduler *scheduler; /* asked first; NULL: none */
    struct ra__cuda_device *device;
    struct ra__cuda_program programs[2]; /* by direction */
    void *block;                         /* all of the plan that is in device memory */
    void *scratch;                       /* of the scheduler's launches */
    size_t scratch_bytes;
    /* In it: */
    float *alibi, *sinks;                /* [query heads of the problem] */
    int32_t *origin, *see_from, *see_to; /* NULL: none */
    double *sink_sums;                   /* [query heads] */
    float *dsinks;                       /* [query heads] */
    int64_t *counts;                     /* [batch], of keys; NULL: never counted */
    unsigned long long *pair_counts; /* [step] */
    struct ra__cuda_twin bias, dbias;
    int dbias_left; /* GRADIENT steps of the run that have not added to it yet */
    struct ra__cuda_pending pending[RA__CUDA_PENDING];
    int pending_first, pending_count;
    int64_t pairs;
};

ra_status ra__cuda_prepare(const struct ra__setup *setup, struct ra__arena *arena, void **prepared);
void ra__cuda_release(void *prepared, struct ra__buffers *pool, const struct ra__account *account);
int64_t ra__cuda_pairs(const void *prepared);
/* Adds the pairs of steps that are done; in a call, which has entered the device. */
void ra__cuda_collect_pairs(struct ra__cuda_plan *plan);

/* The tables of a program: counted where `tables` has no arrays, filled where it has. */
ra_status ra__cuda_tables_rows(const struct ra__cuda_program *program,
                               struct ra__cuda_tables *tables);
ra_status ra__cuda_tables_slots(struct ra__cuda_program *program,
                                const struct ra__cuda_tiling *tiling,
                                const struct ra__cuda_facts *facts, struct ra__cuda_tables *tables);
ra_status ra__cuda_tables_keys(struct ra__cuda_program *program, int tile_keys,
                               struct ra__cuda_tables *tables);
/* Of tables that are filled: does one wave have every key once, so that it may write dk and dv? */
bool ra__cuda_tables_cover(const struct ra__cuda_program *program,
                           const struct ra__cuda_tables *tables);
ra_status ra__cuda_tables_pieces(struct ra__cuda_program *program, struct ra__cuda_tables *tables);

/* ---- copy.c, bias.c, issue.c ----------------------------------------------------------------- */

/* A step that is queued. */
struct ra__cuda_running {
    struct ra__cuda_device *device;
    struct ra__cuda_plan *plan;
    const struct ra__cuda_program *program;
    const struct ra__launch *launch;
};

ra_status ra__cuda_load(const struct ra__cuda_running *run, struct ra__cuda_queue *queue);
ra_status ra__cuda_store(const struct ra__cuda_running *run, struct ra__cuda_queue *queue);
/* The bias of the call, as kernels read it. */
ra_status ra__cuda_set_bias(const struct ra__cuda_running *run, cudaStream_t stream,
                            struct ra__cuda_terms *terms);
/* Its gradient, if it is wanted: cleared once per run; and what a GRADIENT step adds to it. */
ra_status ra__cuda_begin_dbias(const struct ra__cuda_running *run, struct ra__cuda_queue *queue);
ra_status ra__cuda_add_dbias(const struct ra__cuda_running *run, const struct ra__cuda_step *step,
                             struct ra__cuda_queue *queue);
ra_status ra__cuda_issue(void *device, void *prepared, const struct ra__launch *launch,
                         struct ra__event *done);
bool ra__cuda_has_one_queue(const struct ra__program *program);

/* ---- choose.c: kernels ----------------------------------------------------------------------- */

ra_status ra__cuda_choose(const void *device, int number, const char *name,
                          const struct ra__shape *shape, bool backward,
                          const struct ra__kernel **out);
bool ra__cuda_kernel_at(int number, int index, struct ra__kernel_facts *out);
/* The kernel itself, or, where it has a scheduler, the one that runs what that leaves out. */
const struct ra__kernel *ra__cuda_tabled(const struct ra__kernel *kernel,
                                         const struct ra__shape *shape, bool backward);

/* ---- gpus.c: what there is ------------------------------------------------------------------- */

bool ra__cuda_device_at(int number, struct ra__device_facts *out);
/* All of them in a line, or why there is none. Stays valid. */
const char *ra__cuda_about(void);

#endif
