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

/* Results of a pass. */
int resident_fetch(const struct engine *engine, bool backward);

/* The tensor as a call of the library takes it: the twin, or the tensor itself. */
struct view resident_view(const struct engine_rank *rank, enum tensor tensor);

#endif
