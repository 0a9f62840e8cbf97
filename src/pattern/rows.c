/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - the rows of a pattern: the tiles of its kind, with the modifiers applied. */
#include <inttypes.h>

#include "pattern/pattern.h"

/* Tiles as the kind adds them, and as they are passed on. A few tiles need no memory: folding keys
 * into a state then allocates nothing. */
enum { FEW = 48 };
struct list {
    struct ra__tile *at;
    int count, room;
    struct ra__tile few[FEW];
};

struct ra__row_writer {
    const struct ra__pattern_input *input;
    struct ra__row_sink sink;
    int64_t base;     /* the first key of the sequence */
    int64_t position; /* that query 0 of the problem would have in this sequence */
    int64_t lo, hi;   /* keys of the document, or all of the sequence */
    struct list added, clipped;
    int ordinal; /* of the next row */
};

static void list_open(struct list *list)
{
    list->at = list->few;
    list->count = 0;
    list->room = FEW;
}

static void list_close(struct list *list)
{
    if (list->at != list->few) ra__free(list->at);
}

static ra_status list_add(struct list *list, struct ra__tile tile)
{
    if (list->count == list->room) {
        int room = 2 * list->room;
        struct ra__tile *larger = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)room,
                                                  sizeof *larger);
        if (!larger) return ra__fail(RA_ERR_MEMORY, "pattern: %d key runs of a row", room);
        for (int i = 0; i < list->count; i++) larger[i] = list->at[i];
        list_close(list);
        list->at = larger;
        list->room = room;
    }
    list->at[list->count++] = tile;
    return RA_OK;
}

ra_status ra__row_writer_add(struct ra__row_writer *writer, ra_run keys, struct ra__band band)
{
    if (keys.count == 0) return RA_OK;
    return list_add(&writer->added, (struct ra__tile){ keys, band, false });
}

ra_status ra__row_writer_add_whole(struct ra__row_writer *writer, ra_run keys, struct ra__band band)
{
    if (keys.count == 0) return RA_OK;
    return list_add(&writer->added, (struct ra__tile){ keys, band, true });
}

int ra__row_writer_count(const struct ra__row_writer *writer) { return writer->added.count; }
const struct ra__tile *ra__row_writer_tiles(const struct ra__row_writer *writer)
{
    return writer->added.at;
}
void ra__row_writer_truncate(struct ra__row_writer *writer, int count)
{
    writer->added.count = count;
}

ra_status ra__row_writer_put(struct ra__row_writer *writer, ra_run q)
{
    const struct ra__pattern_input *input = writer->input;
    bool causal = input->pattern->causal && !input->ordered;
    writer->clipped.count = 0;
    for (int i = 0; i < writer->added.count; i++) {
        struct ra__tile tile = writer->added.at[i];
        if (causal) tile.band.right = ra__min(tile.band.right, 0);
        int64_t from = writer->lo, to = writer->hi, skipped;
        if (!tile.whole) {
            from = ra__max(from, q.start - tile.band.left);
            to = ra__min(to, ra__run_last(q) + tile.band.right + 1);
        }
        tile.keys = ra__run_clip(tile.keys, from, to, &skipped);
        tile.keys.start += writer->base;
        if (tile.keys.count > 0) RA__TRY(list_add(&writer->clipped, tile));
    }
    struct ra__row row = { .q = { q.start + writer->base, q.step, q.count },
                           .heads = input->heads,
                           .query = q.start - writer->position,
                           .tiles = writer->clipped.at,
                           .tile_count = writer->clipped.count,
                           .ordinal = writer->ordinal++ };
    return writer->sink.put(writer->sink.context, &row);
}

/* The document of `position`: the last one that starts at or before it, so that empty ones are
 * skipped. */
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

/* Queries between two boundaries of the kind; documents split them further. */
static ra_status see_between(struct ra__row_writer *writer, ra_run q)
{
    const ra_pattern *pattern = writer->input->pattern;
    bool documents = pattern->bounds && !writer->input->ordered;
    writer->lo = 0;
    writer->hi = writer->input->k_len;
    writer->ordinal = 0;
    for (int64_t done = 0; done < q.count;) {
        ra_run part = { q.start + done * q.step, q.step, q.count - done };
        if (documents) {
            int64_t d = document_of(pattern, part.start), skipped;
            writer->lo = pattern->bounds[d];
            writer->hi = pattern->bounds[d + 1];
            part = ra__run_clip(part, writer->lo, writer->hi, &skipped);
        }
        writer->added.count = 0;
        RA__TRY(pattern->kind->see(writer->input, part, writer));
        done += part.count;
    }
    return RA_OK;
}

