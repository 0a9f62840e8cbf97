/* SPDX-License-Identifier: Apache-2.0 */
/* distances.c - a query sees the keys that lie exactly so many positions before it: a list of any
 * length, which the pattern keeps. */
#include "core/hash.h"
#include "pattern/pattern.h"

struct distances {
    int64_t *at; /* rising, owned */
    int count;
};

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    const struct distances *d = input->pattern->state;
    ra_run all = { 0, 1, input->k_len };
    for (int i = 0; i < d->count; i++)
        RA__TRY(ra__row_writer_add(writer, all, (struct ra__band){ d->at[i], -d->at[i] }));
    return ra__row_writer_put(writer, q);
}

static ra_status read(ra_pattern *pattern, struct ra__text list)
{
    struct distances *d = pattern->state;
    do {
        struct ra__text number = ra__text_take(&list, ',');
        int64_t distance, last = d->count ? d->at[d->count - 1] : -1;
        if (!ra__text_number(number, &distance) || distance <= last)
            return ra__fail(RA_ERR_ARGUMENT, "pattern distances: \"%.*s\" is not a number above %d",
                            ra__text_shown(number), number.start, (int)last);
        int64_t *grown = ra__grow(NULL, d->at, (size_t)d->count, sizeof *grown);
        if (!grown) return ra__fail(RA_ERR_MEMORY, "pattern distances: %d numbers", d->count);
        d->at = grown;
        grown[d->count++] = distance;
    } while (list.length > 0);
    return RA_OK;
}

static void write(const ra_pattern *pattern, struct ra__writer *w)
{
    const struct distances *d = pattern->state;
    for (int i = 0; i < d->count; i++) ra__write(w, "%c%lld", i ? ',' : ':', (long long)d->at[i]);
}

static ra_status clone(struct ra__account *account, const void *from, void *to)
{
    const struct distances *old = from;
    struct distances *copy = to;
    ra_status status = RA_OK;
    copy->count = old->count;
    copy->at = ra__duplicate(account, old->at, (size_t)old->count * sizeof *old->at, &status);
    return status;
}

static uint64_t hash(const void *state, uint64_t so_far)
{
    const struct distances *d = state;
    return ra__hash(so_far, d->at, (size_t)d->count * sizeof *d->at);
}

static void destroy(void *state)
{
    struct distances *d = state;
    ra__free(d->at);
}

const struct ra__pattern_kind ra__pattern_distances = {
    .name = "distances",
    .syntax = "distances:A,B,...",
    .summary = "keys exactly A, B, ... positions before the query",
    .samples = "distances:0,1,2,4,8,16 distances:3 distances:0,5;causal",
    .sparse = true,
    .state_bytes = sizeof(struct distances),
    .clone = clone,
    .hash = hash,
    .destroy = destroy,
    .read = read,
    .write = write,
    .see = see,
};
