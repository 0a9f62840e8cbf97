/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - see sample.h. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"

int sample_open(struct sample *s, const struct trial *trial, enum tensor tensor,
                const int64_t *indices)
{
    const int count = data_sample_count(tensor);
    *s = (struct sample){ .batch = trial->batch,
                          .heads = tensor_heads(trial, tensor),
                          .dim = tensor_dim(trial, tensor),
                          .dtype = tensor_dtype(trial, tensor) };
    s->indices = calloc((size_t)count, sizeof *s->indices);
    s->rows = calloc((size_t)(count * trial->batch), sample_bytes(s));
    if (!s->indices || !s->rows) return fault("out of memory: %d rows", count);
    for (int i = 0; i < count; i++) {
        const int64_t position = data_sample(i, count, tensor_length(trial, tensor));
        s->indices[i] = indices ? indices[position] : position;
    }
    s->count = count;
    return EXIT_PASS;
}

void sample_close(struct sample *s)
{
    free(s->indices);
    free(s->rows);
    *s = (struct sample){ .count = 0 };
}

size_t sample_bytes(const struct sample *s)
{
    return (size_t)(s->heads * s->dim) * half_bytes(s->dtype);
}

char *sample_at(const struct sample *s, int i, int64_t batch)
{
    return s->rows + (size_t)(i * s->batch + batch) * sample_bytes(s);
}

void sample_read(const struct sample *s, int64_t batch, int64_t index, int64_t head, float *to)
{
    to[0] = NAN;
    for (int i = 0; i < s->count; i++)
        if (s->indices[i] == index)
            half_to_float(s->dtype,
                          sample_at(s, i, batch) + (size_t)(head * s->dim) * half_bytes(s->dtype),
                          s->dim, to);
}
