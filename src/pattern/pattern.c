/* pattern.c - the table of kinds, and the rows of a pattern with its modifiers applied. */
#include "pattern/pattern.h"

#include <inttypes.h>
#include <string.h>

#define RA__PATTERN(name) extern const struct ra__pattern_kind ra__pattern_##name;
#include "pattern/pattern.list"
#undef RA__PATTERN

static const struct ra__pattern_kind *const kinds[] = {
#define RA__PATTERN(name) &ra__pattern_##name,
#include "pattern/pattern.list"
#undef RA__PATTERN
};

const struct ra__pattern_kind *ra__pattern_kind_at(int index)
{
    return index >= 0 && index < RA__COUNT(kinds) ? kinds[index] : NULL;
}

const struct ra__pattern_kind *ra__pattern_kind_find(const char *name)
{
    for (int i = 0; i < RA__COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out)
{
    ra_pattern *pattern = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *pattern);
    if (!pattern) return ra__fail(RA_ERR_MEMORY, "pattern: %zu bytes", sizeof *pattern);
    pattern->kind = kind;
    *out = pattern;
    return RA_OK;
}

void ra_pattern_destroy(ra_pattern *pattern)
{
    if (!pattern) return;
    ra__free(pattern->bounds);
    ra__free(pattern);
}

ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count)
{
    if (count < 2 || bounds[0] != 0)
        return ra__fail(RA_ERR_ARGUMENT, "documents: the bounds start at 0 and end at n");
    for (int64_t i = 1; i < count; i++)
        if (bounds[i] < bounds[i - 1])
            return ra__fail(RA_ERR_ARGUMENT,
                            "documents: bound %" PRId64 " comes behind %" PRId64
                            "; bounds must not fall",
                            bounds[i], bounds[i - 1]);
    int64_t *copy = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *copy);
    if (!copy) return ra__fail(RA_ERR_MEMORY, "documents: %" PRId64 " bounds", count);
    memcpy(copy, bounds, (size_t)count * sizeof *copy);
    ra__free(pattern->bounds);
    pattern->bounds = copy;
    pattern->bound_count = count;
    return RA_OK;
}

ra_status ra__pattern_copy(const ra_pattern *pattern, ra_pattern **out)
{
    ra_pattern *copy;
    RA__TRY(ra__pattern_create(pattern ? pattern->kind : &ra__pattern_full, &copy));
    if (pattern) {
        *copy = *pattern;
        copy->bounds = NULL;
        if (pattern->bounds) {
            ra_status status = ra__pattern_set_bounds(copy, pattern->bounds, pattern->bound_count);
            if (status != RA_OK) {
                ra_pattern_destroy(copy);
                return status;
            }
        }
    }
    *out = copy;
    return RA_OK;
}

ra_status ra__pattern_check(const ra_pattern *pattern, int64_t q_len, int64_t k_len)
{
    if (q_len > k_len && !pattern->kind->more_queries)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "pattern %s: more queries (%" PRId64 ") than keys (%" PRId64
                        ") make sense only with full, causal and window",
                        pattern->kind->name, q_len, k_len);
    if (!pattern->bounds) return RA_OK;
    if (q_len != k_len)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "documents: need as many queries (%" PRId64 ") as keys (%" PRId64 ")",
                        q_len, k_len);
    if (pattern->bounds[pattern->bound_count - 1] != k_len)
        return ra__fail(RA_ERR_ARGUMENT,
                        "documents: the last bound is %" PRId64 ", but there are %" PRId64
                        " positions",
                        pattern->bounds[pattern->bound_count - 1], k_len);
    return RA_OK;
}

/* The document that holds `position`: the last one that starts at or before it, so that empty ones
 * are passed over. */
static int64_t document_of(const ra_pattern *pattern, int64_t position)
{
    int64_t low = 0, high = pattern->bound_count - 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (pattern->bounds[middle] <= position) low = middle;
        else high = middle;
    }
    return low;
}

/* One row: queries q, all of which may look at the keys in [lo, hi). */
static ra_status put_row(const ra_pattern *pattern, ra_run all_keys, ra_run q, int64_t lo,
                         int64_t hi, struct ra__row_sink sink)
{
    struct ra__sight seen[RA__SIGHTS];
    int count = pattern->kind->see(pattern, all_keys, seen);
    struct ra__row row = { .q = q };
    for (int i = 0; i < count; i++) {
        struct ra__sight sight = seen[i];
        if (pattern->causal) sight.band.right = ra__min(sight.band.right, 0);
        int64_t from = ra__max(lo, q.start - sight.band.left);
        int64_t to = ra__min(hi, ra__run_last(q) + sight.band.right + 1);
        int64_t skipped;
        sight.keys = ra__run_clip(sight.keys, from, to, &skipped);
        if (sight.keys.count > 0) row.sights[row.sight_count++] = sight;
    }
    return sink.put(sink.context, &row);
}

ra_status ra__pattern_rows(const ra_pattern *pattern, int64_t k_len, ra_run q,
                           struct ra__row_sink sink)
{
    ra_run all_keys = { 0, 1, k_len };
    if (q.count == 0) return RA_OK;
    if (!pattern->bounds) return put_row(pattern, all_keys, q, 0, k_len, sink);
    for (int64_t done = 0; done < q.count;) {
        ra_run rest = { q.start + done * q.step, q.step, q.count - done };
        int64_t d = document_of(pattern, rest.start), skipped;
        int64_t lo = pattern->bounds[d], hi = pattern->bounds[d + 1];
        ra_run part = ra__run_clip(rest, lo, hi, &skipped);
        RA__TRY(put_row(pattern, all_keys, part, lo, hi, sink));
        done += part.count;
    }
    return RA_OK;
}
