/* SPDX-License-Identifier: Apache-2.0 */
/* streaming.c - the tensors of a run that streams. */
#include "streaming.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/files/tensorfile.h"
#include "channel.h"
#include "identity.h"
#include "journal.h"
#include "ondevice.h"

/* Results, and the two partial sums of dQ. */
enum { PARTIAL = TENSOR_COUNT, CHANNELS = TENSOR_COUNT + 2 };

struct streaming {
    struct streaming_setup setup;
    const struct trial *trial;
    struct channels shared;
    struct channel channels[CHANNELS];
    struct ondevice *device; /* has the rows instead of the channels; NULL: they are on the host */
    struct journal journal;
    bool journaled; /* the journal is written */
    bool keeps;     /* files belong to a journal, whatever becomes of this run */
    bool sampled;
    ra_stream callbacks;
};

/* ---- Callbacks ------------------------------------------------------------------------------- */

static int was_finished(void *context, int backward, int64_t unit)
{
    const struct streaming *s = context;
    return s->journaled && s->journal.done[backward][unit];
}

/* Results first, then the journal that speaks of them. */
static ra_status unit_done(void *context, int backward, int64_t unit)
{
    struct streaming *s = context;
    for (int i = 0; s->setup.inputs && i <= TENSOR_DLSE; i++) {
        const char *why = s->setup.inputs[i] ? npy_changed(s->setup.inputs[i]) : NULL;
        if (why) return channels_fail(&s->shared, why);
    }
    if (!s->journaled) return RA_OK;
    for (int i = TENSOR_OUT; i < CHANNELS; i++) {
        const struct channel *c = &s->channels[i];
        const bool forward = i == TENSOR_OUT || i == TENSOR_LSE;
        if (c->descriptor >= 0 && forward == !backward && fdatasync(c->descriptor))
            return channel_fail(c, errno);
    }
    const char *why = journal_add(&s->journal, backward, unit);
    if (!why) return RA_OK;
    char sentence[400];
    snprintf(sentence, sizeof sentence, "%s: %s", s->journal.path, why);
    return channels_fail(&s->shared, sentence);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void describe(struct streaming *s, int index)
{
    const struct trial *t = s->trial;
    struct channel *c = &s->channels[index];
    c->owner = &s->shared;
    c->tensor = index < PARTIAL ? (enum tensor)index : TENSOR_DQ;
    c->width = tensor_heads(t, c->tensor) * tensor_dim(t, c->tensor);
    c->length = tensor_length(t, c->tensor);
    c->dtype = index < PARTIAL ? tensor_dtype(t, c->tensor) : RA_F32;
    c->stored = c->dtype;
    c->descriptor = -1;
    if (index <= TENSOR_DLSE) c->recipe = data_recipe(t, c->tensor);
    if (s->setup.inputs && index <= TENSOR_DLSE) c->input = s->setup.inputs[index];
}

static struct npy_output output_of(const struct streaming *s, const struct channel *c)
{
    const struct trial *t = s->trial;
    return (struct npy_output){ .dtype = c->dtype,
                                .axes = c->tensor == TENSOR_LSE ? 3 : 4,
                                .shape = { t->batch, c->length, tensor_heads(t, c->tensor),
                                           tensor_dim(t, c->tensor) } };
}

static off_t bytes_of(const struct streaming *s, const struct channel *c)
{
    return c->offset +
           (off_t)(s->trial->batch * c->length * c->width) * (off_t)half_bytes(c->stored);
}

/* The header of a result file, and so where its values start. */
static int make_header(struct streaming *s, struct channel *c, const char *path, char **header)
{
    const struct npy_output output = output_of(s, c);
    const struct tensorfile to = { .path = path };
    size_t bytes = 0;
    c->stored = tensorfile_dtype(&to, &output);
    *header = tensorfile_header(&to, &output, &bytes);
    c->offset = (off_t)bytes;
    return *header ? EXIT_PASS : fault("out of memory");
}

/* The file of the run that is resumed. If that run was complete, it may have its name. */
static int reopen_file(const struct streaming *s, struct channel *c)
{
    struct stat info;
    const char *name = c->file.temporary;
    c->descriptor = open(name, O_RDWR | O_CLOEXEC);
    if (c->descriptor < 0 && errno == ENOENT && s->journal.complete && c->named) {
        name = c->file.path;
        c->file.placed = true;
        c->descriptor = open(name, O_RDWR | O_CLOEXEC);
    }
    if (c->descriptor < 0)
        return refuse("%s: %s; remove %s to start from the beginning", name, strerror(errno),
                      s->journal.path);
    if (!fstat(c->descriptor, &info) && info.st_size == bytes_of(s, c)) return EXIT_PASS;
    return refuse("%s was changed; remove %s to start from the beginning", name, s->journal.path);
}

/* Opens the file of a channel, at its full length. */
static int open_file(struct streaming *s, struct channel *c, const char *header, bool resumed)
{
    const char *name = c->file.temporary;
    if (resumed) return reopen_file(s, c);
    c->descriptor = open(name, O_RDWR | O_CLOEXEC | O_CREAT | O_TRUNC, 0666);
    if (c->descriptor < 0) return fault("%s: cannot be made: %s", name, strerror(errno));
    if ((c->offset && !channel_move(c, true, (char *)header, (size_t)c->offset, 0)) ||
        ftruncate(c->descriptor, bytes_of(s, c)) || fsync(c->descriptor))
        return fault("%s: writing failed: %s", name, strerror(errno));
    return EXIT_PASS;
}

/* A result that the user named, or that a resumed run needs beside them. */
static int open_named(struct streaming *s, struct channel *c, const char *path, bool resumed)
{
    char *header = NULL;
    char *alone = tensorfile_path_with(path, "");
    int status = alone ? EXIT_PASS : fault("out of memory");
    if (!status && c->named) status = make_header(s, c, path, &header);
    if (!status && !s->setup.files->resume) status = outfile_name(&c->file, alone, (long)getpid());
    else if (!status) {
        c->file = (struct outfile){ .path = alone,
                                    .temporary = tensorfile_path_with(alone, ".part") };
        if (!c->file.temporary) status = fault("out of memory");
    }
    c->file.path = alone; /* ours from here on */
    if (!status) status = open_file(s, c, header, resumed);
    free(header);
    return status;
}

/* A result that nobody named but that is read again. It vanishes with the process. */
static int open_scratch(struct channel *c)
{
    FILE *stream = tmpfile();
    if (stream) c->descriptor = dup(fileno(stream));
    if (stream) fclose(stream);
    if (c->descriptor >= 0) return EXIT_PASS;
    return fault("no temporary file for %s: %s", tensor_name(c->tensor), strerror(errno));
}

static int open_result(struct streaming *s, int index, bool resumed)
{
    enum { SMALL = 64 << 20 };
    static const char *const endings[CHANNELS] = {
        [TENSOR_LSE] = ".lse", [TENSOR_DQ] = ".dq",  [TENSOR_DK] = ".dk",
        [TENSOR_DV] = ".dv",   [PARTIAL] = ".sums0", [PARTIAL + 1] = ".sums1"
    };
    struct channel *c = &s->channels[index];
    const struct stream_files *files = s->setup.files;
    const char *path = index < PARTIAL ? files->paths[index] : NULL;
    const bool backward = s->trial->backward;
    const bool read_again = index >= PARTIAL || (backward && c->tensor <= TENSOR_LSE);
    if (!backward && (index >= PARTIAL || tensor_is_backward(c->tensor))) return EXIT_PASS;
    c->named = path != NULL;
    if (path) return open_named(s, c, path, resumed);
    if (files->resume) {
        char *beside = tensorfile_path_with(files->paths[TENSOR_OUT], endings[index]);
        int status = beside ? open_named(s, c, beside, resumed) : fault("out of memory");
        free(beside);
        return status;
    }
    if (read_again || bytes_of(s, c) <= SMALL) return open_scratch(c);
    s->sampled = true;
    return sample_open(&c->sample, s->trial, c->tensor, s->setup.indices);
}

static int open_results(struct streaming *s)
{
    const int64_t units[2] = { ra_plan_units(s->setup.plan, 0), ra_plan_units(s->setup.plan, 1) };
    const bool resume = s->setup.files->resume;
    bool resumed = false;
    char *header = resume ? identity_of(&s->setup) : NULL;
    char *path = resume ? tensorfile_path_with(s->setup.files->paths[TENSOR_OUT], ".journal")
                        : NULL;
    int status = resume && !(header && path) ? fault("out of memory") : EXIT_PASS;
    if (!status && resume) status = journal_open(&s->journal, path, header, units, &resumed);
    for (int i = TENSOR_OUT; i < CHANNELS && !status; i++) status = open_result(s, i, resumed);
    if (!status && resume && !resumed) status = journal_create(&s->journal, header);
    s->journaled = s->shared.kept = !status && resume;
    s->keeps = resumed || s->journaled;
    if (s->keeps) interrupt_leaves("the same command goes on from here");
    free(header);
    free(path);
    return status;
}

static ra_rows rows_of(struct streaming *s, int channel)
{
    struct channel *c = &s->channels[channel];
    if (channel <= TENSOR_DLSE) {
        const bool missing = channel == TENSOR_DLSE && s->setup.inputs && !c->input;
        return missing ? (ra_rows){ NULL, NULL, NULL } : (ra_rows){ channel_read_input, NULL, c };
    }
    return (ra_rows){ channel_read_result, channel_write_result, c };
}

static void set_callbacks(struct streaming *s)
{
    ra_stream *all = &s->callbacks;
    *all = ra_stream_default();
    const struct {
        ra_rows *rows;
        int channel;
    } each[] = { { &all->q, TENSOR_Q },
                 { &all->k, TENSOR_K },
                 { &all->v, TENSOR_V },
                 { &all->out, TENSOR_OUT },
                 { &all->lse, TENSOR_LSE },
                 { &all->dout, TENSOR_DOUT },
                 { &all->dlse, TENSOR_DLSE },
                 { &all->dq, TENSOR_DQ },
                 { &all->dk, TENSOR_DK },
                 { &all->dv, TENSOR_DV },
                 { &all->partial_dq[0], PARTIAL },
                 { &all->partial_dq[1], PARTIAL + 1 } };
    for (int i = 0; i < COUNT(each); i++) *each[i].rows = rows_of(s, each[i].channel);
    all->finished = was_finished;
    all->done = unit_done;
    all->context = s;
}

/* Why rows cannot be made on the device; NULL: they can, as far as is known here. */
static const char *why_on_host(const struct streaming_setup *setup)
{
    const struct stream_files *files = setup->files;
    if (setup->inputs) return "the inputs are files";
    if (setup->trial->backward) return "a backward run reads results again";
    if (setup->origin) return "the run has an order";
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (files->paths[i]) return "results go to files";
    return NULL;
}

/* Rows on the device where that is possible and wanted. */
static int open_device(struct streaming *s)
{
    const struct stream_files *files = s->setup.files;
    const char *why = why_on_host(&s->setup);
    int status = EXIT_PASS;
    if (files->data == DATA_ON_HOST) return EXIT_PASS;
    if (!why) status = ondevice_open(&s->device, s->trial, files->digests);
    if (!why && !s->device) why = "there is no module for it beside a plug-in of this device";
    if (!status && why && files->data == DATA_ON_DEVICE)
        return refuse("--data device: %s; leave it out", why);
    if (!s->device) return status;
    ondevice_set(s->device, &s->callbacks);
    s->callbacks.finished = NULL;
    s->callbacks.done = NULL;
    s->sampled = true;
    return status;
}

/* The cores of a CPU compute. Those of another device's host are free to move rows. */
static int helpers_of(const struct trial *t)
{
    enum { MOST = 7 };
    const int free_cores = machine_cores() - 1;
    if (trial_on_cpu(t)) return 0;
    return free_cores < MOST ? free_cores : MOST;
}

int streaming_open(struct streaming **out, const struct streaming_setup *setup)
{
    const struct trial *t = setup->trial;
    struct streaming *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return fault("out of memory");
    s->setup = *setup;
    s->trial = t;
    for (int i = 0; i < CHANNELS; i++) describe(s, i);
    s->shared = (struct channels){ .trial = t,
                                   .origin = setup->origin,
                                   .digests = setup->files->digests };
    int status = channels_open(&s->shared, helpers_of(t));
    if (status) return status;
    set_callbacks(s);
    status = open_device(s);
    return status || s->device ? status : open_results(s);
}

void streaming_begin(struct streaming *s)
{
    for (int i = 0; i < CHANNELS; i++) atomic_store(&s->channels[i].digest, 0);
    if (s->device) ondevice_begin(s->device);
}

/* ---- Afterwards ------------------------------------------------------------------------------ */

const ra_stream *streaming_callbacks(const struct streaming *s) { return &s->callbacks; }
bool streaming_on_device(const struct streaming *s) { return s->device != NULL; }
bool streaming_is_sampled(const struct streaming *s) { return s->sampled; }
int64_t streaming_resumed(const struct streaming *s) { return s->journal.found; }

void streaming_read(const struct streaming *s, enum tensor tensor, int64_t batch, int64_t position,
                    int64_t head, float *to)
{
    const struct channel *c = &s->channels[tensor];
    const int64_t dim = tensor_dim(s->trial, tensor);
    if (s->device) {
        ondevice_read(s->device, tensor, batch, position, head, to);
        return;
    }
    char raw[4096]; /* a row has at most 576 numbers */
    const size_t bytes = (size_t)dim * half_bytes(c->descriptor >= 0 ? c->stored : c->dtype);
    to[0] = NAN;
    if (bytes > sizeof raw) return;
    if (c->descriptor >= 0) {
        const off_t at = channel_place(c, batch, position) +
                         (off_t)(head * dim) * (off_t)half_bytes(c->stored);
        if (channel_move(c, false, raw, bytes, at)) half_to_float(c->stored, raw, dim, to);
        return;
    }
    sample_read(&c->sample, batch, s->setup.indices ? s->setup.indices[position] : position, head,
                to);
}

int streaming_digest(const struct streaming *s, enum tensor tensor, uint64_t *sum)
{
    if (s->device) return ondevice_digest(s->device, tensor, sum);
    *sum = atomic_load(&s->channels[tensor].digest);
    return EXIT_PASS;
}

static int sync_all(const struct streaming *s)
{
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++) {
        const struct channel *c = &s->channels[i];
        if (c->named && fsync(c->descriptor)) return fault("%s: %s", c->file.path, strerror(errno));
    }
    return EXIT_PASS;
}

