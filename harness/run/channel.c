/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - one tensor of a run that streams. */
#include "channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/half.h"

enum {
    SCRATCH_VALUES = 1 << 16, /* of each thread: a row as f32, or values between two dtypes */
    PART_BYTES = 1 << 19      /* less is not worth another thread */
};

int channels_open(struct channels *channels, int helpers)
{
    if (helpers > 0) channels->helpers = helpers_start(helpers);
    const size_t threads = (size_t)helpers_threads(channels->helpers);
    channels->scratch = malloc(threads * SCRATCH_VALUES * sizeof(float));
    return channels->scratch ? EXIT_PASS : fault("out of memory");
}

void channels_close(struct channels *channels)
{
    helpers_stop(channels->helpers);
    free(channels->scratch);
}

ra_status channels_fail(struct channels *channels, const char *why)
{
    snprintf(channels->why, sizeof channels->why, "%s%s", why,
             channels->kept ? "; what is done is kept, and --resume continues" : "");
    return ra_transport_error(RA_ERR_SYSTEM, channels->why);
}

ra_status channel_fail(const struct channel *c, int error)
{
    char why[400];
    snprintf(why, sizeof why, "%s: %s: %s", tensor_name(c->tensor),
             c->file.path ? c->file.path : "temporary file", strerror(error));
    return channels_fail(c->owner, why);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* What a thread does with adjacent rows of a callback; 0, or what went wrong. */
typedef int part_function(struct channel *channel, float *scratch, int64_t batch, int64_t first,
                          int64_t count, char *rows);

struct job {
    part_function *function;
    struct channel *channel;
    int64_t batch, first, count;
    char *rows;
    int parts;
    atomic_int error;
};

static size_t row_bytes(const struct channel *c) { return (size_t)c->width * half_bytes(c->dtype); }

static void run_part(void *context, int index)
{
    struct job *job = context;
    struct channel *c = job->channel;
    const int64_t from = job->count * index / job->parts;
    const int64_t to = job->count * (index + 1) / job->parts;
    const int error = job->function(c, c->owner->scratch + (size_t)index * SCRATCH_VALUES,
                                    job->batch, job->first + from, to - from,
                                    job->rows + (size_t)from * row_bytes(c));
    if (error) atomic_store(&job->error, error);
}

/* The rows of a callback, shared by the threads; 0, or what one of them returned. */
static int run_parts(struct channel *c, part_function *function, int64_t batch, int64_t first,
                     int64_t count, void *rows)
{
    const size_t most = (size_t)count * row_bytes(c) / PART_BYTES + 1;
    const int threads = helpers_threads(c->owner->helpers);
    struct job job = {
        function, c, batch, first, count, rows, most < (size_t)threads ? (int)most : threads, 0
    };
    helpers_run(c->owner->helpers, job.parts, run_part, &job);
    return atomic_load(&job.error);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* How many positions from an index on are adjacent in original order too. */
static int64_t adjacent(const struct channels *s, int64_t first, int64_t count)
{
    const int64_t *origin = s->origin;
    int64_t some = 1;
    if (!origin) return count;
    while (some < count && origin[first + some] == origin[first] + some) some++;
    return some;
}

static int64_t origin_of(const struct channels *s, int64_t index)
{
    return s->origin ? s->origin[index] : index;
}

static void generate(const struct channel *c, float *scratch, int64_t batch, int64_t index,
                     char *to)
{
    const struct channels *s = c->owner;
    const int64_t heads = tensor_heads(s->trial, c->tensor), dim = tensor_dim(s->trial, c->tensor);
    for (int64_t h = 0; h < heads; h++, to += (size_t)dim * half_bytes(c->dtype))
        data_make(&c->recipe, c->dtype, batch, origin_of(s, index), h, scratch, to);
}

static int make_part(struct channel *c, float *scratch, int64_t batch, int64_t first, int64_t count,
                     char *rows)
{
    for (int64_t i = 0; i < count; i++)
        generate(c, scratch, batch, first + i, rows + (size_t)i * row_bytes(c));
    return 0;
}

static int read_part(struct channel *c, float *scratch, int64_t batch, int64_t first, int64_t count,
                     char *rows)
{
    (void)scratch;
    for (int64_t some; count > 0; first += some, count -= some) {
        some = adjacent(c->owner, first, count);
        const int64_t value = (batch * c->length + origin_of(c->owner, first)) * c->width;
        const int error = npy_fetch_at(c->input, value, some * c->width, c->dtype, rows);
        if (error) return error;
        rows += (size_t)some * row_bytes(c);
    }
    return 0;
}

ra_status channel_read_input(void *context, int64_t batch, int64_t first, int64_t count, void *to)
{
    struct channel *c = context;
    const int error = run_parts(c, c->input ? read_part : make_part, batch, first, count, to);
    return error ? channels_fail(c->owner, npy_why(c->input, error)) : RA_OK;
}

/* ---- Results --------------------------------------------------------------------------------- */

bool channel_move(const struct channel *c, bool write, void *data, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t moved = write ? pwrite(c->descriptor, (char *)data + done, bytes - done,
                                       at + (off_t)done)
                              : pread(c->descriptor, (char *)data + done, bytes - done,
                                      at + (off_t)done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved == 0) errno = EIO;
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

off_t channel_place(const struct channel *c, int64_t batch, int64_t position)
{
    return c->offset +
           (off_t)((batch * c->length + position) * c->width) * (off_t)half_bytes(c->stored);
}

/* Adjacent positions of a file. Where dtypes differ, one is f32; then some values at a time. */
static bool move_positions(const struct channel *c, float *scratch, bool write, char *data,
                           int64_t count, off_t at)
{
    const size_t ours = half_bytes(c->dtype), theirs = half_bytes(c->stored);
    size_t values = (size_t)(count * c->width);
    if (c->dtype == c->stored) return channel_move(c, write, data, values * ours, at);
    for (size_t some; values > 0;
         values -= some, data += some * ours, at += (off_t)(some * theirs)) {
        some = values < SCRATCH_VALUES ? values : SCRATCH_VALUES;
        if (write) half_to_float(c->dtype, data, (int64_t)some, scratch);
        if (!channel_move(c, write, scratch, some * theirs, at)) return false;
        if (!write) half_from_float(c->dtype, scratch, (int64_t)some, data);
    }
    return true;
}

static int move_part(const struct channel *c, float *scratch, bool write, int64_t batch,
                     int64_t first, int64_t count, char *rows)
{
    for (int64_t some; count > 0; first += some, count -= some) {
        some = adjacent(c->owner, first, count);
        const off_t at = channel_place(c, batch, origin_of(c->owner, first));
        if (!move_positions(c, scratch, write, rows, some, at)) return errno;
        rows += (size_t)some * row_bytes(c);
    }
    return 0;
}

static int read_again_part(struct channel *c, float *scratch, int64_t batch, int64_t first,
                           int64_t count, char *rows)
{
    return move_part(c, scratch, false, batch, first, count, rows);
}

ra_status channel_read_result(void *context, int64_t batch, int64_t first, int64_t count, void *to)
{
    struct channel *c = context;
    const int error = run_parts(c, read_again_part, batch, first, count, to);
    return error ? channel_fail(c, error) : RA_OK;
}

static void keep_rows(const struct channel *c, int64_t batch, int64_t first, int64_t count,
                      const char *from)
{
    const size_t bytes = sample_bytes(&c->sample);
    for (int i = 0; i < c->sample.count; i++) {
        const int64_t row = c->sample.indices[i] - first;
        if (row >= 0 && row < count)
            memcpy(sample_at(&c->sample, i, batch), from + (size_t)row * bytes, bytes);
    }
}

static void add_digest(struct channel *c, int64_t batch, int64_t first, int64_t count,
                       const char *from)
{
    uint64_t sum = 0;
    for (int64_t row = 0; row < count; row++, from += row_bytes(c)) {
        const int64_t position = batch * c->length + origin_of(c->owner, first + row);
        sum += data_digest(c->dtype, from, position * c->width, c->width);
    }
    atomic_fetch_add(&c->digest, sum);
}

static int write_part(struct channel *c, float *scratch, int64_t batch, int64_t first,
                      int64_t count, char *rows)
{
    if (c->owner->digests) add_digest(c, batch, first, count, rows);
    if (c->descriptor >= 0) return move_part(c, scratch, true, batch, first, count, rows);
    keep_rows(c, batch, first, count, rows);
    return 0;
}

ra_status channel_write_result(void *context, int64_t batch, int64_t first, int64_t count,
                               const void *from)
{
    struct channel *c = context;
    const int error = run_parts(c, write_part, batch, first, count, (void *)from);
    return error ? channel_fail(c, error) : RA_OK;
}
