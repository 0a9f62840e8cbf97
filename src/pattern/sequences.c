/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.c - see sequences.h. */
#include "pattern/sequences.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"

/* One side of a sequence, after what came before it. */
static ra_status check_side(const char *what, int64_t index, int64_t first, int64_t count,
                            int64_t *end, int64_t length)
{
    if (first < *end || count < 0 || first > length || count > length - first)
        return ra__fail(RA_ERR_ARGUMENT,
                        "sequences: sequence %" PRId64 " has %" PRId64 " %s from %" PRId64
                        " on; they must be after the first %" PRId64 ", and there are %" PRId64,
                        index, count, what, first, *end, length);
    *end = first + count;
    return RA_OK;
}

ra_status ra__sequences_check(const struct ra__sequences *s, const struct ra__shape *shape)
{
    int64_t q_end = 0, k_end = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const ra_sequence *at = &s->at[i];
        RA__TRY(check_side("queries", i, at->q_first, at->q_count, &q_end, shape->q_len));
        RA__TRY(check_side("keys", i, at->k_first, at->k_count, &k_end, shape->k_len));
    }
    return RA_OK;
}

ra_status ra__sequences_take(const ra_problem *problem, const struct ra__shape *shape,
                             struct ra__account *account, struct ra__sequences *out)
{
    *out = (struct ra__sequences){ NULL, 0 };
    const int64_t count = problem->sequence_count;
    if (count < 0) return ra__fail(RA_ERR_ARGUMENT, "sequences: %" PRId64 " of them", count);
    if ((count == 0) != !problem->sequences)
        return ra__fail(RA_ERR_ARGUMENT, "sequences: sequence_count is %" PRId64 ", but there %s",
                        count, problem->sequences ? "is an array" : "is no array");
    if (!count) return RA_OK;
    const struct ra__sequences given = { (ra_sequence *)problem->sequences, count };
    RA__TRY(ra__sequences_check(&given, shape));
    out->at = ra__alloc_array(account, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *out->at);
    if (!out->at) return ra__fail(RA_ERR_MEMORY, "sequences: %" PRId64 " of them", count);
    memcpy(out->at, problem->sequences, (size_t)count * sizeof *out->at);
    out->count = count;
    return RA_OK;
}

void ra__sequences_clear(struct ra__sequences *sequences)
{
    ra__free(sequences->at);
    *sequences = (struct ra__sequences){ NULL, 0 };
}

ra_sequence ra__sequence_of(const struct ra__sequences *s, const struct ra__shape *shape,
                            int64_t query)
{
    int64_t low = 0, high = s->count; /* how many start at or before the query */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (s->at[middle].q_first <= query) low = middle + 1;
        else high = middle;
    }
    if (low > 0 && query < s->at[low - 1].q_first + s->at[low - 1].q_count) return s->at[low - 1];
    const int64_t next = low < s->count ? s->at[low].q_first : shape->q_len;
    return (ra_sequence){ query, next - query, 0, 0 };
}

ra_status ra__sequences_bounds(const struct ra__sequences *s, bool keys, int64_t length,
                               int64_t **out)
{
    int64_t *bounds = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)s->count + 1,
                                      sizeof *bounds);
    if (!bounds) return ra__fail(RA_ERR_MEMORY, "sequences: %" PRId64 " bounds", s->count + 1);
    for (int64_t i = 1; i < s->count; i++) bounds[i] = keys ? s->at[i].k_first : s->at[i].q_first;
    bounds[s->count] = length;
    *out = bounds;
    return RA_OK;
}

uint64_t ra__sequences_hash(const struct ra__sequences *s)
{
    return s->count ? ra__hash(RA__HASH_START, s->at, (size_t)s->count * sizeof *s->at) : 0;
}
