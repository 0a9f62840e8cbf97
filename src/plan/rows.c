/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - the rows of a rank's queries, one after the other. They are generated whenever they are
 * needed: a sparse pattern can have more of them than a plan should keep. */
#include "plan/builder.h"

struct stream {
    const struct ra__builder *builder;
    const struct ra__shard_run *run; /* the queries come from it */
    struct ra__shard_row_sink sink;
    int index;
};

static ra_status hand_on(struct stream *stream, const struct ra__row *row, int64_t ordinal)
{
    const ra_run *at = &stream->run->at;
    struct ra__shard_row shard_row = { .row = row,
                                       .q_token = stream->run->token +
                                                  (row->query - at->start) / at->step,
                                       .q_token_step = row->q.step / at->step,
                                       .index = stream->index++,
                                       .ordinal = ordinal };
    if (row->q.count == 1) shard_row.q_token_step = 1; /* a single query has any step */
    return stream->sink.put(stream->sink.context, &shard_row);
}

/* A row for the query heads of each KV head. */
static ra_status split_row(struct stream *stream, const struct ra__row *row)
{
    const struct ra__shape *shape = &stream->builder->input->shape;
    int64_t group = shape->q_heads / shape->kv_heads, skipped;
    int64_t first = row->heads.start / group, last = ra__run_last(row->heads) / group;
    for (int64_t kv_head = first; kv_head <= last; kv_head++) {
        struct ra__row part = *row;
        part.heads = ra__run_clip(row->heads, kv_head * group, (kv_head + 1) * group, &skipped);
        if (part.heads.count > 0)
            RA__TRY(hand_on(stream, &part, row->ordinal * shape->kv_heads + kv_head));
    }
    return RA_OK;
}

/* Patterns use the heads of the problem, plans those of the slice. */
static ra_status take_row(void *context, const struct ra__row *row)
{
    struct stream *stream = context;
    const struct ra__plan_input *input = stream->builder->input;
    int64_t first = input->first_head, skipped;
    struct ra__row own = *row;
    own.heads = ra__run_clip(row->heads, first, first + input->shape.q_heads, &skipped);
    own.heads.start -= first;
    if (own.heads.count == 0) return RA_OK;
    return stream->builder->split_heads ? split_row(stream, &own)
                                        : hand_on(stream, &own, row->ordinal);
}

static struct ra__rows rows_of(const struct ra__plan_input *input)
{
    return (struct ra__rows){ input->pattern, &input->shape, &input->sequences, input->all_heads,
                              input->order != NULL };
}

ra_status ra__rows_of_rank(const struct ra__builder *b, int rank, struct ra__shard_row_sink sink)
{
    const ra_layout *layout = b->input->q_layout;
    const struct ra__rows rows = rows_of(b->input);
    struct stream stream = { .builder = b, .sink = sink };
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        stream.run = &layout->runs[i];
        RA__TRY(
            ra__pattern_rows(&rows, stream.run->at, (struct ra__row_sink){ take_row, &stream }));
    }
    return RA_OK;
}

ra_status ra__rows_of_window(const struct ra__builder *b, const struct ra__window *window,
                             struct ra__row_sink sink)
{
    const struct ra__rows rows = rows_of(b->input);
    return ra__pattern_rows(&rows, (ra_run){ window->first, 1, window->count }, sink);
}

bool ra__row_sees(const struct ra__builder *b, const struct ra__row *row, int owner)
{
    struct ra__key_run keys;
    for (int i = 0; i < row->tile_count; i++) {
        struct ra__tile seen = { ra__row_keys(row, &row->tiles[i]), row->tiles[i].band, false };
        int64_t cursor = 0;
        if (owner == RA__ANYBODY && seen.keys.count > 0) return true;
        if (owner == RA__ANYBODY || seen.keys.count == 0) continue;
        if (ra__layout_next_keys(b->input->k_layout, owner, &seen, &cursor, &keys)) return true;
    }
    return false;
}
