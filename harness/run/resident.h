/* SPDX-License-Identifier: Apache-2.0 */
/* resident.h - tensors of ranks in memory of the device, so that runs are timed without copies.
 * Each has a twin of the same strides there: inputs are copied to it once, results from it after
 * each pass. */
#ifndef HARNESS_RESIDENT_H
#define HARNESS_RESIDENT_H

#include "engine.h"

/* Twins for the tensors of all ranks; refused where the device has no module for them. */
int resident_open(struct engine *engine);
void resident_close(struct engine *engine); /* also of an engine without twins */

ra_status resident_fill(const struct engine *engine, int rank); /* inputs, once they are there */

/* Until everything on a queue of the device is done. */
ra_status resident_wait(const struct engine *engine, int rank, void *queue);

/* Results of a pass. */
int resident_fetch(const struct engine *engine, bool backward);

/* The tensor as a call of the library takes it: the twin, or the tensor itself. */
static inline ra_tensor resident_tensor(const struct engine_rank *rank, enum tensor tensor)
{
    const struct view *view = &rank->views[tensor];
    char *twin = rank->twins[tensor];
    return (ra_tensor){ twin ? twin : view->data, view->batch_stride, view->position_stride,
                        view->head_stride };
}

#endif
