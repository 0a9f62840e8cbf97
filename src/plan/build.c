/* build.c - from a problem to the plan of one rank: rows, needs, then the strategy's programs. */
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

ra_status ra__strategy_find(const char *name, const struct ra__strategy **out)
{
    for (int i = 0; i < RA__COUNT(strategies); i++) {
        *out = strategies[i];
        if (!name || !strcmp(strategies[i]->name, name)) return RA_OK;
    }
    return ra__fail_unknown("strategy", name, strlen(name), name_at);
}

/* How keys travel. Rows of a pattern whose heads see alike are sent for all KV heads at once. */
static void choose_ways(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool sparse = input->pattern->kind->sparse;
    bool alike = ra__pattern_classes(input->pattern, input->shape.q_heads) == 1;
    b->straight = sparse && !input->strategy->gathers;
    b->plan->by_head = sparse && !alike && input->shape.kv_heads > 1 && b->ranks > 1;
    b->split_heads = b->plan->by_head && b->straight;
}

static ra_status write_programs(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool by_needs = b->straight || input->strategy->gathers;
    RA__TRY(by_needs ? ra__find_needs(b) : ra__find_flows(b));
    RA__TRY(ra__find_hops(b));
    b->program = &b->plan->forward;
    RA__TRY(input->strategy->forward(b));
    RA__TRY(ra__put_blind_rows(b));
    if (!input->backward) return RA_OK;
    b->program = &b->plan->backward;
    return input->strategy->backward(b);
}

ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan)
{
    *plan = (struct ra__plan){ .input = *input };
    struct ra__builder b = {
        .input = input, .plan = plan, .account = account, .ranks = input->ranks, .rank = input->rank
    };
    choose_ways(&b);
    ra_status status = write_programs(&b);
    ra__free(b.flows);
    ra__needs_clear(b.incoming, b.ranks);
    ra__needs_clear(b.outgoing, b.ranks);
    ra__free(b.found);
    ra__free(b.first_hop);
    ra__free(b.last_hop);
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
}

/* Rows that travel may be of one KV head each; those that stay hold all. */
static bool slot_is_by_head(const struct ra__plan *plan, enum ra__slot slot)
{
    bool stays = slot == RA__SLOT_OWN || slot == RA__SLOT_GATHER || slot == RA__GRAD_OWN ||
                 slot == RA__GRAD_GATHER;
    return plan->by_head && !stays;
}

int64_t ra__slot_width(const struct ra__plan *plan, enum ra__slot slot)
{
    const struct ra__shape *shape = &plan->input.shape;
    int heads = slot_is_by_head(plan, slot) ? 1 : shape->kv_heads;
    return shape->batch * heads * (shape->dim + shape->value_dim);
}

int64_t ra__slot_head(const struct ra__plan *plan, enum ra__slot slot, int64_t batch, int kv_head)
{
    const struct ra__shape *shape = &plan->input.shape;
    int64_t width = shape->dim + shape->value_dim;
    return slot_is_by_head(plan, slot) ? batch * width
                                       : (batch * shape->kv_heads + kv_head) * width;
}

size_t ra__slot_row_bytes(const struct ra__plan *plan, enum ra__slot slot)
{
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
