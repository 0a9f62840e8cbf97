/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - KV blocks go from rank to rank, always to the next one; a block stops where no later
 * rank needs it. Sparse patterns send tokens directly to their readers instead: see direct.c.
 *
 * Hop h: rank p works on the keys of rank p - h while those of rank p - h - 1 arrive in the other
 * buffer. Backward, the gradients of a block follow it one hop later: each rank sums its own part,
 * adds what earlier ranks sent, and forwards the sum; the last rank sends it directly to the
 * owner.
 *
 * Ranks that share a device lend their blocks instead: what goes from rank to rank is where the
 * owner has its keys, and the sums of their gradients, to which one rank after the other adds its
 * part. They are its own again when all who use them have said that they are done, so that is the
 * last round. */
#include "plan/builder.h"

/* A buffer holds tokens of a block where the block has them, up to the last one that is used: under
 * a zigzag partition only the first half of a block may ever travel. */
static void use_up_to(struct ra__builder *b, enum ra__buffer buffer,
                      const struct ra__ranges *ranges)
{
    for (int i = 0; i < ranges->count; i++) ra__use_buffer(b, buffer, ranges->at[i].hi);
}

/* Only the own block takes memory, where it has to be packed. The others have one token, so that
 * they exist; steps find what is lent elsewhere. */
static void use_lent(struct ra__builder *b, int hop, const struct ra__ranges *onward)
{
    if (hop == 1) use_up_to(b, ra__key_buffer(0), onward);
    ra__use_buffer(b, ra__key_buffer(hop), 1);
    ra__use_buffer(b, ra__key_buffer(hop - 1), 1);
    if (b->program->direction == RA__BACKWARD) ra__use_buffer(b, ra__sum_buffer(hop), 1);
}

/* Adds the keys of hop `hop` to the newest round: those of the hop before are forwarded, the next
 * ones arrive. */
static ra_status exchange_keys(struct ra__builder *b, int hop)
{
    if (hop >= b->ranks) return RA_OK;
    int here = ra__peer(b, 1 - hop), next = ra__peer(b, -hop); /* owners of the two blocks */
    const struct ra__ranges *onward = &b->flows[here].onward, *coming = &b->flows[next].coming;
    enum ra__buffer from = ra__key_buffer(hop - 1), to = ra__key_buffer(hop);
    if (b->program->lends) {
        use_lent(b, hop, onward);
    } else {
        use_up_to(b, from, onward);
        use_up_to(b, to, coming);
    }
    RA__TRY(ra__send(b, ra__peer(b, 1), RA__TOPIC_KEYS, from, onward));
    return ra__recv(b, ra__peer(b, -1), RA__TOPIC_KEYS, to, coming);
}

/* Is there a block that comes here, or goes on from here? */
static bool any_flow(const struct ra__builder *b, bool onward)
{
    for (int i = 0; i < b->ranks; i++)
        if (onward ? b->flows[i].onward.count : i != b->rank && b->flows[i].coming.count)
            return true;
    return false;
}

/* Is this rank the last one that a block goes to? It tells the owner that its sums are complete. */
static bool ends_here(const struct ra__builder *b, int owner)
{
    return b->flows[owner].coming.count && !b->flows[owner].onward.count;
}

/* Every rank to the owners of the blocks that came here. Backward also to those whose events it
 * had: the rank before, which passed on sums, and the one that said that its own are complete. */
static ra_status end_loans(struct ra__builder *b)
{
    const bool back = b->program->direction == RA__BACKWARD;
    if (!b->program->lends) return RA_OK;
    RA__TRY(ra__open_round(b, b->ranks));
    for (int hop = 1; hop < b->ranks; hop++) {
        const int peer = ra__peer(b, -hop);
        const bool passed = hop == 1 && any_flow(b, false);
        const bool told = b->last_visit > 0 && peer == ra__peer(b, b->last_visit);
        if (b->flows[peer].coming.count || (back && (passed || told)))
            RA__TRY(ra__send_empty(b, peer, RA__TOPIC_DONE, ra__key_buffer(hop)));
    }
    for (int hop = 1; hop < b->ranks; hop++) {
        const int peer = ra__peer(b, hop);
        const bool passed = hop == 1 && any_flow(b, true);
        if (hop <= b->last_visit || (back && (passed || ends_here(b, peer))))
            RA__TRY(ra__recv_empty(b, peer, RA__TOPIC_DONE, ra__key_buffer(0)));
    }
    return ra__put_exchange(b);
}

