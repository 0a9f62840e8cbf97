/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - a program as text, a line per step. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static const char *buffer_name(enum ra__buffer buffer) { return ra__buffer_facts(buffer)->name; }

struct printer {
    const struct ra__plan *plan;
    const struct ra__program *program;
    ra_line_fn line;
    void *context;
};

static void print_transfers(const struct printer *p, const struct ra__transfer *transfers,
                            int count, const char *verb)
{
    char text[160];
    for (int i = 0; i < count; i++) {
        const struct ra__transfer *t = &transfers[i];
        int64_t bytes = ra__program_bytes(p->plan, t, 1);
        int used = snprintf(text, sizeof text, "          %s rank %d: ", verb, t->peer);
        if (p->plan->storage[t->buffer].message)
            snprintf(text + used, sizeof text - (size_t)used, "%s, %" PRId64 " bytes",
                     buffer_name(t->buffer), bytes);
        else if (t->done)
            snprintf(text + used, sizeof text - (size_t)used, "nothing is borrowed any more");
        else if (!ra__has_tokens(t))
            snprintf(text + used, sizeof text - (size_t)used, "%s, added to in place",
                     buffer_name(t->buffer));
        else
            snprintf(text + used, sizeof text - (size_t)used,
                     "tokens %" PRId64 " to %" PRId64 " of %s, %" PRId64 " bytes%s", t->range.lo,
                     t->range.hi - 1, buffer_name(t->buffer), bytes, t->lends ? ", lent" : "");
        p->line(p->context, text);
    }
}

/* What a family adds to its first row: other heads than all, and how it repeats. */
static void print_family(const struct printer *p, const struct ra__plan_row *row, char *text,
                         size_t room)
{
    int used = 0;
    const struct ra__plan_input *input = &p->plan->input;
    if (row->heads.count != input->all_heads)
        used = snprintf(text, room, ", heads %" PRId64 " step %" PRId64 " count %" PRId64,
                        input->first_head + row->heads.start, row->heads.step, row->heads.count);
    if (row->repeat > 1)
        snprintf(text + used, room - (size_t)used, ", %" PRId64 " times, %" PRId64 " further on",
                 row->repeat, row->q_pos_advance);
}

/* A line for each row family: its queries, and how many keys its first row sees. */
static void print_rows(const struct printer *p, const struct ra__step *step)
{
    char text[320];
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &p->program->rows[r];
        int64_t keys = 0;
        for (int k = 0; k < row->key_count; k++) keys += p->program->keys[row->first_key + k].count;
        int used = snprintf(text, sizeof text,
                            "          queries at %" PRId64 " step %" PRId64 " count %" PRId64
                            ": %d key run%s, %" PRId64 " keys%s%s",
                            row->q_pos, row->q_step, row->q_count, row->key_count,
                            row->key_count == 1 ? "" : "s", keys, row->first ? ", first" : "",
                            row->last ? ", last" : "");
        print_family(p, row, text + used, sizeof text - (size_t)used);
        p->line(p->context, text);
    }
}

/* Tokens that a step of pieces moves. K and V of a token may be two pieces; V comes second. */
static int64_t count_tokens(const struct printer *p, const struct ra__step *step)
{
    const struct ra__piece *pieces = &p->program->pieces[step->first_piece];
    int64_t tokens = 0;
    for (int i = 0; i < step->piece_count; i++)
        if (pieces[i].to.number == 0) tokens += pieces[i].tokens;
    return tokens;
}

/* "rank 3", or "ranks 2 to 3" where these are a team. */
static void print_owner(const struct printer *p, const struct ra__step *step, char *text,
                        size_t room)
{
    int first = ra__step_rank(p->plan, step), last = first + p->plan->team.size - 1;
    if (first == last) snprintf(text, room, "rank %d", first);
    else snprintf(text, room, "ranks %d to %d", first, last);
}

static void print_attend(const struct printer *p, const struct ra__step *step, char *text,
                         size_t room)
{
    int rows = step->row_count;
    bool empty = p->program->rows[step->first_row].key_count == 0;
    const char *s = rows == 1 ? "" : "s";
    const char *keys = step->from == RA__OWN_KV ? "own" : buffer_name(step->from);
    char owner[48];
    print_owner(p, step, owner, sizeof owner);
    if (empty) snprintf(text, room, " %d row%s without a key", rows, s);
    else if (step->block < 0)
        snprintf(text, room, " %d row%s over the keys of all ranks in %s", rows, s, keys);
    else snprintf(text, room, " %d row%s over the keys of %s in %s", rows, s, owner, keys);
}

/* An end of a step of pieces. Swaps move many tensors at once: those of the caller, with all heads,
 * or those of the head slice. */
static const char *end_name(const struct ra__step *step, enum ra__buffer named,
                            enum ra__buffer first)
{
    const enum ra__buffer buffer = named == RA__NO_BUFFER ? first : named;
    const bool slice = (buffer >= RA__SLICE_Q && buffer <= RA__SLICE_LSE) ||
                       buffer == RA__SLICE_DELTA || buffer == RA__SUM_Q || buffer == RA__SUM_OWN;
    if (step->op == RA__OP_GATHER && step->gather == RA__GATHER_SWAP && named == RA__NO_BUFFER)
        return slice ? "head slice" : "own heads";
    return named == RA__OWN_KV ? "own" : buffer_name(buffer);
}

