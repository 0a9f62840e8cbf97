/* SPDX-License-Identifier: Apache-2.0 */
/* shardfile.c - the part of a rank in the file of a whole tensor. */
#include "shardfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/half.h"
#include "harness/world/world.h"

/* Positions that are adjacent in the file and in the shard. */
struct range {
    int64_t position, local, count;
};

/* The place of a walk over the ranges of a shard. */
struct walk {
    const struct shard *shard;
    int64_t run, index, local;
};

static int64_t position_at(const struct walk *walk)
{
    const ra_run *run = &walk->shard->runs[walk->run];
    int64_t index = run->start + walk->index * run->step;
    return walk->shard->origin ? walk->shard->origin[index] : index;
}

static void step(struct walk *walk)
{
    walk->local++;
    if (++walk->index < walk->shard->runs[walk->run].count) return;
    walk->run++;
    walk->index = 0;
}

/* The next range of at most this many positions; false after the last. */
static bool next(struct walk *walk, int64_t most, struct range *out)
{
    while (walk->run < walk->shard->run_count && !walk->shard->runs[walk->run].count) walk->run++;
    if (walk->run >= walk->shard->run_count) return false;
    *out = (struct range){ position_at(walk), walk->local, 0 };
    do {
        step(walk);
        out->count++;
    } while (walk->run < walk->shard->run_count && walk->shard->runs[walk->run].count &&
             out->count < most && position_at(walk) == out->position + out->count);
    return true;
}

/* Values of one position; and how many positions are moved at a time: a few megabytes. */
static int64_t width_of(const struct trial *trial, enum tensor tensor)
{
    return tensor_heads(trial, tensor) * tensor_dim(trial, tensor);
}

static int64_t most_positions(int64_t width) { return (1 << 20) / width + 1; }

ra_status shardfile_read(struct npy_file *file, const struct trial *trial, enum tensor tensor,
                         const struct shard *shard, const struct view *view)
{
    int64_t width = width_of(trial, tensor), length = tensor_length(trial, tensor);
    struct range s;
    for (int64_t b = 0; b < trial->batch; b++)
        for (struct walk walk = { .shard = shard }; next(&walk, most_positions(width), &s);) {
            const char *why = npy_read_at(file, (b * length + s.position) * width, s.count * width,
                                          view->dtype, view_row(view, b, s.local, 0));
            if (why) return ra_transport_error(RA_ERR_SYSTEM, why);
            world_poll();
        }
    return RA_OK;
}

/* All bytes, or false. */
static bool write_at(int descriptor, const void *from, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(descriptor, (const char *)from + done, bytes - done, at + (off_t)done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

static bool write_ranges(int descriptor, const struct shardfile *to, const struct trial *trial,
                         enum tensor tensor, const struct shard *shard, const struct view *view)
{
    const int64_t width = width_of(trial, tensor), most = most_positions(width);
    const int64_t length = tensor_length(trial, tensor);
    const size_t bytes = half_bytes(to->dtype);
    const bool converts = view->dtype != to->dtype;
    float *wide = converts ? malloc((size_t)(most * width) * sizeof *wide) : NULL;
    bool good = wide || !converts;
    struct range s;
    for (int64_t b = 0; b < trial->batch; b++)
        for (struct walk walk = { .shard = shard }; good && next(&walk, most, &s);) {
            const void *from = view_row(view, b, s.local, 0);
            const off_t first = (off_t)((b * length + s.position) * width);
            if (converts) half_to_float(view->dtype, from, s.count * width, wide);
            good = write_at(descriptor, converts ? wide : from, (size_t)(s.count * width) * bytes,
                            (off_t)to->offset + first * (off_t)bytes);
            world_poll();
        }
    free(wide);
    return good;
}

int shardfile_write(const struct shardfile *to, const struct trial *trial, enum tensor tensor,
                    const struct shard *shard, const struct view *view)
{
    int descriptor = open(to->path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fault("%s: cannot be opened here, as the first rank made it: %s", to->path,
                     strerror(errno));
    bool good = write_ranges(descriptor, to, trial, tensor, shard, view) && fsync(descriptor) == 0;
    int error = errno;
    if (close(descriptor) && good) {
        good = false;
        error = errno;
    }
    return good ? EXIT_PASS : fault("%s: writing failed: %s", to->path, strerror(error));
}