/* Is there a block that does not go all the way round, as far as this rank can see? Where another
 * one sees it otherwise, both only take longer. */
static bool is_uneven(const struct ra__builder *b)
{
    bool uneven = b->last_visit < b->ranks - 1;
    for (int i = 0; i < b->ranks; i++)
        uneven = uneven || (i != b->rank && b->flows[i].coming.count == 0);
    return uneven;
}

static ra_status pack_own(struct ra__builder *b)
{
    b->program->lends = b->input->lends && b->ranks > 1 && !b->plan->by_head;
    b->program->uneven = is_uneven(b);
    struct ra__step pack = ra__gather(RA__GATHER_PACK, 0, b->rank, RA__OWN_KV, ra__key_buffer(0));
    return ra__put_ranges(b, pack, &b->flows[b->rank].onward);
}

ra_status ra__ring_forward(struct ra__builder *b)
{
    if (b->direct) return ra__direct_forward(b);
    RA__TRY(pack_own(b));
    for (int hop = 0; hop < b->ranks; hop++) {
        enum ra__buffer from = hop == 0 ? RA__OWN_KV : ra__key_buffer(hop);
        RA__TRY(ra__open_round(b, hop + 1));
        RA__TRY(exchange_keys(b, hop + 1));
        RA__TRY(ra__put_exchange(b));
        RA__TRY(ra__put_attend(b, hop, ra__peer(b, -hop), from, RA__OWN_KV));
    }
    return end_loans(b);
}

/* What arrives in one hop: the sums of earlier ranks for its block, and, from the last rank that
 * the own block visited, the complete gradients of the own block. */
struct arrivals {
    struct ra__ranges sums, returned;
    enum ra__buffer return_buffer; /* of the latter */
};

static struct arrivals find_arrivals(struct ra__builder *b, int hop)
{
    struct arrivals a = { .return_buffer = RA__SUM_ARRIVED };
    const struct ra__flow *flow = &b->flows[ra__peer(b, -hop)];
    if (hop > 1 && hop < b->ranks && flow->coming.count) a.sums = flow->before;
    if (hop > 1 && hop == b->last_visit + 1) a.returned = b->flows[b->rank].onward;
    if (a.sums.count)
        a.return_buffer = RA__SUM_RETURNED; /* both at once: only if the ring is pruned */
    use_up_to(b, RA__SUM_ARRIVED, &a.sums);
    use_up_to(b, a.return_buffer, &a.returned);
    return a;
}

/* Adds to the newest round: the sums of the hop before go to the next rank or, if this is the last
 * rank that the block visits, to its owner. Sums arrive from the previous rank, and the gradients
 * of the own block from the last rank it visited. */
static ra_status exchange_sums(struct ra__builder *b, int hop, const struct arrivals *arrivals)
{
    int sent = ra__peer(b, 1 - hop);
    const struct ra__flow *flow = &b->flows[sent];
    bool goes_on = hop < b->ranks && flow->onward.count > 0;
    if (hop > 1 && flow->coming.count)
        RA__TRY(ra__send(b, goes_on ? ra__peer(b, 1) : sent,
                         goes_on ? RA__TOPIC_SUMS : RA__TOPIC_RETURN, ra__sum_buffer(hop - 1),
                         &flow->after));
    RA__TRY(ra__recv(b, ra__peer(b, -1), RA__TOPIC_SUMS, RA__SUM_ARRIVED, &arrivals->sums));
    return ra__recv(b, ra__peer(b, hop - 1), RA__TOPIC_RETURN, arrivals->return_buffer,
                    &arrivals->returned);
}

static ra_status put_add(struct ra__builder *b, int hop, int block, enum ra__buffer from,
                         enum ra__buffer to, const struct ra__ranges *tokens)
{
    return ra__put_ranges(b, ra__gather(RA__GATHER_ADD, hop, block, from, to), tokens);
}

