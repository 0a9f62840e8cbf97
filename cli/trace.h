/* trace.h - collects what the ranks did, for the Chrome trace viewer. */
#ifndef CLI_TRACE_H
#define CLI_TRACE_H

#include <pthread.h>

#include "cli.h"
#include "outfile.h"

struct trace {
    pthread_mutex_t lock;
    ra_trace_event *events;
    size_t count, capacity;
    bool lost; /* memory ran out: some events are missing */
};
#define TRACE_EMPTY                                                                                \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

void trace_add(struct trace *trace, const ra_trace_event *event); /* any thread */

/* Writes the file but leaves it uncommitted. */
int trace_write(const struct trace *trace, struct outfile *file, const char *path);
void trace_free(struct trace *trace);

#endif
