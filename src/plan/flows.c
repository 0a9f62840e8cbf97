/* flows.c - a dense ring: which rows of a block travel from rank to rank, and how far. */
#include "plan/builder.h"

/* Adds rows of owner's block that `reader` sees to everything they count for here. */
static void note_rows(struct ra__builder *b, int reader, int owner, struct ra__range rows)
{
    struct ra__flow *flow = &b->flows[owner];
    int there = (reader - owner + b->ranks) % b->ranks; /* the hop at which the reader is visited */
    int here = (b->rank - owner + b->ranks) % b->ranks;
    if (there == 0) return;
    if (there >= here) ra__ranges_add(&flow->coming, rows.lo, rows.hi);
    if (there > here) ra__ranges_add(&flow->onward, rows.lo, rows.hi);
    if (there < here) ra__ranges_add(&flow->before, rows.lo, rows.hi);
    if (there <= here) ra__ranges_add(&flow->after, rows.lo, rows.hi);
    if (owner == b->rank && there > b->last_visit) b->last_visit = there;
}

/* Notes which rows of `owner`'s block a sight touches. */
static void note_sight(struct ra__builder *b, const struct ra__sight *sight, int reader, int owner)
{
    struct ra__key_run keys;
    int64_t cursor = 0;
    while (ra__layout_next_keys(b->input->k_layout, owner, sight, &cursor, &keys)) {
        int64_t last = keys.row + (keys.count - 1) * keys.row_step;
        note_rows(b, reader, owner, (struct ra__range){ keys.row, last + 1 });
    }
}

struct reader {
    struct ra__builder *builder;
    int rank;
};

static ra_status note_row(void *context, const struct ra__shard_row *row)
{
    struct reader *reader = context;
    for (int i = 0; i < row->row->sight_count; i++)
        for (int owner = 0; owner < reader->builder->ranks; owner++)
            note_sight(reader->builder, &row->row->sights[i], reader->rank, owner);
    return RA_OK;
}

ra_status ra__find_flows(struct ra__builder *b)
{
    b->flows = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)b->ranks, sizeof *b->flows);
    if (!b->flows) return ra__fail(RA_ERR_MEMORY, "plan: needs of %d ranks", b->ranks);
    for (int rank = 0; rank < b->ranks; rank++) {
        struct reader reader = { b, rank };
        RA__TRY(ra__rows_of_rank(b, rank, (struct ra__shard_row_sink){ note_row, &reader }));
    }
    return RA_OK;
}
