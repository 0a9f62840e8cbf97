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
        [RA__GRAD_GATHER] = "all sums",   [RA__SWAP_HOME] = "own heads",
        [RA__SWAP_SHARE] = "share",       [RA__SWAP_OUT] = "swap out",
        [RA__SWAP_A] = "swap A",          [RA__SWAP_B] = "swap B",
        [RA__SHARE_Q] = "share of Q",     [RA__SHARE_KV] = "share of K, V",
        [RA__SHARE_OUT] = "share of out", [RA__GRAD_SHARED] = "shared sums",
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
        int64_t bytes = ra__program_bytes(p->plan, t, 1);
        int used = snprintf(text, sizeof text, "          %s rank %d: ", verb, t->peer);
        if (ra__slot_row_bytes(p->plan, t->slot) == 1)
            snprintf(text + used, sizeof text - (size_t)used, "%s, %" PRId64 " bytes",
                     slot_name(t->slot), bytes);
        else
            snprintf(text + used, sizeof text - (size_t)used,
                     "rows %" PRId64 " to %" PRId64 " of %s, %" PRId64 " bytes", t->range.lo,
                     t->range.hi - 1, slot_name(t->slot), bytes);
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
    bool blind = p->program->rows[step->first_row].key_count == 0;
    const char *s = rows == 1 ? "" : "s", *slot = slot_name(step->from);
    char owner[48];
    print_owner(p, step, owner, sizeof owner);
    if (blind) snprintf(text, room, " %d row%s without a key", rows, s);
    else if (step->block < 0)
        snprintf(text, room, " %d row%s over the keys of all ranks in %s", rows, s, slot);
    else snprintf(text, room, " %d row%s over the keys of %s in %s", rows, s, owner, slot);
}

static void print_rows_moved(const struct printer *p, const struct ra__step *step, char *text,
                             size_t room)
{
    char owner[48];
    print_owner(p, step, owner, sizeof owner);
    snprintf(text, room, " %" PRId64 " rows of %s's block, %s -> %s", count_rows(p, step), owner,
             slot_name(step->from), slot_name(step->to));
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
    else if (step->op == RA__OP_SWAP)
        snprintf(text + used, room, " with rank %d, %s -> %s", step->block, slot_name(step->from),
                 slot_name(step->to));
    else if (step->op != RA__OP_FINISH) print_rows_moved(p, step, text + used, room);
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