/* Names stay as far as they were given: the same command gives the others. */
static int name_journaled(struct streaming *s)
{
    const char *why = journal_complete(&s->journal);
    if (why) return fault("%s: %s", s->journal.path, why);
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++) {
        struct channel *c = &s->channels[i];
        if (!c->named || c->file.placed) continue;
        if (rename(c->file.temporary, c->file.path))
            return fault("%s: cannot be put in place: %s", c->file.path, strerror(errno));
        c->file.placed = true;
    }
    return EXIT_PASS;
}

/* All names or none. */
static int name_files(struct streaming *s)
{
    int status = EXIT_PASS;
    for (int i = TENSOR_OUT; i < TENSOR_COUNT && !status; i++)
        if (s->channels[i].named) status = outfile_commit(&s->channels[i].file);
    for (int i = TENSOR_OUT; i < TENSOR_COUNT && status; i++)
        if (s->channels[i].file.placed) outfile_undo(&s->channels[i].file);
    return status;
}

/* The journal, and then what only a later run would have read: a journal speaks of files that are
 * there. */
static void remove_rest(struct streaming *s)
{
    journal_remove(&s->journal);
    for (int i = TENSOR_OUT; i < CHANNELS; i++) {
        const struct outfile *file = &s->channels[i].file;
        if (file->temporary && !file->placed) unlink(file->temporary);
    }
}

/* All files are complete before the first gets its name. */
int streaming_commit(struct streaming *s)
{
    interrupt_hold();
    int status = sync_all(s);
    if (!status) status = s->journaled ? name_journaled(s) : name_files(s);
    if (!status && s->journaled) remove_rest(s);
    interrupt_resume();
    return status;
}

/* Files without a name are removed, unless a later run is to continue with them. */
static void close_channel(struct streaming *s, struct channel *c)
{
    char *path = (char *)c->file.path;
    if (c->descriptor >= 0) close(c->descriptor);
    if (s->keeps) { /* for a later run, or no longer there */
        free(c->file.temporary);
        free(c->file.old);
    } else if (path) outfile_discard(&c->file);
    free(path);
    sample_close(&c->sample);
}

void streaming_close(struct streaming *s)
{
    if (!s) return;
    for (int i = 0; i < CHANNELS; i++) close_channel(s, &s->channels[i]);
    journal_close(&s->journal);
    ondevice_close(s->device);
    channels_close(&s->shared);
    free(s);
}
