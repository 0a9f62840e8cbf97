/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.c - see sequences.h. */
#include "pattern/sequences.h"

#include <inttypes.h>

#include "core/hash.h"
#include "pattern/pattern.h"

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

ra_status ra__sequences_check(const ra_sequence *at, int64_t count, const struct ra__shape *shape)
{
    int64_t q_end = 0, k_end = 0;
    for (int64_t i = 0; i < count; i++) {
        RA__TRY(check_side("queries", i, at[i].q_first, at[i].q_count, &q_end, shape->q_len));
        RA__TRY(check_side("keys", i, at[i].k_first, at[i].k_count, &k_end, shape->k_len));
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
    RA__TRY(ra__sequences_check(problem->sequences, count, shape));
    ra_status status = RA_OK;
    out->at = ra__duplicate(account, problem->sequences, (size_t)count * sizeof *out->at, &status);
    out->count = status == RA_OK ? count : 0;
    return status;
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
