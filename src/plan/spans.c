/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c - see spans.h. */
#include "plan/spans.h"

#include <inttypes.h>
#include <string.h>

/* The first range that ends at `position` or beyond: it touches or follows it. */
static int64_t find(const struct ra__spans *spans, int64_t position)
{
    int64_t low = 0, high = spans->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (spans->at[middle].hi < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

ra_status ra__spans_add(struct ra__spans *spans, struct ra__range range)
{
    if (range.lo >= range.hi) return RA_OK;
    int64_t from = find(spans, range.lo), to = from;
    for (; to < spans->count && spans->at[to].lo <= range.hi; to++) {
        range.lo = ra__min(range.lo, spans->at[to].lo);
        range.hi = ra__max(range.hi, spans->at[to].hi);
    }
    if (to == from) {
        struct ra__range *grown = ra__grow(NULL, spans->at, (size_t)spans->count, sizeof *grown);
        if (!grown) return ra__fail(RA_ERR_MEMORY, "plan: %" PRId64 " ranges", spans->count);
        spans->at = grown;
    }
    /* One range takes the place of those it touches. */
    memmove(&spans->at[from + 1], &spans->at[to], (size_t)(spans->count - to) * sizeof *spans->at);
    spans->at[from] = range;
    spans->count += from + 1 - to;
    return RA_OK;
}

ra_status ra__spans_add_all(struct ra__spans *spans, const struct ra__range *ranges, int64_t count)
{
    for (int64_t i = 0; i < count; i++) RA__TRY(ra__spans_add(spans, ranges[i]));
    return RA_OK;
}

void ra__spans_clear(struct ra__spans *spans)
{
    ra__free(spans->at);
    *spans = (struct ra__spans){ NULL, 0 };
}

struct ra__ranges ra__spans_tokens(const struct ra__spans *spans, const ra_layout *layout,
                                   int owner)
{
    struct ra__ranges tokens = { 0 };
    for (int64_t i = layout->first[owner]; i < layout->first[owner + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        int64_t last = ra__run_last(run->at), skipped;
        for (int64_t s = find(spans, run->at.start); s < spans->count; s++) {
            if (spans->at[s].lo > last) break;
            ra_run part = ra__run_clip(run->at, spans->at[s].lo, spans->at[s].hi, &skipped);
            ra__ranges_add(&tokens, run->token + skipped, run->token + skipped + part.count);
        }
    }
    return tokens;
}
