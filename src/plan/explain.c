/* explain.c - a program as text, a line per step. */
#include <inttypes.h>
#include <stdio.h>

#include "plan/plan.h"

const char *ra__op_name(enum ra__op op)
{
    static const char *const names[] = {
#define RA__OP_NAME(name, text) text,
        RA__OP_LIST(RA__OP_NAME)
#undef RA__OP_NAME
    };
    return names[op];
}

static const char *slot_name(enum ra__slot slot)
{
    static const char *const names[RA__SLOTS] = {
        [RA__SLOT_OWN] = "own",           [RA__SLOT_TRAVEL_A] = "travel A",
        [RA__SLOT_TRAVEL_B] = "travel B", [RA__SLOT_PACKED] = "packed",
        [RA__SLOT_GATHER] = "gathered",   [RA__GRAD_OWN] = "own sums",
        [RA__GRAD_A] = "sums A",          [RA__GRAD_B] = "sums B",
        [RA__GRAD_ARRIVE] = "arriving",   [RA__GRAD_HOME] = "coming home",
        [RA__GRAD_GATHER] = "all sums",
    };
    return names[slot];
}

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
        int64_t rows = t->range.hi - t->range.lo;
        snprintf(text, sizeof text,
                 "          %s rank %d: rows %" PRId64 " to %" PRId64 " of %s, %" PRId64 " bytes",
                 verb, t->peer, t->range.lo, t->range.hi - 1, slot_name(t->slot),
                 rows * (int64_t)ra__slot_row_bytes(p->plan, t->slot));
        p->line(p->context, text);
    }
}

/* What a family adds to its first row: other heads than all, and how it repeats. */
static void print_family(const struct printer *p, const struct ra__plan_row *row, char *text,
                         size_t room)
{
    int used = 0;
    if (row->heads.count != p->plan->input.shape.q_heads)
        used = snprintf(text, room, ", heads %" PRId64 " step %" PRId64 " count %" PRId64,
                        row->heads.start, row->heads.step, row->heads.count);
    if (row->repeat > 1)
        snprintf(text + used, room - (size_t)used, ", %" PRId64 " times, %" PRId64 " further on",
                 row->repeat, row->q_pos_advance);
}

/* "keys 0 to 99 step 2" with what limits them. */
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

static int64_t count_rows(const struct printer *p, const struct ra__step *step)
{
    int64_t rows = 0;
    for (int i = 0; i < step->piece_count; i++)
        rows += p->program->pieces[step->first_piece + i].rows.count;
    return rows;
}

static void print_attend(const struct printer *p, const struct ra__step *step, char *text,
                         size_t room)
{
    int rows = step->row_count;
    bool blind = p->program->rows[step->first_row].key_count == 0;
    const char *s = rows == 1 ? "" : "s", *slot = slot_name(step->from);
    if (blind) snprintf(text, room, " %d row%s without a key", rows, s);
    else if (step->block < 0)
        snprintf(text, room, " %d row%s over the keys of all ranks in %s", rows, s, slot);
    else
        snprintf(text, room, " %d row%s over the keys of rank %d in %s", rows, s, step->block,
                 slot);
}

static void print_step(const struct printer *p, int index)
{
    const struct ra__step *step = &p->program->steps[index];
    char text[160];
    int used = snprintf(text, sizeof text, "%4d hop %-3d %-6s", index, step->hop,
                        ra__op_name(step->op));
    size_t room = sizeof text - (size_t)used;
    if (step->op == RA__OP_MOVE || step->op == RA__OP_WAIT)
        snprintf(text + used, room, " round %d", step->round);
    else if (step->op == RA__OP_ATTEND) print_attend(p, step, text + used, room);
    else if (step->op != RA__OP_FINISH)
        snprintf(text + used, room, " %" PRId64 " rows of rank %d's block, %s -> %s",
                 count_rows(p, step), step->block, slot_name(step->from), slot_name(step->to));
    p->line(p->context, text);
    if (step->op == RA__OP_ATTEND) print_rows(p, step);
    if (step->op != RA__OP_MOVE) return;
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
