/* build.c - from a problem to the plan of one rank: rows, needs, then the strategy's programs. */
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "plan/builder.h"

#define RA__STRATEGY(name) extern const struct ra__strategy ra__strategy_##name;
#include "plan/strategy.list"
#undef RA__STRATEGY

static const struct ra__strategy *const strategies[] = {
#define RA__STRATEGY(name) &ra__strategy_##name,
#include "plan/strategy.list"
#undef RA__STRATEGY
};

const struct ra__strategy *ra__strategy_at(int index)
{
    return index >= 0 && index < RA__COUNT(strategies) ? strategies[index] : NULL;
}

static const char *name_at(int index)
{
    return ra__strategy_at(index) ? strategies[index]->name : NULL;
}

ra_status ra__strategy_parse(const char *text, struct ra__plan_input *input)
{
    const char *name = text ? text : strategies[0]->name, *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    for (int i = 0; i < RA__COUNT(strategies); i++) {
        const struct ra__strategy *row = strategies[i];
        if (strlen(row->name) != length || strncmp(row->name, name, length)) continue;
        if (colon && !row->takes_args) break;
        input->strategy = row;
        input->team = 1;
        return row->team ? row->team(colon ? colon + 1 : NULL, input->ranks, &input->team) : RA_OK;
    }
    return ra__fail_unknown("strategy", name, strlen(name), name_at);
}

void ra__strategy_format(const struct ra__plan_input *input, char text[RA__STRATEGY_TEXT])
{
    if (input->strategy->takes_args)
        snprintf(text, RA__STRATEGY_TEXT, "%s:%dx%d", input->strategy->name, input->team,
                 input->ranks / input->team);
    else snprintf(text, RA__STRATEGY_TEXT, "%s", input->strategy->name);
}

/* How keys travel. Rows of a pattern whose heads see alike are sent for all KV heads at once. */
static void choose_ways(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool sparse = input->pattern->kind->sparse;
    bool alike = ra__pattern_classes(input->pattern, input->all_heads) == 1;
    b->straight = sparse && !input->strategy->gathers;
    b->plan->by_head = sparse && !alike && input->shape.kv_heads > 1 && b->ranks > 1;
    b->split_heads = b->plan->by_head && b->straight;
}

/* In a team: the heads of the share, and teams for ranks. A member without heads has one that
 * nobody has a position for. */
static ra_status make_team(struct ra__plan *plan, struct ra__account *account)
{
    const struct ra__plan_input *home = &plan->home;
    struct ra__plan_input *input = &plan->input;
    struct ra__team *team = &plan->team;
    RA__TRY(ra__team_make(&(struct ra__team_input){ &home->shape, home->q_layout, home->k_layout,
                                                    home->team, home->rank },
                          account, team));
    if (team->size == 1) return RA_OK;
    input->first_head = home->first_head + team->share.q_first;
    input->shape.q_heads = (int)ra__max(team->share.q_heads, 1);
    input->shape.kv_heads = (int)ra__max(team->share.kv_heads, 1);
    input->q_layout = team->q.layout;
    input->k_layout = team->k.layout;
    input->ranks = home->ranks / team->size;
    input->rank = home->rank / team->size;
    return RA_OK;
}

static ra_status write_forward(struct ra__builder *b)
{
    b->program = &b->plan->forward;
    RA__TRY(ra__put_swap_in(b));
    RA__TRY(b->input->strategy->forward(b));
    RA__TRY(ra__put_blind_rows(b));
    return ra__put_swap_out(b);
}

static ra_status write_backward(struct ra__builder *b)
{
    b->program = &b->plan->backward;
    RA__TRY(ra__put_swap_in(b));
    RA__TRY(b->input->strategy->backward(b));
    return ra__put_swap_out(b);
}

static ra_status write_programs(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool by_needs = b->straight || input->strategy->gathers;
    RA__TRY(ra__find_owners(b));
    RA__TRY(by_needs ? ra__find_needs(b) : ra__find_flows(b));
    RA__TRY(ra__find_hops(b));
    RA__TRY(write_forward(b));
    return input->backward ? write_backward(b) : RA_OK;
}

ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan)
{
    *plan = (struct ra__plan){ .home = *input, .input = *input };
    ra_status status = make_team(plan, account);
    struct ra__builder b = { .input = &plan->input,
                             .plan = plan,
                             .account = account,
                             .ranks = plan->input.ranks,
                             .rank = plan->input.rank };
    choose_ways(&b);
    if (status == RA_OK) status = write_programs(&b);
    ra__free(b.owners);
    ra__free(b.flows);
    ra__needs_clear(b.incoming, b.ranks);
    ra__needs_clear(b.outgoing, b.ranks);
    ra__free(b.found);
    ra__free(b.first_hop);
    ra__free(b.last_hop);
    ra__free(b.sees);
    if (status != RA_OK) ra__plan_clear(plan);
    return status;
}

static void clear_program(struct ra__program *program)
{
    ra__free(program->steps);
    ra__free(program->rows);
    ra__free(program->keys);
    ra__free(program->advances);
    ra__free(program->pieces);
    ra__free(program->rounds);
    ra__free(program->sends);
    ra__free(program->recvs);
    *program = (struct ra__program){ 0 };
}

void ra__plan_clear(struct ra__plan *plan)
{
    clear_program(&plan->forward);
    clear_program(&plan->backward);
    ra__team_clear(&plan->team);
}

/* Rows that travel may be of one KV head each; those that stay hold all. */
static bool slot_is_by_head(const struct ra__plan *plan, enum ra__slot slot)
{
    bool stays = slot == RA__SLOT_OWN || slot == RA__SLOT_GATHER || slot == RA__GRAD_OWN ||
                 slot == RA__GRAD_GATHER || slot == RA__GRAD_SHARED || slot == RA__SHARE_KV;
    return plan->by_head && !stays;
}

int64_t ra__slot_width(const struct ra__plan *plan, enum ra__slot slot)
{
    const struct ra__shape *shape = &plan->input.shape;
    int64_t both = shape->dim + shape->value_dim;
    if (slot == RA__SHARE_Q) return shape->batch * shape->q_heads * shape->dim;
    if (slot == RA__SHARE_OUT) return shape->batch * shape->q_heads * shape->value_dim;
    if (slot == RA__GRAD_SHARED) return shape->batch * plan->home.shape.kv_heads * both;
    return shape->batch * (slot_is_by_head(plan, slot) ? 1 : shape->kv_heads) * both;
}

int64_t ra__slot_head(const struct ra__plan *plan, enum ra__slot slot, int64_t batch, int kv_head)
{
    const struct ra__shape *shape = &plan->input.shape;
    int64_t width = shape->dim + shape->value_dim;
    int heads = slot == RA__GRAD_SHARED ? plan->home.shape.kv_heads : shape->kv_heads;
    return slot_is_by_head(plan, slot) ? batch * width : (batch * heads + kv_head) * width;
}

size_t ra__slot_row_bytes(const struct ra__plan *plan, enum ra__slot slot)
{
    if (slot == RA__SWAP_OUT || slot == RA__SWAP_A || slot == RA__SWAP_B) return 1;
    ra_dtype dtype = ra__slot_is_gradient(slot) ? RA_F32 : plan->input.shape.dtype;
    return (size_t)ra__slot_width(plan, slot) * ra__dtype_bytes(dtype);
}

int64_t ra__program_bytes(const struct ra__plan *plan, const struct ra__transfer *transfers,
                          int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (transfers[i].range.hi - transfers[i].range.lo) *
                 (int64_t)ra__slot_row_bytes(plan, transfers[i].slot);
    return bytes;
}