/* The work of one hop on the block that is here: a cleared sum, and gradients added to it. */
static ra_status sum_block(struct ra__builder *b, int hop)
{
    int block = ra__peer(b, -hop);
    const struct ra__flow *flow = &b->flows[block];
    if (flow->coming.count == 0) return RA_OK; /* it does not come here */
    use_up_to(b, ra__sum_buffer(hop), &flow->after);
    struct ra__step clear = ra__gather(RA__GATHER_CLEAR, hop, block, RA__NO_BUFFER,
                                       ra__sum_buffer(hop));
    RA__TRY(ra__put_ranges(b, clear, &flow->after));
    return ra__put_attend(b, hop, block, ra__key_buffer(hop), ra__sum_buffer(hop));
}

/* Own keys: half the queries at hop 0, half while the last sums return; with one rank, all at
 * once. */
static ra_status attend_own(struct ra__builder *b, int hop)
{
    if (b->ranks == 1) return ra__put_attend(b, hop, b->rank, RA__OWN_KV, RA__SUM_OWN);
    return ra__put_attend_half(b, hop, b->rank, RA__OWN_KV, RA__SUM_OWN, hop > 0);
}

static ra_status backward_hop(struct ra__builder *b, int hop)
{
    struct arrivals arrivals = find_arrivals(b, hop);
    RA__TRY(ra__open_round(b, hop + 1));
    RA__TRY(exchange_keys(b, hop + 1));
    RA__TRY(exchange_sums(b, hop, &arrivals));
    RA__TRY(ra__put_exchange(b));
    RA__TRY(hop % b->ranks == 0 ? attend_own(b, hop) : sum_block(b, hop));
    RA__TRY(
        put_add(b, hop, ra__peer(b, -hop), RA__SUM_ARRIVED, ra__sum_buffer(hop), &arrivals.sums));
    return put_add(b, hop, b->rank, arrivals.return_buffer, RA__SUM_OWN, &arrivals.returned);
}

/* Lent sums, in the newest round: the rank before has added to those of the block of this hop, and
 * this rank has to those of the hop before. The last rank that adds to them tells their owner. */
static ra_status pass_sums(struct ra__builder *b, int hop)
{
    const int added = ra__peer(b, 1 - hop), next = ra__peer(b, -hop); /* owners of the two blocks */
    const enum ra__buffer from = hop == 1 ? RA__SUM_OWN : ra__sum_buffer(hop - 1);
    if (hop == 0) return RA_OK;
    if (hop < b->ranks && b->flows[added].onward.count)
        RA__TRY(ra__send_empty(b, ra__peer(b, 1), RA__TOPIC_SUMS, from));
    else if (hop > 1 && ends_here(b, added))
        RA__TRY(ra__send_empty(b, added, RA__TOPIC_RETURN, from));
    if (hop < b->ranks && b->flows[next].coming.count)
        RA__TRY(ra__recv_empty(b, ra__peer(b, -1), RA__TOPIC_SUMS, ra__sum_buffer(hop)));
    if (hop > 1 && hop == b->last_visit + 1)
        RA__TRY(ra__recv_empty(b, ra__peer(b, b->last_visit), RA__TOPIC_RETURN, RA__SUM_OWN));
    return RA_OK;
}

static ra_status lent_hop(struct ra__builder *b, int hop)
{
    const int block = ra__peer(b, -hop);
    RA__TRY(ra__open_round(b, hop + 1));
    RA__TRY(exchange_keys(b, hop + 1));
    RA__TRY(pass_sums(b, hop));
    RA__TRY(ra__put_exchange(b));
    if (hop == 0) return ra__put_attend(b, hop, block, RA__OWN_KV, RA__SUM_OWN);
    if (hop == b->ranks || b->flows[block].coming.count == 0) return RA_OK;
    return ra__put_attend(b, hop, block, ra__key_buffer(hop), ra__sum_buffer(hop));
}

ra_status ra__ring_backward(struct ra__builder *b)
{
    if (b->direct) return ra__direct_backward(b);
    RA__TRY(pack_own(b));
    RA__TRY(ra__put_clear(b, RA__SUM_OWN, ra__block_tokens(b, b->rank)));
    int last = b->ranks > 1 ? b->ranks : 0;
    for (int hop = 0; hop <= last; hop++)
        RA__TRY(b->program->lends ? lent_hop(b, hop) : backward_hop(b, hop));
    return end_loans(b);
}

const struct ra__strategy ra__strategy_ring = {
    .name = "ring",
    .summary = "KV blocks go from rank to rank; sparse patterns send tokens directly to readers",
    .forward = ra__ring_forward,
    .backward = ra__ring_backward,
};
