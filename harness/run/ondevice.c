/* SPDX-License-Identifier: Apache-2.0 */
/* ondevice.c - the rows of a stream in memory of the device. */
#include "ondevice.h"

#include <stdlib.h>

#include "harness/device/maker.h"
#include "sample.h"

/* One tensor. */
struct face {
    struct ondevice *owner;
    enum tensor tensor;
    ra_dtype dtype;
    int64_t width, length; /* values of a position; positions */
    struct recipe recipe;  /* of an input */
    struct sample sample;  /* of a result */
};

_Static_assert((int)MAKER_F32 == (int)RA_F32 && (int)MAKER_BF16 == (int)RA_BF16 &&
                   (int)MAKER_F16 == (int)RA_F16,
               "dtypes are given to the maker as they are");

struct ondevice {
    const struct trial *trial;
    const struct maker *maker;
    struct face faces[TENSOR_COUNT];
    void *queue;    /* set by the library before each callback */
    uint64_t *sums; /* [TENSOR_COUNT], on the device; NULL: no digests, or none yet */
    bool digests, begun;
};

static ra_status failed(const char *why)
{
    return why ? ra_transport_error(RA_ERR_SYSTEM, why) : RA_OK;
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static ra_status make_rows(void *context, int64_t batch, int64_t first, int64_t count, void *to)
{
    const struct face *f = context;
    const struct ondevice *d = f->owner;
    return failed(
        d->maker->make(&f->recipe, (enum maker_dtype)f->dtype, batch, first, count, to, d->queue));
}

/* The library's thread has chosen the device; no other one may have. */
static const char *begin_sums(struct ondevice *d)
{
    if (d->begun || !d->digests) return NULL;
    d->maker->free(d->sums);
    d->sums = NULL;
    const char *why = d->maker->alloc(TENSOR_COUNT * sizeof *d->sums, (void **)&d->sums);
    d->begun = !why;
    return why;
}

static const char *keep_rows(const struct face *f, int64_t batch, int64_t first, int64_t count,
                             const char *from)
{
    const struct ondevice *d = f->owner;
    const size_t bytes = sample_bytes(&f->sample);
    const char *why = NULL;
    for (int i = 0; i < f->sample.count && !why; i++) {
        const int64_t row = f->sample.indices[i] - first;
        if (row >= 0 && row < count)
            why = d->maker->fetch(sample_at(&f->sample, i, batch), from + (size_t)row * bytes,
                                  bytes, d->queue);
    }
    return why;
}

static ra_status take_rows(void *context, int64_t batch, int64_t first, int64_t count,
                           const void *from)
{
    const struct face *f = context;
    struct ondevice *d = f->owner;
    const int64_t index = (batch * f->length + first) * f->width;
    const char *why = begin_sums(d);
    if (!why && d->sums)
        why = d->maker->add_digest((enum maker_dtype)f->dtype, from, index, count * f->width,
                                   &d->sums[f->tensor], d->queue);
    if (!why) why = keep_rows(f, batch, first, count, from);
    return failed(why);
}

void ondevice_set(struct ondevice *d, ra_stream *callbacks)
{
    callbacks->q = (ra_rows){ make_rows, NULL, &d->faces[TENSOR_Q] };
    callbacks->k = (ra_rows){ make_rows, NULL, &d->faces[TENSOR_K] };
    callbacks->v = (ra_rows){ make_rows, NULL, &d->faces[TENSOR_V] };
    callbacks->out = (ra_rows){ NULL, take_rows, &d->faces[TENSOR_OUT] };
    callbacks->lse = (ra_rows){ NULL, take_rows, &d->faces[TENSOR_LSE] };
    callbacks->queue = &d->queue;
}

void ondevice_begin(struct ondevice *d) { d->begun = false; }

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_face(struct ondevice *d, enum tensor tensor)
{
    const struct trial *t = d->trial;
    struct face *f = &d->faces[tensor];
    *f = (struct face){ .owner = d,
                        .tensor = tensor,
                        .dtype = tensor_dtype(t, tensor),
                        .width = tensor_heads(t, tensor) * tensor_dim(t, tensor),
                        .length = tensor_length(t, tensor),
                        .recipe = data_recipe(t, tensor) };
    return tensor_is_result(tensor) ? sample_open(&f->sample, t, tensor, NULL) : EXIT_PASS;
}

int ondevice_open(struct ondevice **out, const struct trial *trial, bool digests)
{
    static const enum tensor used[] = { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_OUT, TENSOR_LSE };
    const struct maker *maker = maker_open(trial->device);
    *out = NULL;
    if (!maker) return EXIT_PASS;
    struct ondevice *d = *out = calloc(1, sizeof *d);
    if (!d) return fault("out of memory");
    d->trial = trial;
    d->maker = maker;
    d->digests = digests;
    int status = EXIT_PASS;
    for (int i = 0; i < COUNT(used) && !status; i++) status = open_face(d, used[i]);
    return status;
}

void ondevice_close(struct ondevice *d)
{
    if (!d) return;
    for (int i = 0; i < TENSOR_COUNT; i++) sample_close(&d->faces[i].sample);
    d->maker->use(maker_number(d->trial->device));
    d->maker->free(d->sums);
    free(d);
}

/* ---- Afterwards ------------------------------------------------------------------------------ */

void ondevice_read(const struct ondevice *d, enum tensor tensor, int64_t batch, int64_t position,
                   int64_t head, float *to)
{
    sample_read(&d->faces[tensor].sample, batch, position, head, to);
}

int ondevice_digest(const struct ondevice *d, enum tensor tensor, uint64_t *sum)
{
    if (!d->sums) return fault("no result was written");
    const char *why = d->maker->use(maker_number(d->trial->device));
    if (!why) why = d->maker->fetch(sum, &d->sums[tensor], sizeof *sum, NULL);
    return why ? fault("the digest: %s", why) : EXIT_PASS;
}
