/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - collects what the ranks did, for the Chrome trace viewer. */
#include "trace.h"

#include <stdlib.h>

#include "harness/world/clocks.h"
#include "harness/text/json.h"
#include "harness/world/world.h"

/* ---- Collecting ------------------------------------------------------------------------------ */

static bool make_room(struct trace *trace)
{
    if (trace->count < trace->capacity) return true;
    size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
    struct trace_event *events = realloc(trace->events, capacity * sizeof *events);
    if (!events) return false;
    trace->events = events;
    trace->capacity = capacity;
    return true;
}

static void keep(struct trace *trace, const struct trace_event *event)
{
    if (make_room(trace)) trace->events[trace->count++] = *event;
    else trace->lost = true;
}

void trace_add(struct trace *trace, const ra_trace_event *event)
{
    struct trace_event own = { "",           event->rank,   event->hop, (int)event->block,
                               event->start, event->seconds };
    snprintf(own.name, sizeof own.name, "%s", event->name);
    pthread_mutex_lock(&trace->lock);
    keep(trace, &own);
    pthread_mutex_unlock(&trace->lock);
}

/* ---- From other processes -------------------------------------------------------------------- */

enum { BATCH = 32 }; /* events sent at a time: only the first process has those of all */

struct batch {
    size_t count, left; /* left: those still to come, these included */
    bool lost;
    double doubt;
    struct trace_event events[BATCH];
};

static struct batch batch_at(const struct trace *trace, size_t own, size_t from,
                             const struct clocks *clocks)
{
    struct batch batch = { .lost = trace->lost, .doubt = clocks->doubt };
    batch.left = own > from ? own - from : 0;
    batch.count = batch.left < BATCH ? batch.left : BATCH;
    for (size_t i = 0; i < batch.count; i++) {
        batch.events[i] = trace->events[from + i];
        batch.events[i].start -= clocks->ahead;
    }
    return batch;
}

/* The first process keeps what another sent; its own events are there already. */
static void keep_batch(struct trace *trace, const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) keep(trace, &batch->events[i]);
    trace->lost |= batch->lost;
    if (batch->doubt > trace->doubt) trace->doubt = batch->doubt;
}

/* Sends some of the first `own` events, this process's, from `from` on; *more if any process has
 * more. */
static int tell_batch(struct trace *trace, size_t own, size_t from, const struct clocks *clocks,
                      struct batch *all, bool *more)
{
    struct batch mine = batch_at(trace, own, from, clocks);
    int status = world_share(&mine, all, sizeof mine);
    *more = false;
    for (int rank = 0; rank < world_size() && !status; rank++) {
        if (rank > 0 && world_first()) keep_batch(trace, &all[rank]);
        *more |= all[rank].left > BATCH;
    }
    return status;
}

int trace_gather(struct trace *trace)
{
    struct clocks clocks;
    struct batch *all = calloc((size_t)world_size(), sizeof *all);
    int status = all ? EXIT_PASS : fault("out of memory: %d ranks", world_size());
    status = world_agree(status);
    if (!status) status = clocks_compare(&clocks);
    const size_t own = trace->count;
    bool more = true;
    for (size_t from = 0; more && !status; from += BATCH)
        status = tell_batch(trace, own, from, &clocks, all, &more);
    free(all);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_event(struct json *json, const struct trace_event *event, double origin)
{
    json_open(json, NULL, '{');
    json_text(json, "name", event->name);
    json_text(json, "ph", "X"); /* a span with start and duration */
    json_whole(json, "pid", 0);
    json_whole(json, "tid", event->rank);
    json_real(json, "ts", (event->start - origin) * 1e6);
    json_real(json, "dur", event->seconds * 1e6);
    json_open(json, "args", '{');
    json_whole(json, "hop", event->hop);
    json_whole(json, "block", event->block);
    json_close(json, '}');
    json_close(json, '}');
}

int trace_write(const struct trace *trace, struct outfile *file, const char *path)
{
    int status = outfile_open(file, path);
    if (status) return status;
    if (trace->lost) fprintf(stderr, "ringattn: memory ran out; %s misses events\n", path);
    double origin = trace->count ? trace->events[0].start : 0.0;
    for (size_t i = 0; i < trace->count; i++)
        if (trace->events[i].start < origin) origin = trace->events[i].start;
    struct json json = { .stream = file->stream };
    json_open(&json, NULL, '{');
    json_open(&json, "traceEvents", '[');
    for (size_t i = 0; i < trace->count; i++) write_event(&json, &trace->events[i], origin);
    json_close(&json, ']');
    json_text(&json, "displayTimeUnit", "ms");
    json_open(&json, "otherData", '{');
    json_real(&json, "clock_doubt_us", trace->doubt * 1e6);
    json_close(&json, '}');
    json_close(&json, '}');
    return outfile_finish(file);
}

void trace_free(struct trace *trace) { free(trace->events); }
