/* builder.c - appending steps, pieces and messages to a program. */
#include "plan/builder.h"

#include <limits.h>

void ra__use_slot(struct ra__builder *b, enum ra__slot slot, int64_t rows)
{
    b->plan->slot_rows[slot] = ra__max(b->plan->slot_rows[slot], rows);
}

/* Makes room for one more element of a program's array; the caller fills it and counts it. */
static ra_status make_room(struct ra__builder *b, void **array, int count, size_t bytes)
{
    void *larger = count < INT_MAX ? ra__grow(b->account, *array, (size_t)count, bytes) : NULL;
    if (!larger) return ra__fail(RA_ERR_MEMORY, "plan: more than %d entries", count);
    *array = larger;
    return RA_OK;
}

ra_status ra__put_step(struct ra__builder *b, struct ra__step step)
{
    struct ra__program *p = b->program;
    step.hop += b->hops_before;
    RA__TRY(make_room(b, (void **)&p->steps, p->step_count, sizeof *p->steps));
    p->steps[p->step_count++] = step;
    return RA_OK;
}

ra_status ra__put_pieces(struct ra__builder *b, struct ra__step step,
                         const struct ra__piece *pieces, int count)
{
    struct ra__program *p = b->program;
    if (count == 0) return RA_OK;
    step.first_piece = p->piece_count;
    step.piece_count = count;
    for (int i = 0; i < count; i++) {
        RA__TRY(make_room(b, (void **)&p->pieces, p->piece_count, sizeof *p->pieces));
        p->pieces[p->piece_count++] = pieces[i];
    }
    return ra__put_step(b, step);
}

ra_status ra__put_ranges(struct ra__builder *b, struct ra__step step,
                         const struct ra__ranges *ranges)
{
    struct ra__piece pieces[RA__RANGES];
    for (int i = 0; i < ranges->count; i++) {
        struct ra__range range = ranges->at[i];
        pieces[i] = (struct ra__piece){ .kv_head = RA__ALL_HEADS,
                                        .rows = { range.lo, 1, range.hi - range.lo },
                                        .at = range.lo };
    }
    return ra__put_pieces(b, step, pieces, ranges->count);
}

ra_status ra__open_round(struct ra__builder *b, int hop)
{
    struct ra__program *p = b->program;
    RA__TRY(make_room(b, (void **)&p->rounds, p->round_count, sizeof *p->rounds));
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
        RA__TRY(make_room(b, (void **)array, *count, sizeof **array));
        (*array)[(*count)++] = transfer;
    }
    return RA_OK;
}

static ra_status put_sends(struct ra__builder *b, int rank, enum ra__topic topic,
                           enum ra__slot slot, const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->send_count += ranges->count;
    struct ra__transfer transfer = { rank, ra__tag(round->hop, topic), round->hop, slot, { 0, 0 } };
    return put_transfers(b, &p->sends, &p->send_count, transfer, ranges);
}

static ra_status put_recvs(struct ra__builder *b, int rank, enum ra__topic topic,
                           enum ra__slot slot, const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->recv_count += ranges->count;
    struct ra__transfer transfer = { rank, ra__tag(round->hop, topic), round->hop, slot, { 0, 0 } };
    return put_transfers(b, &p->recvs, &p->recv_count, transfer, ranges);
}

/* Members of a team deal with the same member of other teams. */
static int rank_of_peer(const struct ra__builder *b, int peer)
{
    return peer * b->plan->team.size + b->plan->team.member;
}

ra_status ra__send(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges)
{
    return put_sends(b, rank_of_peer(b, peer), topic, slot, ranges);
}

ra_status ra__recv(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges)
{
    return put_recvs(b, rank_of_peer(b, peer), topic, slot, ranges);
}

static struct ra__ranges first_rows(int64_t count)
{
    struct ra__ranges rows = { 0 };
    ra__ranges_add(&rows, 0, count);
    return rows;
}

ra_status ra__send_bytes(struct ra__builder *b, int member, enum ra__slot slot, int64_t bytes)
{
    struct ra__ranges rows = first_rows(bytes);
    return put_sends(b, b->plan->team.first + member, RA__TOPIC_SWAP, slot, &rows);
}

ra_status ra__recv_bytes(struct ra__builder *b, int member, enum ra__slot slot, int64_t bytes)
{
    struct ra__ranges rows = first_rows(bytes);
    return put_recvs(b, b->plan->team.first + member, RA__TOPIC_SWAP, slot, &rows);
}

ra_status ra__send_needs(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                         const struct ra__needs *needs)
{
    struct ra__ranges rows = first_rows(needs->rows);
    return ra__send(b, peer, topic, slot, &rows);
}

ra_status ra__recv_needs(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                         const struct ra__needs *needs)
{
    struct ra__ranges rows = first_rows(needs->rows);
    return ra__recv(b, peer, topic, slot, &rows);
}

static ra_status put_round_step(struct ra__builder *b, enum ra__op op)
{
    struct ra__program *p = b->program;
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    if (round->send_count + round->recv_count == 0) return RA_OK;
    return ra__put_step(b, (struct ra__step){ .op = op,
                                              .hop = round->hop - b->hops_before,
                                              .block = -1,
                                              .round = p->round_count - 1 });
}

ra_status ra__put_move(struct ra__builder *b) { return put_round_step(b, RA__OP_MOVE); }
ra_status ra__put_wait(struct ra__builder *b) { return put_round_step(b, RA__OP_WAIT); }
