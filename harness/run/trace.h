/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - collects what the ranks did, for the Chrome trace viewer. */
#ifndef HARNESS_TRACE_H
#define HARNESS_TRACE_H

#include <pthread.h>

#include "harness/base/complain.h"
#include "harness/files/outfile.h"

/* A ra_trace_event that can be sent to another process. */
struct trace_event {
    char name[16];
    int rank, hop, block;
    double start, seconds;
};

struct trace {
    pthread_mutex_t lock;
    struct trace_event *events;
    size_t count, capacity;
    bool lost;    /* memory ran out: some events are missing */
    double doubt; /* seconds by which events of different ranks may be out of place */
};
#define TRACE_EMPTY                                                                                \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

void trace_add(struct trace *trace, const ra_trace_event *event); /* any thread */

/* Where ranks are processes: the first one gets the events of all, by its own clock. All call
 * it. */
int trace_gather(struct trace *trace);

/* Writes the file but leaves it uncommitted. */
int trace_write(const struct trace *trace, struct outfile *file, const char *path);
void trace_free(struct trace *trace);

#endif
