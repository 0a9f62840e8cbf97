/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - messages: rounds of transfers, their EXCHANGE steps, and the copies through host
 * memory where messages cannot reach the device. */
#include "plan/builder.h"

ra_status ra__open_round(struct ra__builder *b, int hop)
{
    struct ra__program *p = b->program;
    RA__TRY(ra__make_room(b, (void **)&p->rounds, p->round_count, sizeof *p->rounds));
    p->rounds[p->round_count++] = (struct ra__plan_round){ .hop = b->hops_before + hop,
                                                           .first_send = p->send_count,
                                                           .first_recv = p->recv_count };
    return RA_OK;
}

static ra_status put_transfers(struct ra__builder *b, struct ra__transfer **array, int *count,
                               struct ra__transfer transfer, const struct ra__ranges *ranges)
{
    for (int i = 0; i < ranges->count; i++) {
        transfer.range = ranges->at[i];
        RA__TRY(ra__make_room(b, (void **)array, *count, sizeof **array));
        (*array)[(*count)++] = transfer;
    }
    return RA_OK;
}

static struct ra__transfer make_transfer(const struct ra__program *p, int rank,
                                         enum ra__topic topic, enum ra__buffer buffer)
{
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    const bool block = topic == RA__TOPIC_KEYS || topic == RA__TOPIC_SUMS ||
                       topic == RA__TOPIC_RETURN;
    return (struct ra__transfer){ .peer = rank,
                                  .tag = ra__tag(round->hop, topic),
                                  .hop = round->hop,
                                  .buffer = buffer,
                                  .lends = p->lends && block,
                                  .done = topic == RA__TOPIC_DONE };
}

static ra_status put_sends(struct ra__builder *b, int rank, enum ra__topic topic,
                           enum ra__buffer buffer, const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->send_count += ranges->count;
    const struct ra__transfer transfer = make_transfer(p, rank, topic, buffer);
    return put_transfers(b, &p->sends, &p->send_count, transfer, ranges);
}

static ra_status put_recvs(struct ra__builder *b, int rank, enum ra__topic topic,
                           enum ra__buffer buffer, const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->recv_count += ranges->count;
    const struct ra__transfer transfer = make_transfer(p, rank, topic, buffer);
    return put_transfers(b, &p->recvs, &p->recv_count, transfer, ranges);
}

/* Members of a team communicate with the same member of other teams. */
static int rank_of_peer(const struct ra__builder *b, int peer)
{
    return peer * b->plan->team.size + b->plan->team.member;
}

ra_status ra__send(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__buffer buffer,
                   const struct ra__ranges *ranges)
{
    return put_sends(b, rank_of_peer(b, peer), topic, buffer, ranges);
}

ra_status ra__recv(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__buffer buffer,
                   const struct ra__ranges *ranges)
{
    return put_recvs(b, rank_of_peer(b, peer), topic, buffer, ranges);
}

static const struct ra__ranges no_tokens = { .count = 1 };

ra_status ra__send_empty(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer)
{
    return ra__send(b, peer, topic, buffer, &no_tokens);
}

ra_status ra__recv_empty(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer)
{
    return ra__recv(b, peer, topic, buffer, &no_tokens);
}

static struct ra__ranges first_tokens(int64_t count)
{
    struct ra__ranges tokens = { 0 };
    ra__ranges_add(&tokens, 0, count);
    return tokens;
}

ra_status ra__send_bytes(struct ra__builder *b, int member, enum ra__buffer buffer, int64_t bytes)
{
    struct ra__ranges tokens = first_tokens(bytes);
    return put_sends(b, b->plan->team.first + member, RA__TOPIC_ALLTOALL, buffer, &tokens);
}

ra_status ra__recv_bytes(struct ra__builder *b, int member, enum ra__buffer buffer, int64_t bytes)
{
    struct ra__ranges tokens = first_tokens(bytes);
    return put_recvs(b, b->plan->team.first + member, RA__TOPIC_ALLTOALL, buffer, &tokens);
}

ra_status ra__send_needs(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer, const struct ra__needs *needs)
{
    struct ra__ranges tokens = first_tokens(needs->tokens);
    return ra__send(b, peer, topic, buffer, &tokens);
}

