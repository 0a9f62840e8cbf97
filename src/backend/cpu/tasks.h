/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.h - a backward step as tasks that many threads can take, and their order.
 *
 * The keys a step works on are divided into chunks, and so are its queries. A task is one chunk of
 * queries against one chunk of keys, for one KV head of one batch item (a kv_item). It adds to dK
 * and dV of its keys and to dQ of its queries. So tasks of one kv_item that share a chunk come one
 * after the other, in the order of one list; all others may run at the same time. The list is made
 * from the problem alone, so sums have the same order, and the same bits, for any number of
 * threads.
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

/* The most chunks that a kv_item is divided into if there are so many of them: many kv_items keep
 * many threads busy as they are. kv_items x chunks^2 is at most RA__MOST_TASKS if there is more
 * than one chunk. */
enum { RA__MOST_TASKS = 2048 };
int ra__tasks_most(int64_t kv_items);

/* Makes the list of the tasks that have work. */
void ra__tasks_order(struct ra__tasks *tasks);

#endif
