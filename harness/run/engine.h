/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - runs a trial through the library on a ring of threads, or, where ranks are processes,
 * this process's part of it.
 *
 *     engine_open()      plans, allocates, fills every rank's shard
 *     engine_forward()   as often as you like
 *     engine_backward()  likewise, after a forward pass
 *     engine_close()
 */
#ifndef HARNESS_ENGINE_H
#define HARNESS_ENGINE_H

#include <stdatomic.h>

#include "harness/base/complain.h"
#include "harness/data/data.h"
#include "forecast.h"
#include "link.h"
#include "harness/files/npy.h"
#include "harness/data/terms.h"
#include "planner.h"
#include "streaming.h"
#include "trace.h"
#include "harness/problem/trial.h"
#include "harness/problem/wire.h"

/* Tensors from files. Whole, packed, in the trial's dtype; or, where ranks are processes, open
 * files of which each rank reads what it needs. NULL where there is none. */
struct inputs {
    void *data[TENSOR_COUNT];
    struct npy_file *files[TENSOR_COUNT];
};

struct engine_setup {
    const struct trial *trial;
    const struct inputs *inputs; /* NULL = synthetic data */
    int64_t memory;              /* budget per rank; 0 = none */
    struct wire wire;
    struct link_setup link; /* in place of the transport, where it has a bandwidth */
    struct trace *trace;    /* NULL = none */
    int64_t pool;           /* least bytes of shared buffers; -1 = none, 0 = the default */
    bool quiet;             /* no progress line */
    bool resident;          /* tensors stay in memory of the device: resident.h */
    /* Where results go if the plan streams; NULL: tensors are in memory in any case. */
    const struct stream_files *stream;
};

struct engine_rank {
    struct view views[TENSOR_COUNT]; /* this rank's shards */
    void *owned[TENSOR_COUNT];       /* their memory, unless borrowed from the inputs */
    void *twins[TENSOR_COUNT];       /* the same on the device; NULL: none */
    int64_t counts[2];               /* positions: queries, keys */
    ra_run *runs[2];
    int64_t run_counts[2];
    void *bias; /* rows of this rank's queries; owned unless `bias_borrowed` */
    bool bias_borrowed;
    float *dsinks; /* [q_heads], of this rank's queries */
    ra_plan *plan;
    ra_stats forward, backward;
    ra_memory memory;
    size_t peak_rss; /* of its process, bytes */
    atomic_int done; /* millionths of the running pass */
};

struct engine {
    struct engine_setup setup;
    const struct trial *trial;
    struct forecast forecast;
    struct planner planner;
    int64_t *origin;  /* original position of every index; NULL: sequential, as the next one */
    int64_t *indices; /* index of every original position */
    struct terms terms;
    float *dsinks;         /* [q_heads], over all ranks; NULL without sinks or backward */
    ra_layout *layouts[2]; /* queries, keys; by index */
    ra_group **groups;
    struct engine_rank *rank;
    int ranks;
    int first, count; /* ranks of this process: all, or one of those of other processes */
    bool joined;      /* the latter */
    int threads;
    struct streaming *streaming; /* NULL: tensors are in memory */
    const struct maker *maker;   /* of the device, if tensors are resident */
    bool in_backward;
    double forward_seconds, backward_seconds; /* of the last pass, over all ranks */
};

int engine_open(struct engine *engine, const struct engine_setup *setup);
int engine_forward(struct engine *engine);
int engine_backward(struct engine *engine);

/* A pass `count` times on the one rank there is, and the seconds of all together. A device has them
 * in its queue one after the other, and is waited for once. Results stay where they are: nothing is
 * copied from a device. */
int engine_repeat(struct engine *engine, bool backward, int count, double *seconds);

void engine_close(struct engine *engine); /* accepts a half-opened one */

/* Plans anew, as a caller would who keeps no plan. Where ranks are processes, all call it. */
int engine_replan(struct engine *engine);

/* The shard and the index in it of an original position; NULL if it belongs to another process. */
const struct view *engine_find(const struct engine *engine, enum tensor tensor, int64_t position,
                               int64_t *local);

/* One row of a tensor as f32, by its original position. */
void engine_read(const struct engine *engine, enum tensor tensor, int64_t batch, int64_t position,
                 int64_t head, float *to);

/* The whole tensor in original order, packed; not where ranks are processes. *memory is to be
 * freed, or NULL where the only shard is already that. */
int engine_gather(const struct engine *engine, enum tensor tensor, const void **data,
                  void **memory);

#endif