/* One interval of the period after the other, and each of them in all periods before the next: rows
 * that differ by a constant advance follow each other. */
static ra_status see_intervals(struct ra__row_writer *writer, ra_run q)
{
    const ra_pattern *pattern = writer->input->pattern;
    const struct ra__pattern_kind *kind = pattern->kind;
    if (!kind->next_boundary) return see_between(writer, q);
    int64_t end = ra__run_last(q) + 1, skipped;
    int64_t period = kind->period ? kind->period(pattern) : 0;
    if (period == 0) period = RA__UNBOUNDED;
    int64_t base = q.start - q.start % period, stop = ra__min(base + period, end);
    if (end <= base + period) base = q.start; /* one period: start where the queries do */
    for (int64_t at = base, next; at < stop; at = next) {
        next = ra__min(kind->next_boundary(pattern, at), base + period);
        for (int64_t shift = 0; at + shift < end; shift += period) {
            ra_run part = ra__run_clip(q, at + shift, next + shift, &skipped);
            if (part.count > 0) RA__TRY(see_between(writer, part));
        }
    }
    return RA_OK;
}

int ra__pattern_classes(const ra_pattern *pattern, int q_heads)
{
    return pattern->kind->head_classes ? pattern->kind->head_classes(pattern, q_heads) : 1;
}

/* Queries of one sequence, by their indices. Without keys there is nothing to ask the kind for. */
static ra_status see_sequence(const struct ra__rows *rows, struct ra__pattern_input *input,
                              struct ra__row_writer *writer, const ra_sequence *at, ra_run q)
{
    input->k_len = at->k_count;
    writer->base = at->k_first;
    writer->position = at->k_count - at->q_count + rows->shape->query_offset - at->q_first;
    q.start += writer->position;
    if (at->k_count > 0) return see_intervals(writer, q);
    writer->added.count = writer->ordinal = 0;
    return ra__row_writer_put(writer, q);
}

/* The queries of one class of heads, sequence by sequence. */
static ra_status see_class(const struct ra__rows *rows, struct ra__pattern_input *input,
                           struct ra__row_writer *writer, ra_run queries)
{
    const struct ra__shape *shape = rows->shape;
    if (rows->sequences->count == 0) {
        const ra_sequence all = { 0, shape->q_len, 0, shape->k_len };
        return see_sequence(rows, input, writer, &all, queries);
    }
    for (int64_t done = 0; done < queries.count;) {
        const ra_run rest = { queries.start + done * queries.step, queries.step,
                              queries.count - done };
        const ra_sequence at = ra__sequence_of(rows->sequences, shape, rest.start);
        int64_t skipped;
        const ra_run q = ra__run_clip(rest, at.q_first, at.q_first + at.q_count, &skipped);
        RA__TRY(see_sequence(rows, input, writer, &at, q));
        done += q.count;
    }
    return RA_OK;
}

ra_status ra__pattern_rows(const struct ra__rows *rows, ra_run queries, struct ra__row_sink sink)
{
    const struct ra__pattern_kind *kind = rows->pattern->kind;
    struct ra__pattern_input input = { .pattern = rows->pattern,
                                       .q_heads = rows->q_heads,
                                       .heads = { 0, 1, rows->q_heads },
                                       .ordered = rows->ordered };
    struct ra__row_writer writer;
    writer.input = &input;
    writer.sink = sink;
    list_open(&writer.added);
    list_open(&writer.clipped);
    int classes = ra__pattern_classes(rows->pattern, rows->q_heads);
    ra_status status = RA_OK;
    for (int i = 0; i < classes && status == RA_OK && queries.count > 0; i++) {
        input.head_class = i;
        if (kind->head_class) input.heads = kind->head_class(rows->pattern, rows->q_heads, i);
        if (input.heads.count > 0) status = see_class(rows, &input, &writer, queries);
    }
    list_close(&writer.added);
    list_close(&writer.clipped);
    return status;
}

bool ra__pattern_sees_all(const ra_pattern *pattern)
{
    return !pattern->causal && !pattern->bounds && !pattern->kind->visible_end;
}

void ra__pattern_visible(const ra_pattern *pattern, int64_t k_len, int64_t p, int64_t *from,
                         int64_t *to)
{
    *from = 0;
    *to = k_len;
    if (pattern->bounds) {
        int64_t d = document_of(pattern, p);
        *from = pattern->bounds[d];
        *to = pattern->bounds[d + 1];
    }
    if (pattern->kind->visible_end) *to = ra__min(*to, pattern->kind->visible_end(pattern, p));
    if (pattern->causal) *to = ra__min(*to, p + 1);
    *to = ra__max(*to, *from);
}
