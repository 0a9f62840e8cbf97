/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - the tensors of a rank: where they are stored and what fills them. For engine.c alone;
 * others look at shards through engine.h. */
#ifndef HARNESS_SHARDS_H
#define HARNESS_SHARDS_H

#include "engine.h"

int shards_runs(struct engine *engine, int rank);  /* which positions are a rank's */
int shards_open(struct engine *engine, int rank);  /* memory for its tensors */
int shards_terms(struct engine *engine, int rank); /* its bias, and room for dsinks */

/* Fills a tensor that is read. It is called inside a rank: the sentence of a failure is the
 * library's (ra_last_error). */
ra_status shards_fill(struct engine *engine, int rank, enum tensor tensor);

#endif
