/* ring.c - blocks of K and V go from rank to rank, always to the next one; the last copy of a block
 * dies where nobody behind needs it.
 *
 * Hop h: rank p works on the keys of rank p - h while those of rank p - h - 1 arrive in the other slot.
 * Backward, the gradients of a block follow it one hop behind: a visitor sums its own part, adds what
 * earlier visitors sent, and passes the sum on; the last visitor sends it straight home.
 */
#include "plan/builder.h"

/* Rows of owner's block that leave for its hop-th visitor: what that one and all later ones need. */
static struct ra__ranges travelling(const struct ra__builder *b, int owner, int hop)
{
    struct ra__ranges rows = { 0 };
    for (int h = hop; h < b->ranks; h++)
        ra__ranges_union(&rows, ra__need(b, (owner + h) % b->ranks, owner));
    return rows;
}

/* Rows of owner's block that its first `hop` visitors have gradients for. */
static struct ra__ranges visited(const struct ra__builder *b, int owner, int hop)
{
    struct ra__ranges rows = { 0 };
    for (int h = 1; h <= hop; h++)
        ra__ranges_union(&rows, ra__need(b, (owner + h) % b->ranks, owner));
    return rows;
}

/* Where the block of hop h lies while it is sent on: the own one was packed into slot B. */
static enum ra__slot key_slot(int hop) { return hop % 2 ? RA__SLOT_TRAVEL_A : RA__SLOT_TRAVEL_B; }
static enum ra__slot sum_slot(int hop) { return hop % 2 ? RA__GRAD_A : RA__GRAD_B; }

/* Adds the keys of hop `hop` to the newest round: mine go on, the next ones come. */
static ra_status exchange_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    struct ra__ranges leaving = travelling(b, ra__peer(b, 1 - hop), hop);
    struct ra__ranges coming = travelling(b, ra__peer(b, -hop), hop);
    enum ra__slot from = key_slot(hop - 1), to = key_slot(hop);
    if (leaving.count) ra__use_slot(b, from, ra__block_rows(b, ra__peer(b, 1 - hop)));
    if (coming.count) ra__use_slot(b, to, ra__block_rows(b, ra__peer(b, -hop)));
    RA__TRY(ra__send(b, ra__peer(b, 1), RA__TOPIC_KEYS, from, &leaving));
    return ra__recv(b, ra__peer(b, -1), RA__TOPIC_KEYS, to, &coming);
}

static ra_status pack_own(struct ra__builder *b)
{
    struct ra__ranges rows = travelling(b, b->rank, 1);
    if (rows.count == 0) return RA_OK;
    return ra__put_step(b, (struct ra__step){ .op = RA__OP_PACK,
                                              .block = b->rank,
                                              .from = RA__SLOT_OWN,
                                              .to = key_slot(0),
                                              .range = rows });
}

static ra_status forward(struct ra__builder *b)
{
    RA__TRY(pack_own(b));
    for (int hop = 0; hop < b->ranks; hop++) {
        enum ra__slot from = hop == 0 ? RA__SLOT_OWN : key_slot(hop);
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(ra__put_move(b));
        RA__TRY(ra__put_attend(b, hop, ra__peer(b, -hop), from, RA__SLOT_OWN));
        RA__TRY(ra__put_wait(b));
    }
    return RA_OK;
}

/* Adds to the newest round: my sums of hop - 1 go on or home; the earlier sums of this hop's block
 * come from the rank before me; and if this is when the last visitor of my own block is done with
 * it, my own gradients come home. */
