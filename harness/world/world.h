/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - the processes that were started together, where ranks are processes.
 *
 * Each of them runs the whole command; the first one speaks for all. Where ranks are threads, or
 * before world_open(), the world is this process alone and everything here is a matter of
 * course. */
#ifndef HARNESS_WORLD_H
#define HARNESS_WORLD_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"
#include "harness/problem/wire.h"

/* Joins the other processes if the trial's transport is for processes; once. The trial's ring
 * becomes, and must be, as wide as the world. From then on only the first process writes to
 * stdout. */
int world_open(struct trial *trial, struct wire wire);

/* Processes that a launcher of MPI started together, but that are no ranks of one ring, each do all
 * of the work: the first one prints a hint. After world_open(). */
void world_hint(void);

/* Ends the world; with the exit status of a failure the others are told to stop. */
void world_close(int status);

/* Does a trial run on the processes of the world? */
bool world_runs(const struct trial *trial);

int world_rank(void);
int world_size(void);
bool world_first(void);

/* A few bytes of every process, in the order of ranks: all[0 .. size - 1]. */
int world_share(const void *mine, void *all, size_t bytes);

/* After a step that may fail on some: the worst status of all. Returns when all came here. */
int world_agree(int status);

/* Between two of these calls: this process still lives. Main thread only. */
void world_poll(void);

#endif
