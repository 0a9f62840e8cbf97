/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c - the public constructors of patterns. */
#include <inttypes.h>
#include <string.h>

#include "api/handles.h"
#include "pattern/kinds.h"

/* A pattern of a kind, with up to two numbers. */
static ra_status create(const char *kind, int64_t a, int64_t b, ra_pattern **out)
{
    if (!out) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    if (a < 0 || b < 0 || a > RA__UNBOUNDED || b > RA__UNBOUNDED)
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

ra_status ra_pattern_dilated(const ra_branch *branches, int count, ra_pattern **out)
{
    if (!branches || !out) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    if (count < 1) return ra__fail(RA_ERR_ARGUMENT, "pattern dilated: %d branches", count);
    for (int i = 0; i < count; i++)
        if (branches[i].segment < 1 || branches[i].segment > RA__UNBOUNDED ||
            branches[i].rate < 1 || branches[i].rate > RA__UNBOUNDED)
            return ra__fail(RA_ERR_ARGUMENT,
                            "pattern dilated: branch %d has segment %" PRId64 " and rate %" PRId64
                            "; both are at least 1",
                            i, branches[i].segment, branches[i].rate);
    ra_pattern *pattern;
    RA__TRY(ra__pattern_create(&ra__pattern_dilated, &pattern));
    ra_status status = RA_OK;
    for (int i = 0; i < count && status == RA_OK; i++)
        status = ra__dilated_add_branch(pattern, branches[i]);
    if (status != RA_OK) {
        ra_pattern_destroy(pattern);
        return status;
    }
    *out = pattern;
    return RA_OK;
}

ra_status ra_pattern_blocks(int64_t block, ra_pattern **out)
{
    if (block < 1)
        return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: a block of %" PRId64 " positions", block);
    return create("blocks", block, 0, out);
}

ra_status ra_pattern_add(ra_pattern *pattern, const char *term)
{
    if (!pattern || !term) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    return ra__pattern_add(pattern, ra__text_of(term));
}

ra_status ra_pattern_add_bitmap(ra_pattern *pattern, int heads, int64_t blocks,
                                const uint8_t *active)
{
    if (!pattern || !active) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    if (pattern->kind != &ra__pattern_blocks)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: a bitmap is a term of blocks",
                        pattern->kind->name);
    return ra__blocks_add_bitmap(pattern, heads, blocks, active);
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

/* What ra_problem_row() asks for one query. */
struct seen_by {
    int head;
    const int32_t *origin; /* NULL: sequential */
    int64_t from, to;      /* original positions it may see */
    uint8_t *seen;
};

static void count_run(const struct seen_by *by, int64_t position, const struct ra__tile *tile)
{
    struct ra__key_run run = { .pos = tile->keys.start,
                               .pos_step = tile->keys.step,
                               .count = tile->keys.count,
                               .band = tile->band };
    int64_t lo, hi;
    ra__band_clip(&run, position, &lo, &hi);
    for (int64_t k = lo; k < hi; k++) {
        int64_t index = run.pos + k * run.pos_step, key = by->origin ? by->origin[index] : index;
        if (key >= by->from && key < by->to && by->seen[key] < UINT8_MAX) by->seen[key]++;
    }
}

static ra_status count_sights(void *context, const struct ra__row *row)
{
    struct seen_by *by = context;
    int64_t place = by->head - row->heads.start;
    if (place < 0 || place % row->heads.step || place / row->heads.step >= row->heads.count)
        return RA_OK;
    for (int i = 0; i < row->tile_count; i++) count_run(by, row->q.start, &row->tiles[i]);
    return RA_OK;
}

/* Where in the order an original position is. */
static int64_t index_of(const ra_order *order, int64_t position)
{
    int64_t index = 0;
    while (order->origin[index] != position) index++;
    return index;
}

ra_status ra_problem_row(const ra_problem *problem, int head, int64_t query, uint8_t *seen)
{
    struct ra__shape shape;
    ra_problem given;
    if (!seen) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    RA__TRY(ra__problem_from(problem, &shape, &given));
    if (query < 0 || query >= shape.q_len)
        return ra__fail(RA_ERR_ARGUMENT, "pattern: query %" PRId64 " of %" PRId64, query,
                        shape.q_len);
    if (head < 0 || head >= shape.q_heads)
        return ra__fail(RA_ERR_ARGUMENT, "pattern: head %d of %d", head, shape.q_heads);
    ra_pattern *pattern = NULL;
    struct ra__sequences sequences;
    RA__TRY(ra__sequences_take(&given, &shape, NULL, &sequences));
    ra_status status = ra__pattern_copy(given.pattern, NULL, &pattern); /* NULL becomes full */
    if (status == RA_OK) status = ra__pattern_check(pattern, &shape, &sequences, given.order);
    if (status == RA_OK) {
        bool ordered = given.order && given.order->origin;
        struct seen_by by = { .head = head, .to = shape.k_len, .seen = seen };
        if (ordered) {
            by.origin = given.order->origin;
            ra__pattern_visible(pattern, shape.k_len, query, &by.from, &by.to);
            query = index_of(given.order, query);
        }
        memset(seen, 0, (size_t)shape.k_len);
        struct ra__rows rows = { pattern, &shape, &sequences, shape.q_heads, ordered };
        status = ra__pattern_rows(&rows, (ra_run){ query, 1, 1 },
                                  (struct ra__row_sink){ count_sights, &by });
    }
    ra_pattern_destroy(pattern);
    ra__sequences_clear(&sequences);
    return status;
}
