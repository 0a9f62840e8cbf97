/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_stream.h - tensors that are not in memory: the strategy "stream" reads and writes them
 * in blocks of rows, through callbacks.
 *
 *     ra_plan_options   strategy = "stream" (or "auto"), sources = 1, memory = the budget
 *     ra_attend_args    stream = &callbacks, and no q, k, v, out, lse
 *     ra_gradient_args  likewise
 *
 * One rank. The budget limits what the plan allocates; what the callbacks use does not count.
 * Blocks are read ahead and written back while others are computed, on a CPU by a thread of the
 * library, on a GPU by the thread that calls: at most one callback runs at a time, and none after
 * the call has returned.
 *
 * RESUMING  A run is divided into units, whose results are final as soon as they are written:
 * blocks of queries forward, blocks of keys backward. `done` is called when all results of a unit
 * have been written. A later run with an equal plan may skip the units that `finished` names.
 *
 * ON A DEVICE  With `queue`, rows are in memory of the device, and callbacks queue what they do:
 * before each of them the library sets *queue to a queue of the device (a cudaStream_t). Work that
 * is put there starts when the rows may be used, and what the library does next waits for it; rows
 * are not to be used later. The device is that of the thread, and `done` is called when the work of
 * its unit is complete. So data can be made, or results reduced, where they are computed. */
#ifndef RINGATTN_STREAM_H
#define RINGATTN_STREAM_H

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a tensor [batch, position, head, dim], packed, in the dtype of the problem (f32 for lse
 * and dlse, which have no dim, and for partial_dq): positions first to first + count - 1 of one
 * batch item. A callback that fails ends the run; it gives the reason with ra_transport_error().
 * This struct never grows. */
typedef struct ra_rows {
    ra_status (*read)(void *context, int64_t batch, int64_t first, int64_t count, void *to);
    ra_status (*write)(void *context, int64_t batch, int64_t first, int64_t count,
                       const void *from);
    void *context;
} ra_rows;

typedef struct ra_stream {
    size_t size;        /* by ra_stream_default() */
    ra_rows q, k, v;    /* read */
    ra_rows out, lse;   /* written by ra_attend(), read by ra_gradient(); lse may have no write */
    ra_rows dout, dlse; /* read by ra_gradient(); dlse may have no read: 0 */
    ra_rows dq, dk, dv; /* written by ra_gradient() */
    /* Two tensors shaped like dq, in f32, for sums that later blocks continue: written and read
     * back by ra_gradient(). What was in them before does not matter, unless a run is resumed. */
    ra_rows partial_dq[2];
    /* Was this unit done by an earlier run? Then it is skipped. Units are done in ascending order;
     * if one is skipped, all before it must be. NULL = none was. */
    int (*finished)(void *context, int backward, int64_t unit);
    ra_status (*done)(void *context, int backward, int64_t unit); /* may be NULL */
    void *context;                                                /* of these two */
    void **queue; /* NULL: rows are in host memory */
} ra_stream;
RA_DEFAULT_(ra_stream)

/* How many units a run has; 0 for other strategies. And the positions of a block. */
RA_API int64_t ra_plan_units(const ra_plan *plan, int backward);
RA_API int64_t ra_plan_block(const ra_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