static void print_tokens(const struct printer *p, const struct ra__step *step, char *text,
                         size_t room)
{
    const struct ra__piece *first = &p->program->pieces[step->first_piece];
    const char *to = end_name(step, step->to, first->to.buffer);
    char owner[48] = "";
    int used = 0;
    if (step->block >= 0) print_owner(p, step, owner, sizeof owner);
    if (step->op == RA__OP_GATHER && step->gather == RA__GATHER_SWAP)
        used = snprintf(text, room, " with rank %d,", step->block);
    else if (owner[0])
        used = snprintf(text, room, " %" PRId64 " tokens of %s,", count_tokens(p, step), owner);
    if (first->from.buffer == RA__NO_BUFFER) snprintf(text + used, room - (size_t)used, " %s", to);
    else
        snprintf(text + used, room - (size_t)used, " %s -> %s",
                 end_name(step, step->from, first->from.buffer), to);
}

/* A load or store of a stream: for which unit, and how much in all. */
static void print_unit(const struct printer *p, const struct ra__step *step, char *text,
                       size_t room)
{
    const int64_t bytes = ra__step_bytes(p->program, step);
    if (step->unit == RA__SINKS_UNIT) snprintf(text, room, " for sinks, %" PRId64 " bytes", bytes);
    else snprintf(text, room, " unit %d, %" PRId64 " bytes", step->unit - 1, bytes);
}

/* Its tensors, a line for each. */
static void print_streamed(const struct printer *p, const struct ra__step *step)
{
    char text[200];
    const bool load = step->op == RA__OP_LOAD;
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &p->program->pieces[step->first_piece + i];
        const struct ra__end *outside = load ? &piece->from : &piece->to;
        const struct ra__end *inside = load ? &piece->to : &piece->from;
        snprintf(text, sizeof text,
                 "          %s %" PRId64 " to %" PRId64 " %s %s, %" PRId64 " bytes",
                 buffer_name(outside->buffer), outside->token, outside->token + piece->tokens - 1,
                 load ? "->" : "<-", buffer_name(inside->buffer),
                 ra__piece_bytes(p->program, step->op, piece));
        p->line(p->context, text);
    }
}

/* The first step after `last` that a step waits for; -1 if there is none. */
static int next_wait(const struct ra__program *program, const struct ra__step *step, int last)
{
    int next = -1;
    for (int i = 0; i < step->wait_count; i++) {
        int wait = program->waits[step->first_wait + i];
        if (wait > last && (next < 0 || wait < next)) next = wait;
    }
    return next;
}

/* The steps it waits for, ascending, at the end of the line. */
static void print_waits(const struct printer *p, const struct ra__step *step, char *text,
                        size_t room)
{
    size_t used = strlen(text);
    int wait = -1;
    while ((wait = next_wait(p->program, step, wait)) >= 0 && used + 16 < room)
        used += (size_t)snprintf(text + used, room - used, "%s%d",
                                 strstr(text, "[after ") ? ", " : "  [after ", wait);
    if (step->wait_count > 0 && used + 2 < room) snprintf(text + used, room - used, "]");
}

static void print_step(const struct printer *p, int index)
{
    const struct ra__step *step = &p->program->steps[index];
    char text[240];
    int used = snprintf(text, sizeof text, "%4d hop %-3d %-8s", index, step->hop,
                        ra__step_name(step));
    size_t room = sizeof text - (size_t)used;
    switch (step->op) {
    case RA__OP_EXCHANGE: snprintf(text + used, room, " round %d", step->round); break;
    case RA__OP_ATTEND:
    case RA__OP_GRADIENT: print_attend(p, step, text + used, room); break;
    case RA__OP_LOAD:
    case RA__OP_STORE:
        if (ra__step_is_streamed(step)) print_unit(p, step, text + used, room);
        else print_tokens(p, step, text + used, room);
        break;
    case RA__OP_GATHER: print_tokens(p, step, text + used, room); break;
    case RA__OP_MERGE:
        snprintf(text + used, room, " %d ranges of keys", p->program->split.ranges);
        break;
    default: break;
    }
    print_waits(p, step, text, sizeof text);
    p->line(p->context, text);
    if (step->op == RA__OP_ATTEND || step->op == RA__OP_GRADIENT) print_rows(p, step);
    if (ra__step_is_streamed(step)) print_streamed(p, step);
    if (step->op != RA__OP_EXCHANGE) return;
    const struct ra__plan_round *round = &p->program->rounds[step->round];
    print_transfers(p, p->program->sends + round->first_send, round->send_count, "to");
    print_transfers(p, p->program->recvs + round->first_recv, round->recv_count, "from");
}

void ra__plan_explain(const struct ra__plan *plan, const struct ra__program *program,
                      ra_line_fn line, void *context)
{
    struct printer p = { plan, program, line, context };
    for (int i = 0; i < program->step_count; i++) print_step(&p, i);
}