static ra_status exchange_sums(struct ra__builder *b, int hop, bool *arrives, bool *comes_home)
{
    int sent = ra__peer(b, 1 - hop), summed = ra__peer(b, -hop);
    struct ra__ranges none = { 0 }, sums = none, earlier = none, home = none;
    if (hop >= 2 && travelling(b, sent, hop - 1).count) sums = visited(b, sent, hop - 1);
    bool goes_on = hop < b->ranks && travelling(b, sent, hop).count > 0;
    if (hop >= 2 && hop < b->ranks && travelling(b, summed, hop).count)
        earlier = visited(b, summed, hop - 1);
    bool last_visit = hop >= 2 && travelling(b, b->rank, hop - 1).count &&
                      (hop == b->ranks || !travelling(b, b->rank, hop).count);
    if (last_visit) home = visited(b, b->rank, hop - 1);
    *arrives = earlier.count > 0;
    *comes_home = home.count > 0;
    if (*arrives) ra__use_slot(b, RA__GRAD_ARRIVE, ra__block_rows(b, summed));
    /* The last gradients of a full ring come home when nothing else arrives any more. */
    enum ra__slot home_slot = *arrives ? RA__GRAD_HOME : RA__GRAD_ARRIVE;
    if (*comes_home) ra__use_slot(b, home_slot, ra__block_rows(b, b->rank));
    RA__TRY(ra__send(b, goes_on ? ra__peer(b, 1) : sent, goes_on ? RA__TOPIC_CHAIN : RA__TOPIC_HOME,
                     sum_slot(hop - 1), &sums));
    RA__TRY(ra__recv(b, ra__peer(b, -1), RA__TOPIC_CHAIN, RA__GRAD_ARRIVE, &earlier));
    return ra__recv(b, ra__peer(b, hop - 1), RA__TOPIC_HOME, home_slot, &home);
}

static ra_status put_add(struct ra__builder *b, int hop, int block, enum ra__slot from,
                         enum ra__slot to, int visitors)
{
    return ra__put_step(b, (struct ra__step){ .op = RA__OP_ADD,
                                              .hop = hop,
                                              .block = block,
                                              .from = from,
                                              .to = to,
                                              .range = visited(b, block, visitors) });
}

/* Work of one hop on the block that visits: a fresh sum, and gradients into it. */
static ra_status sum_visitor(struct ra__builder *b, int hop)
{
    int block = ra__peer(b, -hop);
    if (travelling(b, block, hop).count == 0) return RA_OK; /* it never got here */
    ra__use_slot(b, sum_slot(hop), ra__block_rows(b, block));
    RA__TRY(ra__put_step(b, (struct ra__step){ .op = RA__OP_CLEAR,
                                               .hop = hop,
                                               .block = block,
                                               .to = sum_slot(hop),
                                               .range = visited(b, block, hop) }));
    return ra__put_attend(b, hop, block, key_slot(hop), sum_slot(hop));
}

/* Own keys: half the queries at hop 0, half while the last sums come home; alone, all at once. */
static ra_status attend_own(struct ra__builder *b, int hop)
{
    if (b->ranks == 1) return ra__put_attend(b, hop, b->rank, RA__SLOT_OWN, RA__GRAD_OWN);
    return ra__put_attend_half(b, hop, b->rank, RA__SLOT_OWN, RA__GRAD_OWN, hop > 0);
}

static ra_status backward_hop(struct ra__builder *b, int hop)
{
    bool arrives, comes_home;
    RA__TRY(ra__open_round(b, hop + 1));
    RA__TRY(exchange_keys(b, hop + 1));
    RA__TRY(exchange_sums(b, hop, &arrives, &comes_home));
    RA__TRY(ra__put_move(b));
    RA__TRY(hop % b->ranks == 0 ? attend_own(b, hop) : sum_visitor(b, hop));
    RA__TRY(ra__put_wait(b));
    if (arrives)
        RA__TRY(put_add(b, hop, ra__peer(b, -hop), RA__GRAD_ARRIVE, sum_slot(hop), hop - 1));
    if (!comes_home) return RA_OK;
    return put_add(b, hop, b->rank, arrives ? RA__GRAD_HOME : RA__GRAD_ARRIVE, RA__GRAD_OWN,
                   hop - 1);
}

static ra_status backward(struct ra__builder *b)
{
    struct ra__step clear = { .op = RA__OP_CLEAR, .block = b->rank, .to = RA__GRAD_OWN };
    ra__ranges_add(&clear.range, 0, ra__block_rows(b, b->rank));
    ra__use_slot(b, RA__GRAD_OWN, ra__block_rows(b, b->rank));
    RA__TRY(pack_own(b));
    RA__TRY(ra__put_step(b, clear));
    int last = b->ranks > 1 ? b->ranks : 0;
    for (int hop = 0; hop <= last; hop++) RA__TRY(backward_hop(b, hop));
    return ra__put_step(b, (struct ra__step){ .op = RA__OP_FINISH, .block = b->rank });
}

const struct ra__strategy ra__strategy_ring = {
    .name = "ring",
    .summary = "blocks of K and V go from rank to rank; two blocks in memory",
    .forward = forward,
    .backward = backward,
};
