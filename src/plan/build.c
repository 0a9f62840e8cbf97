/* build.c - from a problem to the plan of one rank: rows, needs, then the strategy's programs. */
#include <inttypes.h>
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
        if (row->streams) return ra__stream_parse(colon ? colon + 1 : NULL, input);
        return row->team ? row->team(colon ? colon + 1 : NULL, input->ranks, &input->team) : RA_OK;
    }
    return ra__fail_unknown("strategy", name, strlen(name), name_at);
}

void ra__strategy_format(const struct ra__plan_input *input, char text[RA__STRATEGY_TEXT])
{
    if (input->strategy->streams)
        snprintf(text, RA__STRATEGY_TEXT, "%s:%" PRId64, input->strategy->name, input->block);
    else if (input->strategy->takes_args)
        snprintf(text, RA__STRATEGY_TEXT, "%s:%dx%d", input->strategy->name, input->team,
                 input->ranks / input->team);
    else snprintf(text, RA__STRATEGY_TEXT, "%s", input->strategy->name);
}

/* How keys are sent. If all heads see the same keys, a token is sent for all KV heads at once. */
static void choose_ways(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool sparse = input->pattern->kind->sparse;
    bool alike = ra__pattern_classes(input->pattern, input->all_heads) == 1;
    b->direct = sparse && !input->strategy->gathers;
    b->plan->by_head = sparse && !alike && input->shape.kv_heads > 1 && b->ranks > 1;
    b->split_heads = b->plan->by_head && b->direct;
}

/* In a team: the heads of the slice, and teams in place of ranks. A member without heads gets one
 * head for which no rank has a position. */
static ra_status make_team(struct ra__plan *plan, struct ra__account *account)
{
    const struct ra__plan_input *caller = &plan->caller;
    struct ra__plan_input *input = &plan->input;
    struct ra__team *team = &plan->team;
    RA__TRY(ra__team_make(&(struct ra__team_input){ &caller->shape, caller->q_layout,
                                                    caller->k_layout, caller->team, caller->rank },
                          account, team));
    if (team->size == 1) return RA_OK;
    input->first_head = caller->first_head + team->slice.q_first;
    input->shape.q_heads = (int)ra__max(team->slice.q_heads, 1);
    input->shape.kv_heads = (int)ra__max(team->slice.kv_heads, 1);
    input->q_layout = team->q.layout;
    input->k_layout = team->k.layout;
    input->ranks = caller->ranks / team->size;
    input->rank = caller->rank / team->size;
    return RA_OK;
}

/* The tensors of a side, as buffers: those of the call, or copies on the device. */
static struct ra__side make_side(const struct ra__plan_input *input)
{
    struct ra__side side = { .shape = input->shape,
                             .first_head = input->first_head,
                             .queries = input->q_layout->count[input->rank],
                             .keys = input->k_layout->count[input->rank],
                             .q = RA__Q,
                             .k = RA__K,
                             .v = RA__V,
                             .out = RA__OUT,
                             .lse = RA__LSE,
                             .dout = RA__DOUT,
                             .dlse = RA__DLSE,
                             .dq = RA__DQ,
                             .dk = RA__DK,
                             .dv = RA__DV,
                             .delta = RA__DELTA,
                             .sum_q = RA__SUM_Q };
    enum ra__buffer *const ids[] = { &side.q,    &side.k,    &side.v,  &side.out, &side.lse,
                                     &side.dout, &side.dlse, &side.dq, &side.dk,  &side.dv };
    for (int i = 0; i < RA__COUNT(ids) && input->loads; i++)
        *ids[i] = (enum ra__buffer)((int)*ids[i] - RA__Q + RA__DEVICE_Q);
    return side;
}

/* What a member of a team works on. */
static void use_slices(struct ra__side *side)
{
    side->q = RA__SLICE_Q;
    side->k = side->v = RA__SLICE_KV;
    side->out = side->dout = RA__SLICE_OUT;
    side->lse = RA__SLICE_LSE;
    side->delta = RA__SLICE_DELTA;
}