ra_status ra__recv_needs(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer, const struct ra__needs *needs)
{
    struct ra__ranges tokens = first_tokens(needs->tokens);
    return ra__recv(b, peer, topic, buffer, &tokens);
}

/* ---- Staging --------------------------------------------------------------------------------- */

/* The buffers that messages use, and their host copies. */
static const enum ra__buffer stages[][2] = {
    { RA__TRAVEL_A, RA__STAGE_TRAVEL_A },
    { RA__TRAVEL_B, RA__STAGE_TRAVEL_B },
    { RA__PACKED, RA__STAGE_PACKED },
    { RA__SWAP_OUT, RA__STAGE_SWAP_OUT },
    { RA__SWAP_A, RA__STAGE_SWAP_A },
    { RA__SWAP_B, RA__STAGE_SWAP_B },
    { RA__SUM_A, RA__STAGE_SUM_A },
    { RA__SUM_B, RA__STAGE_SUM_B },
    { RA__SUM_ARRIVED, RA__STAGE_SUM_ARRIVED },
    { RA__SUM_RETURNED, RA__STAGE_SUM_RETURNED },
};

enum ra__buffer ra__stage_of(enum ra__buffer buffer)
{
    for (int i = 0; i < RA__COUNT(stages); i++)
        if (stages[i][0] == buffer) return stages[i][1];
    return RA__NO_BUFFER;
}

enum ra__buffer ra__staged_by(enum ra__buffer stage)
{
    for (int i = 0; i < RA__COUNT(stages); i++)
        if (stages[i][1] == stage) return stages[i][0];
    return RA__NO_BUFFER;
}

/* Appends the copies between the device and the host memory that messages use, for the messages of
 * the newest round that are sent, or received. */
static ra_status put_staging(struct ra__builder *b, bool sent)
{
    struct ra__program *p = b->program;
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    struct ra__transfer *transfers = sent ? p->sends + round->first_send
                                          : p->recvs + round->first_recv;
    struct ra__step step = { .op = sent ? RA__OP_STORE : RA__OP_LOAD,
                             .hop = round->hop - b->hops_before,
                             .block = -1,
                             .from = RA__NO_BUFFER,
                             .to = RA__NO_BUFFER };
    ra__begin_pieces(b, &step);
    for (int i = 0; i < (sent ? round->send_count : round->recv_count); i++) {
        const struct ra__range range = transfers[i].range;
        struct ra__end host = { .buffer = transfers[i].buffer, .token = range.lo, .step = 1 };
        struct ra__end device = host;
        device.buffer = ra__staged_by(host.buffer);
        struct ra__piece piece = ra__whole_tokens(b->plan, device.buffer, range.hi - range.lo);
        piece.to = sent ? host : device;
        piece.from = sent ? device : host;
        RA__TRY(ra__put_piece(b, &step, piece));
    }
    return ra__end_pieces(b, &step);
}

/* Makes the messages of the newest round use host memory. */
static void use_stages(struct ra__builder *b)
{
    struct ra__program *p = b->program;
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    for (int i = 0; i < round->send_count + round->recv_count; i++) {
        struct ra__transfer *transfer = i < round->send_count
                                            ? &p->sends[round->first_send + i]
                                            : &p->recvs[round->first_recv + i - round->send_count];
        enum ra__buffer stage = ra__stage_of(transfer->buffer);
        ra__use_buffer(b, stage, b->plan->storage[transfer->buffer].tokens);
        transfer->buffer = stage;
    }
}

ra_status ra__put_exchange(struct ra__builder *b)
{
    struct ra__program *p = b->program;
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    if (round->send_count + round->recv_count == 0) return RA_OK;
    struct ra__step step = { .op = RA__OP_EXCHANGE,
                             .hop = round->hop - b->hops_before,
                             .block = -1,
                             .from = RA__NO_BUFFER,
                             .to = RA__NO_BUFFER,
                             .round = p->round_count - 1 };
    if (!b->input->stages) return ra__put_step(b, step);
    use_stages(b);
    RA__TRY(put_staging(b, true));
    RA__TRY(ra__put_step(b, step));
    return put_staging(b, false);
}
