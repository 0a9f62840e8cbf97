/* SPDX-License-Identifier: Apache-2.0 */
/* swap.c - the all-to-all of a team: heads are exchanged against tokens before a program, and
 * results are exchanged back after it.
 *
 * Round r: what member u + r gets is packed and sent; what member u - r sent is copied to its place
 * while that of the next one arrives. The own part is copied while the first one arrives. A message
 * holds field after field, run after run, each packed as [batch, head, token, number]. */
#include "core/dtype.h"
#include "plan/builder.h"

/* ---- What is exchanged ----------------------------------------------------------------------- */

/* One number or vector of every token and head: where it is on both sides, and its dtype on the
 * way. */
struct field {
    bool keys; /* else of queries */
    bool add;  /* to what other members sent, on the caller's side */
    int width;
    struct ra__end caller, slice;
    ra_dtype message;
};

enum { MOST_FIELDS = 6 };
struct fields {
    struct field at[MOST_FIELDS];
    int count;
};

static void add_field(struct fields *fields, struct field field)
{
    fields->at[fields->count++] = field;
}

static void add_inputs(const struct ra__program *p, struct fields *fields)
{
    const struct ra__side *caller = &p->caller, *work = &p->work;
    const struct ra__shape *s = &caller->shape;
    add_field(fields, (struct field){ .width = s->dim,
                                      .caller = { .buffer = caller->q },
                                      .slice = { .buffer = work->q },
                                      .message = s->dtype });
    add_field(fields, (struct field){ .keys = true,
                                      .width = s->dim,
                                      .caller = { .buffer = caller->k },
                                      .slice = { .buffer = work->k },
                                      .message = s->dtype });
    add_field(fields, (struct field){ .keys = true,
                                      .width = s->value_dim,
                                      .caller = { .buffer = caller->v },
                                      .slice = { .buffer = work->v, .number = s->dim },
                                      .message = s->dtype });
    if (p->direction == RA__FORWARD) return;
    add_field(fields, (struct field){ .width = s->value_dim,
                                      .caller = { .buffer = caller->dout },
                                      .slice = { .buffer = work->dout },
                                      .message = s->dtype });
}

/* A number per query and head. */
static void add_column(struct fields *fields, enum ra__buffer caller, enum ra__buffer slice)
{
    add_field(fields, (struct field){ .width = 1,
                                      .caller = { .buffer = caller },
                                      .slice = { .buffer = slice },
                                      .message = RA_F32 });
}

/* Complete gradients are rounded before they are sent; those that other members add to are not. */
static void add_key_sums(const struct ra__program *p, bool shared, struct fields *fields)
{
    const struct ra__side *caller = &p->caller;
    const struct ra__shape *s = &caller->shape;
    for (int values = 0; values < 2; values++) {
        const int number = values ? s->dim : 0;
        struct field field = { .keys = true,
                               .add = shared,
                               .width = values ? s->value_dim : s->dim,
                               .caller = { .buffer = values ? caller->dv : caller->dk },
                               .slice = { .buffer = RA__SUM_OWN, .number = number },
                               .message = shared ? RA_F32 : s->dtype };
        if (shared) field.caller = (struct ra__end){ .buffer = RA__SUM_SHARED, .number = number };
        add_field(fields, field);
    }
}

/* In: Q, K, V; backward also the gradient of the result, the LSE and delta. Out: the result and its
 * LSE; backward dQ, dK and dV. Fields in f32 come first, so that they are aligned in messages. */
static struct fields list_fields(const struct ra__builder *b, bool in)
{
    const struct ra__program *p = b->program;
    const struct ra__shape *s = &p->caller.shape;
    const bool backward = p->direction == RA__BACKWARD;
    struct fields fields = { .count = 0 };
    if (in && backward) add_column(&fields, p->caller.delta, p->work.delta);
    if (in == backward) add_column(&fields, p->caller.lse, p->work.lse);
    if (in) add_inputs(p, &fields);
    if (!in && !backward)
        add_field(&fields, (struct field){ .width = s->value_dim,
                                           .caller = { .buffer = p->caller.out },
                                           .slice = { .buffer = p->work.out },
                                           .message = s->dtype });
    if (!in && backward) add_key_sums(p, b->plan->team.shared, &fields);
    if (!in && backward)
        add_field(&fields, (struct field){ .width = s->dim,
                                           .caller = { .buffer = p->caller.dq },
                                           .slice = { .buffer = RA__SUM_Q },
                                           .message = s->dtype });
    return fields;
}

