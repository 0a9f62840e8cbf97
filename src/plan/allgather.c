/* SPDX-License-Identifier: Apache-2.0 */
/* allgather.c - every rank first collects all keys its queries see, in global order, then works on
 * them at once. Costs the memory of all those keys; gives the same bits for every rank count,
 * because a row sees its keys in the same order and in the same key blocks on every rank.
 *
 * Round h: this rank's block goes to rank p + h, and that of rank p - h arrives; it is copied to
 * its positions while the next one arrives. Backward, the gradients of gathered keys return to
 * their owners in the same rounds. */
#include "plan/builder.h"

/* The range of positions that contains all keys of the rows of this rank. */
static ra_status widen(void *context, const struct ra__shard_row *row)
{
    struct ra__range *hull = context;
    for (int i = 0; i < row->row->tile_count; i++) {
        ra_run keys = ra__row_keys(row->row, &row->row->tiles[i]);
        if (keys.count == 0) continue;
        hull->lo = ra__min(hull->lo, keys.start);
        hull->hi = ra__max(hull->hi, ra__run_last(keys) + 1);
    }
    return RA_OK;
}

static ra_status find_hull(const struct ra__builder *b, struct ra__range *hull)
{
    *hull = (struct ra__range){ RA__UNBOUNDED, 0 };
    RA__TRY(ra__rows_of_rank(b, b->rank, (struct ra__shard_row_sink){ widen, hull }));
    if (hull->lo >= hull->hi) *hull = (struct ra__range){ 0, 0 };
    return RA_OK;
}

/* This rank's own tokens inside that range: they are not sent. A shard ascends, so they are one
 * range. */
static ra_status put_own(struct ra__builder *b, struct ra__step step, struct ra__range hull)
{
    const struct ra__tile inside = { { hull.lo, 1, hull.hi - hull.lo },
                                     { RA__UNBOUNDED, RA__UNBOUNDED },
                                     false };
    struct ra__range tokens = { RA__UNBOUNDED, 0 };
    struct ra__key_run keys;
    int64_t cursor = 0;
    step.block = b->rank;
    while (inside.keys.count &&
           ra__layout_next_keys(b->input->k_layout, b->rank, &inside, &cursor, &keys)) {
        tokens.lo = ra__min(tokens.lo, keys.token);
        tokens.hi = ra__max(tokens.hi, keys.token + keys.count);
    }
    struct ra__ranges all = { 0 };
    ra__ranges_add(&all, tokens.lo, tokens.hi);
    return ra__put_ranges(b, step, &all);
}

static ra_status start_key_round(struct ra__builder *b, int round)
{
    if (round >= b->ranks) return RA_OK;
    int reader = ra__peer(b, round), owner = ra__peer(b, -round);
    struct ra__step pack = ra__gather(RA__GATHER_PACK, round, b->rank, RA__OWN_KV, RA__PACKED);
    ra__use_buffer(b, RA__PACKED, b->outgoing[reader].tokens);
    ra__use_buffer(b, ra__key_buffer(round), b->incoming[owner].tokens);
    RA__TRY(ra__put_needs(b, pack, &b->outgoing[reader]));
    RA__TRY(ra__open_round(b, round));
    RA__TRY(ra__send_needs(b, reader, RA__TOPIC_KEYS, RA__PACKED, &b->outgoing[reader]));
    RA__TRY(ra__recv_needs(b, owner, RA__TOPIC_KEYS, ra__key_buffer(round), &b->incoming[owner]));
    return ra__put_exchange(b);
}

static ra_status gather(struct ra__builder *b, struct ra__range *hull)
{
    struct ra__step place = ra__gather(RA__GATHER_PLACE, 0, 0, RA__OWN_KV, RA__GATHERED);
    RA__TRY(find_hull(b, hull));
    b->plan->gathered = *hull;
    ra__use_buffer(b, RA__GATHERED, hull->hi - hull->lo);
    RA__TRY(start_key_round(b, 1));
    RA__TRY(put_own(b, place, *hull));
    for (int round = 1; round < b->ranks; round++) {
        place.hop = round;
        place.block = ra__peer(b, -round);
        place.from = ra__key_buffer(round);
        RA__TRY(start_key_round(b, round + 1));
        RA__TRY(ra__put_needs(b, place, &b->incoming[place.block]));
    }
    return RA_OK;
}

static ra_status forward(struct ra__builder *b)
{
    if (b->ranks == 1) return ra__put_attend_gathered(b, RA__OWN_KV, RA__OWN_KV);
    struct ra__range hull;
    RA__TRY(gather(b, &hull));
    return ra__put_attend_gathered(b, RA__GATHERED, RA__OWN_KV);
}

/* Round h of the return: my sums for the block of rank p + h leave, those of rank p - h for my
 * block arrive and are added, always in the same order. */
static ra_status return_round(struct ra__builder *b, int round)
{
    int owner = ra__peer(b, round), reader = ra__peer(b, -round);
    const struct ra__needs *leaving = &b->incoming[owner], *coming = &b->outgoing[reader];
    struct ra__step pick = ra__gather(RA__GATHER_PICK, round, owner, RA__SUM_GATHERED,
                                      ra__sum_buffer(round));
    struct ra__step add = ra__gather(RA__GATHER_ADD, round, b->rank, RA__SUM_ARRIVED, RA__SUM_OWN);
    ra__use_buffer(b, ra__sum_buffer(round), leaving->tokens);
    ra__use_buffer(b, RA__SUM_ARRIVED, coming->tokens);
    RA__TRY(ra__put_needs(b, pick, leaving));
    RA__TRY(ra__open_round(b, b->ranks - 1 + round));
    RA__TRY(ra__send_needs(b, owner, RA__TOPIC_RETURN, ra__sum_buffer(round), leaving));
    RA__TRY(ra__recv_needs(b, reader, RA__TOPIC_RETURN, RA__SUM_ARRIVED, coming));
    RA__TRY(ra__put_exchange(b));
    return ra__put_needs(b, add, coming);
}

static ra_status backward(struct ra__builder *b)
{
    struct ra__step pick = ra__gather(RA__GATHER_PICK, 0, 0, RA__SUM_GATHERED, RA__SUM_OWN);
    struct ra__range hull;
    RA__TRY(ra__put_clear(b, RA__SUM_OWN, ra__block_tokens(b, b->rank)));
    if (b->ranks == 1) return ra__put_attend_gathered(b, RA__OWN_KV, RA__SUM_OWN);
    RA__TRY(gather(b, &hull));
    RA__TRY(ra__put_clear(b, RA__SUM_GATHERED, b->plan->storage[RA__GATHERED].tokens));
    RA__TRY(ra__put_attend_gathered(b, RA__GATHERED, RA__SUM_GATHERED));
    RA__TRY(put_own(b, pick, hull));
    for (int round = 1; round < b->ranks; round++) RA__TRY(return_round(b, round));
    return RA_OK;
}

const struct ra__strategy ra__strategy_allgather = {
    .name = "allgather",
    .summary = "all keys a rank sees are collected first; same bits for every rank count",
    .gathers = true,
    .forward = forward,
    .backward = backward,
};
