/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - the threads of one rank. The thread that calls the library works too, so a rank of
 * one thread has no workers and costs nothing. */
#ifndef RA__BACKEND_CPU_WORKERS_H
#define RA__BACKEND_CPU_WORKERS_H

#include "core/event.h"
#include "core/memory.h"

struct ra__workers;

struct ra__workers_options {
    int threads;    /* with the calling one */
    bool spin;      /* wait awake for a moment before sleeping: where every thread has a core */
    bool pin;       /* worker i stays on core first_core + i of those the caller may use */
    int first_core; /* the calling thread is the caller's and is not pinned */
};
ra_status ra__workers_create(const struct ra__workers_options *options, struct ra__workers **out);
void ra__workers_destroy(struct ra__workers *workers); /* accepts NULL */
int ra__workers_threads(const struct ra__workers *workers);

/* Work in `items` parts: body(context, item, thread) for each item, on any thread. Items are
 * started in ascending order, each once ready(context, item) holds; that may depend on earlier
 * items being done, by atomics that a body sets, and on nothing else. */
struct ra__work {
    void (*body)(void *context, int64_t item, int thread);
    bool (*ready)(void *context, int64_t item); /* NULL: items are independent */
    void *context;
    int64_t items;
};

/* Returns when all items are done. The heartbeat is called on the calling thread, between its items
 * and while it waits; when it fails no further item is started, and its status is returned once the
 * running ones are done. */
ra_status ra__workers_run(struct ra__workers *workers, const struct ra__work *work,
                          const struct ra__heartbeat *heartbeat);

/* For bodies that take long, between two parts of one: calls the heartbeat, where `thread` is the
 * calling one, and returns whether to continue. */
bool ra__workers_continue(struct ra__workers *workers, int thread);

#endif