/* KV heads whose keys are ranges of their own: those of the problem, whatever a team makes of them.
 * 0: a CPU, which wants few jobs. */
static int64_t jobs_of(const struct ra__plan *plan)
{
    const struct ra__shape *s = &plan->caller.shape;
    return plan->caller.many_jobs ? s->batch * s->kv_heads : 0;
}

static void begin_program(struct ra__builder *b, enum ra__direction direction)
{
    b->program = direction == RA__FORWARD ? &b->plan->forward : &b->plan->backward;
    b->program->direction = direction;
    b->program->caller = make_side(&b->plan->caller);
    b->program->work = make_side(&b->plan->input);
    if (b->plan->team.size > 1) use_slices(&b->program->work);
    b->program->split = ra__key_split_for(&b->input->shape, jobs_of(b->plan));
    b->program->any_order = b->plan->caller.any_order;
    b->program->same_bits = b->input->strategy->gathers && !b->plan->caller.any_order &&
                            !b->plan->caller.chosen;
    b->program->counts = b->plan->caller.counts;
    b->program->device_ranks = b->plan->caller.device_ranks;
    b->program->storage = b->plan->storage;
    b->hops_before = 0;
}

static ra_status write_forward(struct ra__builder *b)
{
    begin_program(b, RA__FORWARD);
    RA__TRY(ra__put_loads(b));
    RA__TRY(ra__put_swap_in(b));
    RA__TRY(b->input->strategy->forward(b));
    RA__TRY(ra__put_empty_rows(b));
    RA__TRY(ra__put_swap_out(b));
    RA__TRY(ra__put_stores(b));
    return ra__find_waits(b);
}

static ra_status write_backward(struct ra__builder *b)
{
    begin_program(b, RA__BACKWARD);
    RA__TRY(ra__put_loads(b));
    RA__TRY(ra__put_backward_start(b));
    RA__TRY(ra__put_swap_in(b));
    RA__TRY(b->input->strategy->backward(b));
    RA__TRY(ra__put_swap_out(b));
    RA__TRY(ra__put_stores(b));
    return ra__find_waits(b);
}

/* A stream loads and stores its windows itself. */
static ra_status write_stream(struct ra__builder *b)
{
    begin_program(b, RA__FORWARD);
    RA__TRY(b->input->strategy->forward(b));
    RA__TRY(ra__find_waits(b));
    if (!b->input->backward) return RA_OK;
    begin_program(b, RA__BACKWARD);
    RA__TRY(b->input->strategy->backward(b));
    return ra__find_waits(b);
}

static ra_status write_programs(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    bool by_needs = b->direct || input->strategy->gathers;
    if (input->strategy->streams) return write_stream(b);
    RA__TRY(ra__find_owners(b));
    RA__TRY(by_needs ? ra__find_needs(b) : ra__find_flows(b));
    RA__TRY(ra__find_hops(b));
    RA__TRY(write_forward(b));
    return input->backward ? write_backward(b) : RA_OK;
}

ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan)
{
    *plan = (struct ra__plan){ .caller = *input, .input = *input };
    ra_status status = make_team(plan, account);
    struct ra__builder b = { .input = &plan->input,
                             .plan = plan,
                             .account = account,
                             .ranks = plan->input.ranks,
                             .rank = plan->input.rank };
    choose_ways(&b);
    if (status == RA_OK) status = write_programs(&b);
    ra__plan_fill_storage(plan);
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
    ra__free(program->waits);
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

int64_t ra__program_bytes(const struct ra__plan *plan, const struct ra__transfer *transfers,
                          int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (transfers[i].range.hi - transfers[i].range.lo) *
                 (int64_t)ra__token_bytes(plan, transfers[i].buffer);
    return bytes;
}
