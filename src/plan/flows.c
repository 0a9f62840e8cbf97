/* SPDX-License-Identifier: Apache-2.0 */
/* flows.c - a dense ring: which tokens of a block travel from rank to rank, and how far.
 *
 * The readers that a block of owner o still has to visit after this rank are neighbours on the
 * ring, from the next rank up to o - 1; those it has visited are neighbours, too. From one owner to
 * the next, one reader joins them. So what they see together is kept as a set of positions to which
 * one reader is added at a time, and planning a rank takes O(ranks), not O(ranks^2). Sender and
 * receiver of a message compute the same set, and so the same tokens. */
#include "plan/builder.h"
#include "plan/spans.h"

/* ---- What each reader sees ------------------------------------------------------------------- */

struct seen {
    struct ra__range *at; /* of all readers, reader after reader */
    int64_t *first;       /* [ranks + 1]: where those of a reader start */
};

static ra_status mark_row(void *context, const struct ra__shard_row *row)
{
    struct ra__spans *spans = context;
    for (int i = 0; i < row->row->tile_count; i++) {
        ra_run keys = row->row->tiles[i].keys;
        if (keys.count == 0) continue;
        RA__TRY(ra__spans_add(spans, (struct ra__range){ keys.start, ra__run_last(keys) + 1 }));
    }
    return RA_OK;
}

static ra_status keep(struct seen *seen, int reader, const struct ra__spans *spans)
{
    int64_t count = seen->first[reader];
    for (int64_t i = 0; i < spans->count; i++) {
        struct ra__range *grown = ra__grow(NULL, seen->at, (size_t)count, sizeof *grown);
        if (!grown) return ra__fail(RA_ERR_MEMORY, "plan: what rank %d sees", reader);
        seen->at = grown;
        grown[count++] = spans->at[i];
    }
    seen->first[reader + 1] = count;
    return RA_OK;
}

static ra_status find_seen(const struct ra__builder *b, struct seen *seen)
{
    struct ra__spans spans = { NULL, 0 };
    ra_status status = RA_OK;
    for (int reader = 0; reader < b->ranks && status == RA_OK; reader++) {
        spans.count = 0;
        status = ra__rows_of_rank(b, reader, (struct ra__shard_row_sink){ mark_row, &spans });
        if (status == RA_OK) status = keep(seen, reader, &spans);
    }
    ra__spans_clear(&spans);
    return status;
}

/* ---- What neighbours see together ------------------------------------------------------------ */

static ra_status add_reader(struct ra__spans *spans, const struct seen *seen, int reader)
{
    int64_t from = seen->first[reader];
    return ra__spans_add_all(spans, seen->at + from, seen->first[reader + 1] - from);
}

/* Owners after this rank, the nearest first: the block of rank + k + 1 has still to visit rank + 1
 * to rank + k, and this rank before them. */
static ra_status look_ahead(struct ra__builder *b, const struct seen *seen, struct ra__spans *later,
                            struct ra__spans *with_own)
{
    const ra_layout *layout = b->input->k_layout;
    RA__TRY(add_reader(with_own, seen, b->rank));
    for (int k = 0; k + 1 < b->ranks; k++) {
        int owner = ra__peer(b, k + 1);
        b->flows[owner].onward = ra__spans_tokens(later, layout, owner);
        b->flows[owner].coming = ra__spans_tokens(with_own, layout, owner);
        RA__TRY(add_reader(later, seen, owner));
        RA__TRY(add_reader(with_own, seen, owner));
    }
    b->flows[b->rank].onward = b->flows[b->rank].coming = ra__spans_tokens(later, layout, b->rank);
    return RA_OK;
}

/* Owners before this rank, the nearest first: the block of rank - h visited rank - h + 1 to
 * rank - 1. */
static ra_status look_back(struct ra__builder *b, const struct seen *seen,
                           struct ra__spans *earlier, struct ra__spans *with_own)
{
    const ra_layout *layout = b->input->k_layout;
    RA__TRY(add_reader(with_own, seen, b->rank));
    for (int hop = 1; hop < b->ranks; hop++) {
        int owner = ra__peer(b, -hop);
        b->flows[owner].before = ra__spans_tokens(earlier, layout, owner);
        b->flows[owner].after = ra__spans_tokens(with_own, layout, owner);
        RA__TRY(add_reader(earlier, seen, owner));
        RA__TRY(add_reader(with_own, seen, owner));
    }
    return RA_OK;
}

/* How many ranks on the own block travels: to the last one that sees any of it. */
static int find_last_visit(const struct ra__builder *b, const struct seen *seen)
{
    for (int hop = b->ranks - 1; hop > 0; hop--) {
        int reader = ra__peer(b, hop);
        int64_t from = seen->first[reader];
        struct ra__spans spans = { seen->at + from, seen->first[reader + 1] - from };
        if (ra__spans_tokens(&spans, b->input->k_layout, b->rank).count > 0) return hop;
    }
    return 0;
}

static ra_status find_flows(struct ra__builder *b, struct seen *seen)
{
    struct ra__spans sets[2] = { { NULL, 0 }, { NULL, 0 } };
    RA__TRY(find_seen(b, seen));
    b->last_visit = find_last_visit(b, seen);
    ra_status status = look_ahead(b, seen, &sets[0], &sets[1]);
    sets[0].count = sets[1].count = 0;
    if (status == RA_OK && b->input->backward) status = look_back(b, seen, &sets[0], &sets[1]);
    for (int i = 0; i < RA__COUNT(sets); i++) ra__spans_clear(&sets[i]);
    return status;
}

ra_status ra__find_flows(struct ra__builder *b)
{
    struct seen seen = { NULL, NULL };
    size_t ranks = (size_t)b->ranks;
    b->flows = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *b->flows);
    seen.first = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks + 1, sizeof *seen.first);
    ra_status status = b->flows && seen.first
                           ? find_flows(b, &seen)
                           : ra__fail(RA_ERR_MEMORY, "plan: needs of %d ranks", b->ranks);
    ra__free(seen.at);
    ra__free(seen.first);
    return status;
}
