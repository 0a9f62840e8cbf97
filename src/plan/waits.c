/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - what each step reads and writes, and which steps it therefore has to wait for: those
 * that wrote what it reads, and those that read or wrote what it writes. */
#include "plan/builder.h"

static void find_in_pieces(const struct ra__program *program, struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[step->first_piece + i];
        step->writes |= ra__buffer_bit(piece->to.buffer);
        step->reads |= ra__buffer_bit(piece->from.buffer);
        if (piece->add) step->reads |= ra__buffer_bit(piece->to.buffer);
    }
}

static void find_in_round(const struct ra__program *program, struct ra__step *step)
{
    const struct ra__plan_round *round = &program->rounds[step->round];
    for (int i = 0; i < round->send_count; i++) {
        const struct ra__transfer *send = &program->sends[round->first_send + i];
        /* `done` is said after all steps that read the buffer, as if it were overwritten. */
        *(send->done ? &step->writes : &step->reads) |= ra__buffer_bit(send->buffer);
    }
    for (int i = 0; i < round->recv_count; i++)
        step->writes |= ra__buffer_bit(program->recvs[round->first_recv + i].buffer);
    step->writes |= ra__buffer_bit(RA__LINK);
}

/* K and V of a step: those of this rank, or of a block. */
static ra__buffer_set keys_of(const struct ra__program *program, enum ra__buffer from)
{
    if (from != RA__OWN_KV) return ra__buffer_bit(from);
    return ra__buffer_bit(program->work.k) | ra__buffer_bit(program->work.v);
}

/* State is used by rows that do not start and end here, results by rows that end here. With split
 * keys, ATTEND leaves all of that to MERGE. */
static void find_in_rows(const struct ra__program *program, struct ra__step *step)
{
    const ra__buffer_set state = ra__buffer_bit(RA__STATE_M) | ra__buffer_bit(RA__STATE_L) |
                                 ra__buffer_bit(RA__STATE_ACC);
    const struct ra__side *work = ra__work_side(program, step);
    const ra__buffer_set result = ra__buffer_bit(work->out) | ra__buffer_bit(work->lse);
    for (int i = step->first_row; i < step->first_row + step->row_count; i++) {
        const struct ra__plan_row *row = &program->rows[i];
        if (!row->first) step->reads |= state;
        if (!row->first || !row->last) step->writes |= state;
        if (row->last) step->writes |= result;
    }
}

static void find_attend(const struct ra__program *program, struct ra__step *step)
{
    const bool split = program->split.ranges > 1;
    step->reads |= ra__buffer_bit(ra__work_side(program, step)->q) | ra__buffer_bit(RA__BIAS) |
                   ra__buffer_bit(RA__SINKS);
    if (program->rows[step->first_row].key_count > 0) step->reads |= keys_of(program, step->from);
    if (split) step->writes |= ra__buffer_bit(RA__SPLIT_STATE);
    else find_in_rows(program, step);
}

static void find_gradient(const struct ra__program *program, struct ra__step *step)
{
    const struct ra__side *work = ra__work_side(program, step);
    const ra__buffer_set sums = ra__buffer_bit(work->sum_q) | ra__buffer_bit(step->to);
    step->reads |= ra__buffer_bit(work->q) | ra__buffer_bit(work->dout) |
                   ra__buffer_bit(work->lse) | ra__buffer_bit(work->delta) |
                   ra__buffer_bit(RA__BIAS) | keys_of(program, step->from) | sums;
    step->writes |= sums;
}

void ra__find_buffers(const struct ra__program *program, struct ra__step *step)
{
    const struct ra__side *caller = ra__caller_side(program, step);
    switch (step->op) {
    case RA__OP_LOAD:
    case RA__OP_STORE:
    case RA__OP_GATHER: find_in_pieces(program, step); return;
    case RA__OP_EXCHANGE: find_in_round(program, step); return;
    case RA__OP_ATTEND: find_attend(program, step); return;
    case RA__OP_GRADIENT: find_gradient(program, step); return;
    case RA__OP_MERGE:
        step->reads |= ra__buffer_bit(RA__SPLIT_STATE) | ra__buffer_bit(RA__SINKS);
        step->writes |= ra__buffer_bit(RA__SPLIT_STATE); /* rows that start and end here */
        find_in_rows(program, step);
        return;
    case RA__OP_DELTA:
        step->reads |= ra__buffer_bit(caller->out) | ra__buffer_bit(caller->dout) |
                       ra__buffer_bit(caller->lse) | ra__buffer_bit(caller->dlse);
        step->writes |= ra__buffer_bit(caller->delta);
        return;
    case RA__OP_SINKS:
        step->reads |= ra__buffer_bit(caller->lse) | ra__buffer_bit(caller->delta) |
                       ra__buffer_bit(RA__SINKS);
        step->writes |= ra__buffer_bit(RA__DSINKS);
        return;
    case RA__OPS: return;
    }
}

