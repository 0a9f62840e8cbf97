/* SPDX-License-Identifier: Apache-2.0 */
/* terms.c - the arrays a trial adds to its scores, synthetic or from files. */
#include "terms.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "harness/files/npy.h"
#include "harness/text/number.h"
#include "harness/problem/bias.h"
#include "harness/problem/places.h"

/* Normal numbers below this are 30% of all. */
#define HIDDEN_BELOW (-0.5244f)

static size_t value_bytes(const struct terms *terms) { return terms->mask ? 1 : sizeof(float); }

/* Values of the whole bias, or 0 where they cannot be counted. */
static size_t bias_values(const struct terms *t)
{
    size_t values = (size_t)t->q_len;
    bool fits = number_multiply(values, (size_t)t->k_len, &values);
    fits = fits && number_multiply(values, (size_t)t->bias_heads, &values);
    fits = fits && number_multiply(values, (size_t)t->bias_batches, &values);
    size_t bytes;
    return fits && number_multiply(values, value_bytes(t), &bytes) ? values : 0;
}

/* ---- Synthetic ------------------------------------------------------------------------------- */

static int make_bias(struct terms *terms, const struct trial *trial, const struct bias_kind *kind)
{
    terms->mask = kind->mask;
    terms->bias_batches = kind->batches ? trial->batch : 1;
    terms->bias_heads = kind->heads ? trial->q_heads : 1;
    size_t values = bias_values(terms), i = 0;
    terms->bias = values ? malloc(values * value_bytes(terms)) : NULL;
    if (!terms->bias) return fault("out of memory: a bias of %zu values", values);
    for (int64_t b = 0; b < terms->bias_batches; b++)
        for (int64_t h = 0; h < terms->bias_heads; h++)
            for (int64_t q = 0; q < terms->q_len; q++)
                for (int64_t k = 0; k < terms->k_len; k++, i++) {
                    float noise = data_noise(trial, b, q, h, k);
                    if (kind->mask) ((unsigned char *)terms->bias)[i] = noise >= HIDDEN_BELOW;
                    else ((float *)terms->bias)[i] = noise;
                }
    return EXIT_PASS;
}

static int make_sinks(struct terms *terms, const struct trial *trial)
{
    terms->sinks = malloc((size_t)trial->q_heads * sizeof *terms->sinks);
    if (!terms->sinks) return fault("out of memory: %" PRId64 " sinks", trial->q_heads);
    for (int64_t h = 0; h < trial->q_heads; h++)
        terms->sinks[h] = 2.0f * data_noise(trial, 0, -1, h, 0);
    return EXIT_PASS;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int read_sinks(struct terms *terms, const struct trial *trial)
{
    struct npy npy;
    int status = npy_read_kind("--sinks", trial->sinks, NPY_OF_F32, &npy);
    if (status) return status;
    terms->sinks = npy.data;
    if (npy.axes == 1 && npy.values == trial->q_heads) return EXIT_PASS;
    return refuse("--sinks: %s holds %" PRId64 " values on %d ax%cs; one axis of %" PRId64
                  " query heads is needed",
                  trial->sinks, npy.values, npy.axes, npy.axes == 1 ? 'i' : 'e', trial->q_heads);
}

/* [query, key], [head, query, key] or [batch, head, query, key]; batch and head may be 1. */
static int read_bias(struct terms *terms, const struct trial *trial)
{
    struct npy npy;
    int status = npy_read_kind("--bias", trial->bias, NPY_OF_BIAS, &npy);
    if (status) return status;
    int64_t shape[4] = { 1, 1, 1, 1 };
    memcpy(shape + 4 - npy.axes, npy.shape, (size_t)npy.axes * sizeof *shape);
    terms->bias = npy.data;
    terms->mask = npy.type != NPY_F32;
    terms->bias_batches = shape[0];
    terms->bias_heads = shape[1];
    bool good = npy.axes >= 2 && (shape[0] == 1 || shape[0] == trial->batch) &&
                (shape[1] == 1 || shape[1] == trial->q_heads) && shape[2] == trial->q_len &&
                shape[3] == trial->k_len;
    if (good) return EXIT_PASS;
    return refuse("--bias: shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                  "] where [1 or %" PRId64 ", 1 or %" PRId64 ", %" PRId64 ", %" PRId64
                  "] is needed; the first two may be left out",
                  shape[0], shape[1], shape[2], shape[3], trial->batch, trial->q_heads,
                  trial->q_len, trial->k_len);
}

/* ---- Opening --------------------------------------------------------------------------------- */

int terms_open(struct terms *terms, const struct trial *trial)
{
    *terms = (struct terms){ .q_len = trial->q_len, .k_len = trial->k_len };
    int status = EXIT_PASS;
    if (trial->sinks) status = *trial->sinks ? read_sinks(terms, trial) : make_sinks(terms, trial);
    if (!status && trial->bias) {
        const struct bias_kind *kind = bias_kind(trial->bias);
        status = kind ? make_bias(terms, trial, kind) : read_bias(terms, trial);
    }
    if (status) terms_close(terms);
    return status;
}

void terms_close(struct terms *terms)
{
    free(terms->sinks);
    free(terms->bias);
    *terms = (struct terms){ .sinks = NULL };
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* The row of a query, counted in values. */
static size_t row_start(const struct terms *t, int64_t batch, int64_t head, int64_t query)
{
    int64_t plane = (t->bias_batches == 1 ? 0 : batch) * t->bias_heads +
                    (t->bias_heads == 1 ? 0 : head);
    return ((size_t)plane * (size_t)t->q_len + (size_t)query) * (size_t)t->k_len;
}

float terms_bias(const struct terms *t, int64_t batch, int64_t head, int64_t query, int64_t key)
{
    if (!t->bias) return 0.0f;
    size_t place = row_start(t, batch, head, query) + (size_t)key;
    if (!t->mask) return ((const float *)t->bias)[place];
    return ((const unsigned char *)t->bias)[place] ? 0.0f : -INFINITY;
}

int terms_rows(const struct terms *t, const int64_t *queries, int64_t count, void **rows)
{
    size_t row_bytes = (size_t)t->k_len * value_bytes(t);
    size_t row_count = (size_t)(t->bias_batches * t->bias_heads) * (size_t)count;
    *rows = queries ? malloc(row_count ? row_count * row_bytes : 1) : t->bias;
    if (!*rows) return fault("out of memory: %zu rows of the bias", row_count);
    char *to = *rows;
    for (int64_t b = 0; queries && b < t->bias_batches; b++)
        for (int64_t h = 0; h < t->bias_heads; h++)
            for (int64_t i = 0; i < count; i++, to += row_bytes)
                memcpy(to, (const char *)t->bias + row_start(t, b, h, queries[i]) * value_bytes(t),
                       row_bytes);
    return EXIT_PASS;
}

ra_bias terms_view(const struct terms *t, const void *rows, int64_t count)
{
    int64_t plane = count * t->k_len;
    return (ra_bias){ .data = rows,
                      .mask = t->mask,
                      .batch_stride = t->bias_batches == 1 ? 0 : t->bias_heads * plane,
                      .head_stride = t->bias_heads == 1 ? 0 : plane,
                      .query_stride = t->k_len };
}
