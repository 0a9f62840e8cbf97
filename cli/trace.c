/* trace.c - collects what the ranks did, for the Chrome trace viewer. */
#include "trace.h"

#include <stdlib.h>

#include "json.h"

static bool make_room(struct trace *trace)
{
    if (trace->count < trace->capacity) return true;
    size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
    ra_trace_event *events = realloc(trace->events, capacity * sizeof *events);
    if (!events) return false;
    trace->events = events;
    trace->capacity = capacity;
    return true;
}

void trace_add(struct trace *trace, const ra_trace_event *event)
{
    pthread_mutex_lock(&trace->lock);
    if (make_room(trace)) trace->events[trace->count++] = *event;
    else trace->lost = true;
    pthread_mutex_unlock(&trace->lock);
}

static void write_event(struct json *json, const ra_trace_event *event, double origin)
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
    json_close(&json, '}');
    return outfile_finish(file);
}

void trace_free(struct trace *trace) { free(trace->events); }
