/* builder.c - appending to a program, and cutting rows to what lies in a block. */
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
    RA__TRY(make_room(b, (void **)&p->steps, p->step_count, sizeof *p->steps));
    p->steps[p->step_count++] = step;
    return RA_OK;
}

ra_status ra__open_round(struct ra__builder *b, int hop)
{
    struct ra__program *p = b->program;
    RA__TRY(make_room(b, (void **)&p->rounds, p->round_count, sizeof *p->rounds));
    p->rounds[p->round_count++] = (struct ra__plan_round){ .hop = hop,
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

ra_status ra__send(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->send_count += ranges->count;
    struct ra__transfer transfer = { peer, ra__tag(round->hop, topic), round->hop, slot, { 0, 0 } };
    return put_transfers(b, &p->sends, &p->send_count, transfer, ranges);
}

ra_status ra__recv(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges)
{
    struct ra__program *p = b->program;
    struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    round->recv_count += ranges->count;
    struct ra__transfer transfer = { peer, ra__tag(round->hop, topic), round->hop, slot, { 0, 0 } };
    return put_transfers(b, &p->recvs, &p->recv_count, transfer, ranges);
}

static ra_status put_round_step(struct ra__builder *b, enum ra__op op)
{
    struct ra__program *p = b->program;
    const struct ra__plan_round *round = &p->rounds[p->round_count - 1];
    if (round->send_count + round->recv_count == 0) return RA_OK;
    return ra__put_step(
        b,
        (struct ra__step){ .op = op, .hop = round->hop, .block = -1, .round = p->round_count - 1 });
}

ra_status ra__put_move(struct ra__builder *b) { return put_round_step(b, RA__OP_MOVE); }
ra_status ra__put_wait(struct ra__builder *b) { return put_round_step(b, RA__OP_WAIT); }

static ra_status put_key_run(struct ra__builder *b, struct ra__key_run run)
{
    struct ra__program *p = b->program;
    RA__TRY(make_room(b, (void **)&p->keys, p->key_count, sizeof *p->keys));
    p->keys[p->key_count++] = run;
    return RA_OK;
}

/* The keys of a sight that lie in `owner`'s block, run by run. */
static ra_status put_keys_of_block(struct ra__builder *b, const struct ra__sight *sight, int owner)
{
    struct ra__key_run keys;
    int64_t cursor = 0;
    while (ra__layout_next_keys(b->input->k_layout, owner, sight, &cursor, &keys))
        RA__TRY(put_key_run(b, keys));
    return RA_OK;
}

/* All keys of a sight, in the gathered block, where a key's row is its position. */
static ra_status put_keys_gathered(struct ra__builder *b, const struct ra__sight *sight)
{
    ra_run keys = sight->keys;
    return put_key_run(b, (struct ra__key_run){ keys.start - b->plan->gather_base, keys.step,
                                                keys.start, keys.step, keys.count, sight->band });
}

enum { EVERYTHING = -1 }; /* instead of an owner or a half */

/* Appends the row `index` of this rank, or one half of its queries, with its keys. */
static ra_status put_row(struct ra__builder *b, int index, int owner, int half)
{
    struct ra__program *p = b->program;
    const struct ra__row *row = &b->rows[index];
    int64_t middle = row->q.count / 2;
    int64_t from = half == 1 ? middle : 0, to = half == 0 ? middle : row->q.count;
    if (from == to) return RA_OK;
    int first_key = p->key_count;
    for (int i = 0; i < row->sight_count; i++)
        RA__TRY(owner == EVERYTHING ? put_keys_gathered(b, &row->sights[i])
                                    : put_keys_of_block(b, &row->sights[i], owner));
    if (p->key_count == first_key) return RA_OK;
    RA__TRY(make_room(b, (void **)&p->rows, p->row_count, sizeof *p->rows));
    p->rows[p->row_count++] = (struct ra__plan_row){
        .q_row = b->row_starts[index] + from,
        .q_count = to - from,
        .q_pos = row->q.start + from * row->q.step,
        .q_step = row->q.step,
        .first_key = first_key,
        .key_count = p->key_count - first_key,
        .origin = index,
    };
    return RA_OK;
}

static ra_status put_attend(struct ra__builder *b, struct ra__step step, int owner, int half)
{
    step.op = RA__OP_ATTEND;
    step.first_row = b->program->row_count;
    for (int i = 0; i < b->row_count; i++) RA__TRY(put_row(b, i, owner, half));
    step.row_count = b->program->row_count - step.first_row;
    return step.row_count ? ra__put_step(b, step) : RA_OK;
}

ra_status ra__put_attend_half(struct ra__builder *b, int hop, int owner, enum ra__slot from,
                              enum ra__slot to, int half)
{
    struct ra__step step = { .hop = hop, .block = owner, .from = from, .to = to };
    return put_attend(b, step, owner, half);
}

ra_status ra__put_attend(struct ra__builder *b, int hop, int owner, enum ra__slot from,
                         enum ra__slot to)
{
    return ra__put_attend_half(b, hop, owner, from, to, EVERYTHING);
}

ra_status ra__put_attend_gathered(struct ra__builder *b, enum ra__slot from, enum ra__slot to)
{
    struct ra__step step = { .block = -1, .from = from, .to = to };
    return put_attend(b, step, EVERYTHING, EVERYTHING);
}

/* Queries that see no key of any block still need their zeros written. */
static ra_status put_blind_rows(struct ra__builder *b, const int *last_seen)
{
    struct ra__program *p = b->program;
    struct ra__step step = { .op = RA__OP_ATTEND, .block = -1, .first_row = p->row_count };
    for (int i = 0; i < b->row_count; i++) {
        if (last_seen[i]) continue;
        RA__TRY(make_room(b, (void **)&p->rows, p->row_count, sizeof *p->rows));
        p->rows[p->row_count++] = (struct ra__plan_row){ .q_row = b->row_starts[i],
                                                         .q_count = b->rows[i].q.count,
                                                         .q_pos = b->rows[i].q.start,
                                                         .q_step = b->rows[i].q.step,
                                                         .origin = i,
                                                         .first = true,
                                                         .last = true };
    }
    step.row_count = p->row_count - step.first_row;
    return step.row_count ? ra__put_step(b, step) : RA_OK;
}

ra_status ra__mark_first_and_last(struct ra__builder *b)
{
    struct ra__program *p = b->program;
    /* One more than the index of the newest row of each origin; 0 for none yet. */
    int *newest = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)b->row_count, sizeof *newest);
    if (!newest) return ra__fail(RA_ERR_MEMORY, "plan: %d rows", b->row_count);
    for (int i = 0; i < p->row_count; i++) {
        int *seen = &newest[p->rows[i].origin];
        p->rows[i].first = *seen == 0;
        p->rows[i].last = true;
        if (*seen) {
            p->rows[*seen - 1].last = false;
            b->plan->state_rows = b->input->q_layout->count[b->rank];
        }
        *seen = i + 1;
    }
    ra_status status = put_blind_rows(b, newest);
    ra__free(newest);
    return status;
}
