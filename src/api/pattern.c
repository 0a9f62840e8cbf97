/* pattern.c - the public constructors of patterns. */
#include <inttypes.h>
#include <string.h>

#include "api/handles.h"

/* A pattern of a kind, with up to two numbers. */
static ra_status create(const char *kind, int64_t a, int64_t b, ra_pattern **out)
{
    if (!out) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    if (a < 0 || b < 0 || a > RA__FAR || b > RA__FAR)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: %" PRId64 ", %" PRId64 " out of range", kind,
                        a, b);
    ra_pattern *pattern;
    RA__TRY(ra__pattern_create(ra__pattern_kind_find(kind), &pattern));
    pattern->args[0] = a;
    pattern->args[1] = b;
    pattern->arg_count = pattern->kind->max_args;
    *out = pattern;
    return RA_OK;
}

ra_status ra_pattern_full(ra_pattern **out) { return create("full", 0, 0, out); }
ra_status ra_pattern_causal(ra_pattern **out) { return create("causal", 0, 0, out); }
ra_status ra_pattern_prefix(int64_t keys, ra_pattern **out)
{
    return create("prefix", keys, 0, out);
}
ra_status ra_pattern_window(int64_t left, int64_t right, ra_pattern **out)
{
    return create("window", left, right, out);
}

ra_status ra_pattern_set_causal(ra_pattern *pattern)
{
    if (!pattern) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    pattern->causal = true;
    return RA_OK;
}

ra_status ra_pattern_set_documents(ra_pattern *pattern, const int64_t *bounds, int64_t count)
{
    if (!pattern || !bounds) return ra__fail(RA_ERR_ARGUMENT, "documents: NULL argument");
    return ra__pattern_set_bounds(pattern, bounds, count);
}

ra_status ra_pattern_parse(const char *text, ra_pattern **out)
{
    if (!text || !out) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    return ra__pattern_parse(text, out);
}

struct seen_by {
    int64_t query; /* position */
    uint8_t *seen;
};

static ra_status count_sights(void *context, const struct ra__row *row)
{
    struct seen_by *by = context;
    for (int i = 0; i < row->sight_count; i++) {
        const struct ra__sight *sight = &row->sights[i];
        struct ra__key_run run = { .pos = sight->keys.start,
                                   .pos_step = sight->keys.step,
                                   .count = sight->keys.count,
                                   .band = sight->band };
        int64_t lo, hi;
        ra__band_clip(&run, by->query, &lo, &hi);
        for (int64_t k = lo; k < hi; k++) by->seen[run.pos + k * run.pos_step]++;
    }
    return RA_OK;
}

ra_status ra_pattern_row(const ra_pattern *pattern, int64_t q_len, int64_t k_len, int head,
                         int64_t query, uint8_t *seen)
{
    (void)head; /* no pattern so far differs between heads */
    if (!pattern || !seen) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    if (query < 0 || query >= q_len || k_len < 0)
        return ra__fail(RA_ERR_ARGUMENT, "pattern: query %" PRId64 " of %" PRId64, query, q_len);
    RA__TRY(ra__pattern_check(pattern, q_len, k_len));
    memset(seen, 0, (size_t)k_len);
    struct seen_by by = { query + k_len - q_len, seen };
    ra_run one = { by.query, 1, 1 };
    return ra__pattern_rows(pattern, k_len, one, (struct ra__row_sink){ count_sights, &by });
}