/* ---- How many bytes -------------------------------------------------------------------------- */

/* An overflow is refused later, when memory is counted. */
static int64_t product(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? RA__UNBOUNDED : ra__min(c, RA__UNBOUNDED);
}

/* The tokens of one member with the heads of another. */
static int64_t bytes_between(const struct ra__builder *b, bool in, int tokens_of, int heads_of)
{
    const struct ra__plan_input *caller = &b->plan->caller;
    const struct ra__team *team = &b->plan->team;
    const struct ra__heads heads = ra__heads_of(&caller->shape, team->size, heads_of);
    const struct fields fields = list_fields(b, in);
    int64_t bytes = 0;
    for (int i = 0; i < fields.count; i++) {
        const struct field *field = &fields.at[i];
        const ra_layout *layout = field->keys ? caller->k_layout : caller->q_layout;
        int64_t numbers = product(layout->count[team->first + tokens_of],
                                  field->keys ? heads.kv_heads : heads.q_heads);
        numbers = product(numbers, (int64_t)field->width * caller->shape.batch);
        bytes = ra__min(bytes + product(numbers, (int64_t)ra__dtype_bytes(field->message)),
                        RA__UNBOUNDED);
    }
    return bytes;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static int member_at(const struct ra__builder *b, int distance)
{
    const struct ra__team *team = &b->plan->team;
    return (team->member + distance + team->size) % team->size;
}

static enum ra__buffer arrival_buffer(int round) { return round % 2 ? RA__SWAP_A : RA__SWAP_B; }

/* Which end of a piece: the caller's tensors, the head slice, or a message. */
enum which { CALLER, SLICE, MESSAGE };

/* A step between two members: the tokens of one, with the heads of the other. */
struct swap {
    enum which from, to;
    enum ra__buffer buffer; /* of the message */
    int tokens_of;          /* a member */
    struct ra__heads heads;
    int64_t at; /* bytes of the message so far */
};

static struct ra__end end_at(const struct swap *swap, enum which which, const struct field *field,
                             const struct ra__team_run *run)
{
    struct ra__end end = { .buffer = swap->buffer, .token = swap->at };
    if (which == MESSAGE) return end;
    end = which == CALLER ? field->caller : field->slice;
    if (which == CALLER) end.head = field->keys ? swap->heads.kv_first : swap->heads.q_first;
    end.token = which == CALLER ? run->member_token : run->team_token;
    end.step = 1;
    return end;
}

/* The tokens of a member are one range of its shard; in the slice they are several, its runs. */
static ra_status put_field(struct ra__builder *b, struct ra__step *step, struct swap *swap,
                           const struct field *field)
{
    const struct ra__team_layout *side = field->keys ? &b->plan->team.k : &b->plan->team.q;
    const int heads = field->keys ? swap->heads.kv_heads : swap->heads.q_heads;
    for (int i = side->first[swap->tokens_of]; i < side->first[swap->tokens_of + 1]; i++) {
        const struct ra__team_run *run = &side->runs[i];
        struct ra__piece piece = { .to = end_at(swap, swap->to, field, run),
                                   .from = end_at(swap, swap->from, field, run),
                                   .tokens = heads > 0 ? run->count : 0,
                                   .heads = heads,
                                   .width = field->width,
                                   .message = field->message,
                                   .add = field->add && swap->to == CALLER };
        RA__TRY(ra__put_piece(b, step, piece));
        swap->at += product(run->count, (int64_t)heads * field->width * b->input->shape.batch) *
                    (int64_t)ra__dtype_bytes(field->message);
    }
    return RA_OK;
}

static ra_status put_swap(struct ra__builder *b, int round, int member, bool in, struct swap swap)
{
    const struct ra__team *team = &b->plan->team;
    const bool mine = swap.from == CALLER || swap.to == CALLER; /* tokens of this rank */
    const struct fields fields = list_fields(b, in);
    struct ra__step step = ra__gather(RA__GATHER_SWAP, round, team->first + member, RA__NO_BUFFER,
                                      RA__NO_BUFFER);
    if (swap.from == MESSAGE) step.from = swap.buffer;
    if (swap.to == MESSAGE) step.to = swap.buffer;
    swap.tokens_of = mine ? team->member : member;
    swap.heads = ra__heads_of(&b->plan->caller.shape, team->size, mine ? member : team->member);
    ra__begin_pieces(b, &step);
    for (int i = 0; i < fields.count; i++) RA__TRY(put_field(b, &step, &swap, &fields.at[i]));
    return ra__end_pieces(b, &step);
}

/* Packs for one member, and starts that round. Before the program: tokens of this rank with the
 * heads of the other; after it: tokens of the other with the heads of this rank. */
static ra_status start_round(struct ra__builder *b, bool in, int round)
{
    if (round >= b->plan->team.size) return RA_OK;
    int me = b->plan->team.member, to = member_at(b, round), from = member_at(b, -round);
    int64_t sent = in ? bytes_between(b, in, me, to) : bytes_between(b, in, to, me);
    int64_t coming = in ? bytes_between(b, in, from, me) : bytes_between(b, in, me, from);
    ra__use_buffer(b, RA__SWAP_OUT, sent);
    ra__use_buffer(b, arrival_buffer(round), coming);
    if (sent > 0)
        RA__TRY(put_swap(
            b, round, to, in,
            (struct swap){ .from = in ? CALLER : SLICE, .to = MESSAGE, .buffer = RA__SWAP_OUT }));
    RA__TRY(ra__open_round(b, round));
    RA__TRY(ra__send_bytes(b, to, RA__SWAP_OUT, sent));
    RA__TRY(ra__recv_bytes(b, from, arrival_buffer(round), coming));
    return ra__put_exchange(b);
}

static ra_status put_rounds(struct ra__builder *b, bool in)
{
    int me = b->plan->team.member;
    const enum which to = in ? SLICE : CALLER;
    RA__TRY(start_round(b, in, 1));
    RA__TRY(put_swap(b, 0, me, in, (struct swap){ .from = in ? CALLER : SLICE, .to = to }));
    for (int round = 1; round < b->plan->team.size; round++) {
        int from = member_at(b, -round);
        bool comes = in ? bytes_between(b, in, from, me) > 0 : bytes_between(b, in, me, from) > 0;
        RA__TRY(start_round(b, in, round + 1));
        if (comes)
            RA__TRY(put_swap(
                b, round, from, in,
                (struct swap){ .from = MESSAGE, .to = to, .buffer = arrival_buffer(round) }));
    }
    return RA_OK;
}

ra_status ra__put_swap_in(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    b->hops_before = 0;
    if (b->plan->team.size == 1) return RA_OK;
    ra__use_buffer(b, RA__SLICE_Q, input->q_layout->count[input->rank]);
    ra__use_buffer(b, RA__SLICE_OUT, input->q_layout->count[input->rank]);
    ra__use_buffer(b, RA__SLICE_KV, input->k_layout->count[input->rank]);
    ra__use_buffer(b, RA__SLICE_LSE, input->q_layout->count[input->rank]);
    if (b->program->direction == RA__BACKWARD)
        ra__use_buffer(b, RA__SLICE_DELTA, input->q_layout->count[input->rank]);
    RA__TRY(put_rounds(b, true));
    b->hops_before = b->plan->team.size - 1;
    return RA_OK;
}

ra_status ra__put_swap_out(struct ra__builder *b)
{
    const struct ra__team *team = &b->plan->team;
    const bool backward = b->program->direction == RA__BACKWARD, shared = backward && team->shared;
    if (team->size == 1) return backward ? ra__put_finish(b, RA__SUM_OWN, true) : RA_OK;
    /* After the hops of the ring between the teams: its last sums return one hop after the number
     * of teams. */
    if (b->ranks > 1) b->hops_before += backward ? b->ranks + 1 : b->ranks - 1;
    /* Sums of the caller's keys: of all members that had their heads. */
    if (shared) RA__TRY(ra__put_clear(b, RA__SUM_SHARED, b->program->caller.keys));
    RA__TRY(put_rounds(b, false));
    return shared ? ra__put_finish(b, RA__SUM_SHARED, false) : RA_OK;
}