/* ---- Waits ----------------------------------------------------------------------------------- */

enum { NONE = -1 };

/* Who used each buffer last, while a program is walked. A step that reads is kept until the next
 * one that writes; several readers in a row are a list through `next`. */
struct users {
    int writer[RA__BUFFERS];
    int readers[RA__BUFFERS]; /* the newest; NONE */
    int before[RA__BUFFERS];  /* the same, of blocks that were lent in this buffer before */
    struct reader {
        int step, next;
    } * list;
    int count;
};

static ra_status add_wait(struct ra__builder *b, struct ra__step *step, int other)
{
    struct ra__program *p = b->program;
    if (other == NONE) return RA_OK;
    for (int i = 0; i < step->wait_count; i++)
        if (p->waits[step->first_wait + i] == other) return RA_OK;
    RA__TRY(ra__make_room(b, (void **)&p->waits, p->wait_count, sizeof *p->waits));
    p->waits[p->wait_count++] = other;
    step->wait_count++;
    return RA_OK;
}

/* After the last writer; and the next writer is after this step. */
static ra_status use_reading(struct ra__builder *b, struct users *users, int index, int buffer)
{
    RA__TRY(add_wait(b, &b->program->steps[index], users->writer[buffer]));
    struct reader *list = ra__grow(NULL, users->list, (size_t)users->count, sizeof *list);
    if (!list) return ra__fail(RA_ERR_MEMORY, "plan: %d dependencies", users->count);
    users->list = list;
    list[users->count] = (struct reader){ index, users->readers[buffer] };
    users->readers[buffer] = users->count++;
    return RA_OK;
}

/* Does a round say where the block of this buffer is, and not overwrite one? */
static bool is_lent(const struct ra__program *program, const struct ra__step *step, int buffer)
{
    const struct ra__plan_round *round = &program->rounds[step->round];
    if (step->op != RA__OP_EXCHANGE) return false;
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *recv = &program->recvs[round->first_recv + i];
        if (recv->lends && (int)recv->buffer == buffer) return true;
    }
    return false;
}

static ra_status add_readers(struct ra__builder *b, struct users *users, struct ra__step *step,
                             int first)
{
    for (int r = first; r != NONE; r = users->list[r].next)
        RA__TRY(add_wait(b, step, users->list[r].step));
    return RA_OK;
}

/* Readers of the last block become readers of blocks before it. */
static void keep_readers(struct users *users, int buffer)
{
    int *last = &users->readers[buffer];
    while (*last != NONE) last = &users->list[*last].next;
    *last = users->before[buffer];
    users->before[buffer] = users->readers[buffer];
}

/* After the last writer and all who read since; the next user is after this step. A round that
 * lends another block waits until those who read the last one are issued; whoever overwrites the
 * buffer, until all who have read one are done. */
static ra_status use_writing(struct ra__builder *b, struct users *users, int index, int buffer)
{
    struct ra__step *step = &b->program->steps[index];
    const bool lent = is_lent(b->program, step, buffer);
    RA__TRY(add_wait(b, step, users->writer[buffer]));
    RA__TRY(add_readers(b, users, step, users->readers[buffer]));
    if (lent) keep_readers(users, buffer);
    else RA__TRY(add_readers(b, users, step, users->before[buffer]));
    users->writer[buffer] = index;
    users->readers[buffer] = NONE;
    if (!lent) users->before[buffer] = NONE;
    return RA_OK;
}

/* Nobody waits for a buffer that is only read. */
static ra__buffer_set find_written(const struct ra__program *program)
{
    ra__buffer_set written = 0;
    for (int i = 0; i < program->step_count; i++) written |= program->steps[i].writes;
    return written;
}

static ra_status walk(struct ra__builder *b, struct users *users)
{
    struct ra__program *p = b->program;
    const ra__buffer_set written = find_written(p);
    for (int i = 0; i < p->step_count; i++) {
        struct ra__step *step = &p->steps[i];
        step->first_wait = p->wait_count;
        for (ra__buffer_set left = step->writes; left; left &= left - 1)
            RA__TRY(use_writing(b, users, i, ra__buffer_first(left)));
        for (ra__buffer_set left = step->reads & written & ~step->writes; left; left &= left - 1)
            RA__TRY(use_reading(b, users, i, ra__buffer_first(left)));
    }
    return RA_OK;
}

ra_status ra__find_waits(struct ra__builder *b)
{
    struct users users = { .list = NULL };
    for (int buffer = 0; buffer < RA__BUFFERS; buffer++)
        users.writer[buffer] = users.readers[buffer] = users.before[buffer] = NONE;
    ra_status status = walk(b, &users);
    ra__free(users.list);
    return status;
}
