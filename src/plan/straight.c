/* straight.c - the ring of a sparse pattern: what a rank sees of a block comes straight from the
 * block's owner, packed, and nothing else travels. Hop h: rank p works on what rank p - h sent it
 * while that of rank p - h - 1 arrives; hops in which nobody needs anything have no messages.
 *
 * Backward, the gradients of what a rank was sent go straight home one hop later and are added
 * there, always in the same order. */
#include "plan/builder.h"

/* Packs what rank p + hop sees of the own block. */
static ra_status pack_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    const struct ra__needs *needs = &b->outgoing[ra__peer(b, hop)];
    struct ra__step pack = {
        .op = RA__OP_PACK, .hop = hop, .block = b->rank, .from = RA__SLOT_OWN, .to = RA__SLOT_PACKED
    };
    ra__use_slot(b, RA__SLOT_PACKED, needs->rows);
    return ra__put_pieces(b, pack, needs->pieces, needs->count);
}

/* Adds the keys of a hop to the newest round. */
static ra_status exchange_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    int reader = ra__peer(b, hop), owner = ra__peer(b, -hop);
    ra__use_slot(b, ra__key_slot(hop), b->incoming[owner].rows);
    RA__TRY(ra__send_needs(b, reader, RA__TOPIC_KEYS, RA__SLOT_PACKED, &b->outgoing[reader]));
    return ra__recv_needs(b, owner, RA__TOPIC_KEYS, ra__key_slot(hop), &b->incoming[owner]);
}

ra_status ra__straight_forward(struct ra__builder *b)
{
    for (int hop = 0; hop < b->ranks; hop++) {
        enum ra__slot from = hop == 0 ? RA__SLOT_OWN : ra__key_slot(hop);
        RA__TRY(pack_keys(b, hop + 1));
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(ra__put_move(b));
        RA__TRY(ra__put_attend(b, hop, ra__peer(b, -hop), from, RA__SLOT_OWN));
        RA__TRY(ra__put_wait(b));
    }
    return RA_OK;
}

/* Adds to the newest round: my sums of hop - 1 go home, those of my own block come from where they
 * were made in that hop. */
static ra_status exchange_sums(struct ra__builder *b, int hop)
{
    if (hop < 2) return RA_OK;
    int owner = ra__peer(b, 1 - hop), reader = ra__peer(b, hop - 1);
    ra__use_slot(b, RA__GRAD_ARRIVE, b->outgoing[reader].rows);
    RA__TRY(ra__send_needs(b, owner, RA__TOPIC_HOME, ra__sum_slot(hop - 1), &b->incoming[owner]));
    return ra__recv_needs(b, reader, RA__TOPIC_HOME, RA__GRAD_ARRIVE, &b->outgoing[reader]);
}

static ra_status attend_keys(struct ra__builder *b, int hop)
{
    int owner = ra__peer(b, -hop);
    if (hop == 0) return ra__put_attend(b, hop, owner, RA__SLOT_OWN, RA__GRAD_OWN);
    if (hop >= b->ranks) return RA_OK;
    struct ra__ranges rows = { 0 };
    ra__ranges_add(&rows, 0, b->incoming[owner].rows);
    ra__use_slot(b, ra__sum_slot(hop), b->incoming[owner].rows);
    struct ra__step clear = {
        .op = RA__OP_CLEAR, .hop = hop, .block = owner, .to = ra__sum_slot(hop)
    };
    RA__TRY(ra__put_ranges(b, clear, &rows));
    return ra__put_attend(b, hop, owner, ra__key_slot(hop), ra__sum_slot(hop));
}

static ra_status add_sums(struct ra__builder *b, int hop)
{
    if (hop < 2) return RA_OK;
    const struct ra__needs *needs = &b->outgoing[ra__peer(b, hop - 1)];
    struct ra__step add = {
        .op = RA__OP_ADD, .hop = hop, .block = b->rank, .from = RA__GRAD_ARRIVE, .to = RA__GRAD_OWN
    };
    return ra__put_pieces(b, add, needs->pieces, needs->count);
}

ra_status ra__straight_backward(struct ra__builder *b)
{
    struct ra__ranges own = { 0 };
    ra__ranges_add(&own, 0, ra__block_rows(b, b->rank));
    ra__use_slot(b, RA__GRAD_OWN, ra__block_rows(b, b->rank));
    RA__TRY(ra__put_ranges(
        b, (struct ra__step){ .op = RA__OP_CLEAR, .block = b->rank, .to = RA__GRAD_OWN }, &own));
    int last = b->ranks > 1 ? b->ranks : 0;
    for (int hop = 0; hop <= last; hop++) {
        RA__TRY(pack_keys(b, hop + 1));
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(exchange_sums(b, hop));
        RA__TRY(ra__put_move(b));
        RA__TRY(attend_keys(b, hop));
        RA__TRY(ra__put_wait(b));
        RA__TRY(add_sums(b, hop));
    }
    return RA_OK;
}
