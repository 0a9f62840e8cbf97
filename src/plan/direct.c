/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - the ring of a sparse pattern: what a rank sees of a block comes directly from its
 * owner, packed, and nothing else is sent. Hop h: rank p works on what rank p - h sent it while the
 * tokens of rank p - h - 1 arrive; a hop in which no rank needs anything has no messages.
 *
 * Backward, the gradients of what a rank received go directly to the owner one hop later and are
 * added there, always in the same order. */
#include "plan/builder.h"

/* Packs what rank p + hop sees of this rank's block. */
static ra_status pack_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    const struct ra__needs *needs = &b->outgoing[ra__peer(b, hop)];
    ra__use_buffer(b, RA__PACKED, needs->tokens);
    return ra__put_needs(b, ra__gather(RA__GATHER_PACK, hop, b->rank, RA__OWN_KV, RA__PACKED),
                         needs);
}

/* Adds the keys of a hop to the newest round. */
static ra_status exchange_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    int reader = ra__peer(b, hop), owner = ra__peer(b, -hop);
    ra__use_buffer(b, ra__key_buffer(hop), b->incoming[owner].tokens);
    RA__TRY(ra__send_needs(b, reader, RA__TOPIC_KEYS, RA__PACKED, &b->outgoing[reader]));
    return ra__recv_needs(b, owner, RA__TOPIC_KEYS, ra__key_buffer(hop), &b->incoming[owner]);
}

ra_status ra__direct_forward(struct ra__builder *b)
{
    for (int hop = 0; hop < b->ranks; hop++) {
        enum ra__buffer from = hop == 0 ? RA__OWN_KV : ra__key_buffer(hop);
        RA__TRY(pack_keys(b, hop + 1));
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(ra__put_exchange(b));
        RA__TRY(ra__put_attend(b, hop, ra__peer(b, -hop), from, RA__OWN_KV));
    }
    return RA_OK;
}

/* Adds to the newest round: my sums of hop - 1 go to their owner, those of my own block come from
 * the rank that made them in that hop. */
static ra_status exchange_sums(struct ra__builder *b, int hop)
{
    if (hop < 2) return RA_OK;
    int owner = ra__peer(b, 1 - hop), reader = ra__peer(b, hop - 1);
    ra__use_buffer(b, RA__SUM_ARRIVED, b->outgoing[reader].tokens);
    RA__TRY(
        ra__send_needs(b, owner, RA__TOPIC_RETURN, ra__sum_buffer(hop - 1), &b->incoming[owner]));
    return ra__recv_needs(b, reader, RA__TOPIC_RETURN, RA__SUM_ARRIVED, &b->outgoing[reader]);
}

static ra_status attend_keys(struct ra__builder *b, int hop)
{
    int owner = ra__peer(b, -hop);
    if (hop == 0) return ra__put_attend(b, hop, owner, RA__OWN_KV, RA__SUM_OWN);
    if (hop >= b->ranks) return RA_OK;
    ra__use_buffer(b, ra__sum_buffer(hop), b->incoming[owner].tokens);
    RA__TRY(ra__put_first(
        b, ra__gather(RA__GATHER_CLEAR, hop, owner, RA__NO_BUFFER, ra__sum_buffer(hop)),
        b->incoming[owner].tokens));
    return ra__put_attend(b, hop, owner, ra__key_buffer(hop), ra__sum_buffer(hop));
}

static ra_status add_sums(struct ra__builder *b, int hop)
{
    if (hop < 2) return RA_OK;
    const struct ra__needs *needs = &b->outgoing[ra__peer(b, hop - 1)];
    return ra__put_needs(b, ra__gather(RA__GATHER_ADD, hop, b->rank, RA__SUM_ARRIVED, RA__SUM_OWN),
                         needs);
}

ra_status ra__direct_backward(struct ra__builder *b)
{
    RA__TRY(ra__put_clear(b, RA__SUM_OWN, ra__block_tokens(b, b->rank)));
    int last = b->ranks > 1 ? b->ranks : 0;
    for (int hop = 0; hop <= last; hop++) {
        RA__TRY(pack_keys(b, hop + 1));
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(exchange_sums(b, hop));
        RA__TRY(ra__put_exchange(b));
        RA__TRY(attend_keys(b, hop));
        RA__TRY(add_sums(b, hop));
    }
    return RA_OK;
}
