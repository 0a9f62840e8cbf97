/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.h - a backward step as tasks that many threads can take, and their order.
 *
 * The keys a step works on are cut into chunks, and so are its queries. A task is all that one
 * chunk of queries and one chunk of keys give one another, for one KV head of one batch item (a
 * lane): it adds to dK and dV of its keys and to dQ of its queries. Tasks of one lane that share a
 * chunk therefore come one after the other, in the order of one list; all others may run at the
 * same time. The list is made from the problem alone, so sums have the same order, and the same
 * bits, for any number of threads.
 *
 * The list goes by phases whose tasks have nothing in common: a Latin square. Knows only counts. */
#ifndef RA__BACKEND_CPU_TASKS_H
#define RA__BACKEND_CPU_TASKS_H

#include <stdbool.h>
#include <stdint.h>

enum { RA__MOST_CHUNKS = 16 };

struct ra__task {
    unsigned char keys, queries; /* which chunks */
    short after[2];              /* the last tasks before it on these keys and queries; -1: none */
};

struct ra__tasks {
    int chunks;                                     /* of keys, and of queries */
    int64_t work[RA__MOST_CHUNKS][RA__MOST_CHUNKS]; /* [keys][queries]: pairs, roughly; 0 = none */
    int count;                                      /* of tasks that have work */
    struct ra__task list[RA__MOST_CHUNKS * RA__MOST_CHUNKS];
};

/* The most chunks that a lane is cut into where there are so many lanes: many lanes keep many
 * threads busy as they are. lanes x chunks^2 is at most RA__MOST_TASKS where there is more than one
 * chunk. */
enum { RA__MOST_TASKS = 2048 };
int ra__tasks_most(int64_t lanes);

/* Makes the list of the tasks that have work. */
void ra__tasks_order(struct ra__tasks *tasks);

#endif
