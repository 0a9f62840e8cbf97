/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - which rank a process is, and how ranks get the id by which they find one another. Knows
 * nothing of NCCL: an id is bytes. */
#ifndef RA__TRANSPORT_NCCL_MEET_H
#define RA__TRANSPORT_NCCL_MEET_H

#include <stdbool.h>
#include <stddef.h>

struct place {
    int rank, ranks;
    int device; /* of this rank; -1: its number on its host is not known */
};

/* By the environment that launchers give to processes; a ring of one without a launcher. NULL, or
 * what is wrong with it. */
const char *meet_launched(struct place *place);

/* The file of the n-th group that processes which were started together make. False: the name is
 * longer than there is room. */
bool meet_path(char *path, size_t room, int n);

/* Rank 0 writes the id for the others, who read it. `path` must not be in use by another group.
 * Returns NULL, or why not: a sentence that stays valid until the next call. */
const char *meet_write(const char *path, const void *id, size_t bytes);
/* Until the file is there and complete, at most so many seconds. */
const char *meet_read(const char *path, void *id, size_t bytes, double seconds);
void meet_forget(const char *path); /* rank 0, when all have met */

#endif
