/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - steps of pieces: GATHER, LOAD and STORE. A piece says which numbers go where; what the
 * strategies know is tokens of KV blocks, by KV head or of all heads. */
#include "plan/builder.h"

/* ---- Pieces ---------------------------------------------------------------------------------- */

void ra__begin_pieces(struct ra__builder *b, struct ra__step *step)
{
    step->first_piece = b->program->piece_count;
    step->piece_count = 0;
}

ra_status ra__put_piece(struct ra__builder *b, struct ra__step *step, struct ra__piece piece)
{
    struct ra__program *p = b->program;
    if (piece.tokens == 0) return RA_OK;
    RA__TRY(ra__make_room(b, (void **)&p->pieces, p->piece_count, sizeof *p->pieces));
    p->pieces[p->piece_count++] = piece;
    step->piece_count++;
    return RA_OK;
}

ra_status ra__end_pieces(struct ra__builder *b, struct ra__step *step)
{
    return step->piece_count ? ra__put_step(b, *step) : RA_OK;
}

/* ---- Tokens of KV blocks --------------------------------------------------------------------- */

/* Tokens token, token + step, ... of a block, in a buffer or, with RA__OWN_KV, in the tensors. */
struct tokens {
    enum ra__buffer buffer;
    int64_t token, step;
};

/* One end of a piece of K, or of V. Buffers of KV blocks hold K and V of a head together. */
static struct ra__end end_of(const struct ra__builder *b, struct tokens tokens, int kv_head,
                             bool values)
{
    const struct ra__side *side = &b->program->work;
    const int dim = side->shape.dim;
    struct ra__end end = { .buffer = tokens.buffer,
                           .head = kv_head == RA__ALL_HEADS ? 0 : kv_head,
                           .number = values ? dim : 0,
                           .token = tokens.token,
                           .step = tokens.step };
    if (tokens.buffer == RA__OWN_KV) {
        end.buffer = values ? side->v : side->k;
        if (side->k != side->v) end.number = 0;
    } else if (ra__holds_one_head(b->plan, tokens.buffer)) {
        end.head = 0;
    }
    return end;
}

/* Adds `count` tokens: K and V in one piece where both ends hold them together. */
static ra_status put_tokens(struct ra__builder *b, struct ra__step *step, struct tokens to,
                            struct tokens from, int64_t count, int kv_head)
{
    const struct ra__shape *s = &b->program->work.shape;
    const bool clears = step->gather == RA__GATHER_CLEAR;
    const bool apart = from.buffer == RA__OWN_KV;
    struct ra__piece piece = { .tokens = count,
                               .heads = kv_head == RA__ALL_HEADS ? s->kv_heads : 1,
                               .width = apart ? s->dim : s->dim + s->value_dim,
                               .add = step->gather == RA__GATHER_ADD };
    if (to.buffer == RA__SUM_SHARED) piece.heads = b->plan->caller.shape.kv_heads;
    piece.to = end_of(b, to, kv_head, false);
    piece.from = clears ? (struct ra__end){ .buffer = RA__NO_BUFFER }
                        : end_of(b, from, kv_head, false);
    if (ra__holds_one_head(b->plan, to.buffer) && kv_head == RA__ALL_HEADS) piece.heads = 1;
    RA__TRY(ra__put_piece(b, step, piece));
    if (!apart) return RA_OK;
    piece.width = s->value_dim;
    piece.to = end_of(b, to, kv_head, true);
    piece.from = end_of(b, from, kv_head, true);
    return ra__put_piece(b, step, piece);
}

/* Between tokens packed in one buffer and the gathered tokens of all ranks, position by
 * position. */
static ra_status put_by_position(struct ra__builder *b, struct ra__step *step,
                                 const struct ra__needed *needed)
{
    const ra_layout *layout = b->input->k_layout;
    const bool gathers = step->gather == RA__GATHER_PLACE;
    const int64_t last = ra__run_last(needed->tokens);
    for (int64_t i = ra__layout_run_at(layout, step->block, needed->tokens.start);
         i < layout->first[step->block + 1] && layout->runs[i].token <= last; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        int64_t skipped;
        ra_run tokens = ra__run_clip(needed->tokens, run->token, run->token + run->at.count,
                                     &skipped);
        if (tokens.count == 0) continue;
        int64_t position = run->at.start + (tokens.start - run->token) * run->at.step;
        struct tokens packed = { gathers ? step->from : step->to, needed->at + skipped, 1 };
        struct tokens all = { gathers ? step->to : step->from, position - b->plan->gathered.lo,
                              run->at.step * tokens.step };
        RA__TRY(put_tokens(b, step, gathers ? all : packed, gathers ? packed : all, tokens.count,
                           needed->kv_head));
    }
    return RA_OK;
}

static ra_status put_needed(struct ra__builder *b, struct ra__step *step,
                            const struct ra__needed *needed)
{
    const ra_run tokens = needed->tokens;
    struct tokens packed = { step->to, needed->at, 1 };
    struct tokens block = { step->from, tokens.start, tokens.step };
    if (step->gather == RA__GATHER_PLACE || step->gather == RA__GATHER_PICK)
        return put_by_position(b, step, needed);
    if (step->gather == RA__GATHER_ADD) {
        packed.buffer = step->from;
        block.buffer = step->to;
        return put_tokens(b, step, block, packed, tokens.count, needed->kv_head);
    }
    return put_tokens(b, step, packed, block, tokens.count, needed->kv_head);
}

ra_status ra__put_needs(struct ra__builder *b, struct ra__step step, const struct ra__needs *needs)
{
    ra__begin_pieces(b, &step);
    for (int i = 0; i < needs->count; i++) RA__TRY(put_needed(b, &step, &needs->pieces[i]));
    return ra__end_pieces(b, &step);
}

ra_status ra__put_ranges(struct ra__builder *b, struct ra__step step,
                         const struct ra__ranges *ranges)
{
    struct ra__needed pieces[RA__RANGES];
    for (int i = 0; i < ranges->count; i++) {
        struct ra__range range = ranges->at[i];
        pieces[i] = (struct ra__needed){ .kv_head = RA__ALL_HEADS,
                                         .tokens = { range.lo, 1, range.hi - range.lo },
                                         .at = range.lo };
    }
    return ra__put_needs(b, step, &(struct ra__needs){ .pieces = pieces, .count = ranges->count });
}

ra_status ra__put_first(struct ra__builder *b, struct ra__step step, int64_t tokens)
{
    struct ra__ranges all = { 0 };
    ra__ranges_add(&all, 0, tokens);
    return ra__put_ranges(b, step, &all);
}

ra_status ra__put_clear(struct ra__builder *b, enum ra__buffer sums, int64_t tokens)
{
    ra__use_buffer(b, sums, tokens);
    return ra__put_first(b, ra__gather(RA__GATHER_CLEAR, 0, b->rank, RA__NO_BUFFER, sums), tokens);
}

/* ---- Before and after everything else -------------------------------------------------------- */

/* A whole tensor of the caller, and its copy on the device. */
struct copied {
    enum ra__buffer tensor, device;
    bool keys;
    int heads, width;
};

static ra_status put_copies(struct ra__builder *b, bool load, const struct copied *list, int count)
{
    const struct ra__side *caller = &b->program->caller;
    struct ra__step step = { .op = load ? RA__OP_LOAD : RA__OP_STORE,
                             .block = -1,
                             .from = RA__NO_BUFFER,
                             .to = RA__NO_BUFFER };
    ra__begin_pieces(b, &step);
    for (int i = 0; i < count; i++) {
        const struct ra__end host = { .buffer = list[i].tensor, .step = 1 };
        const struct ra__end device = { .buffer = list[i].device, .step = 1 };
        const int64_t tokens = list[i].keys ? caller->keys : caller->queries;
        ra__use_buffer(b, list[i].device, tokens);
        RA__TRY(ra__put_piece(b, &step,
                              (struct ra__piece){ .to = load ? device : host,
                                                  .from = load ? host : device,
                                                  .tokens = tokens,
                                                  .heads = list[i].heads,
                                                  .width = list[i].width }));
    }
    return ra__end_pieces(b, &step);
}

ra_status ra__put_loads(struct ra__builder *b)
{
    const struct ra__shape *s = &b->program->caller.shape;
    const struct copied inputs[] = {
        { RA__Q, RA__DEVICE_Q, false, s->q_heads, s->dim },
        { RA__K, RA__DEVICE_K, true, s->kv_heads, s->dim },
        { RA__V, RA__DEVICE_V, true, s->kv_heads, s->value_dim },
        { RA__OUT, RA__DEVICE_OUT, false, s->q_heads, s->value_dim },
        { RA__LSE, RA__DEVICE_LSE, false, s->q_heads, 1 },
        { RA__DOUT, RA__DEVICE_DOUT, false, s->q_heads, s->value_dim },
        { RA__DLSE, RA__DEVICE_DLSE, false, s->q_heads, 1 },
    };
    if (!b->input->loads) return RA_OK;
    return put_copies(b, true, inputs, b->program->direction == RA__FORWARD ? 3 : 7);
}

ra_status ra__put_stores(struct ra__builder *b)
{
    const struct ra__shape *s = &b->program->caller.shape;
    const struct copied results[] = { { RA__OUT, RA__DEVICE_OUT, false, s->q_heads, s->value_dim },
                                      { RA__LSE, RA__DEVICE_LSE, false, s->q_heads, 1 } };
    const struct copied gradients[] = { { RA__DQ, RA__DEVICE_DQ, false, s->q_heads, s->dim },
                                        { RA__DK, RA__DEVICE_DK, true, s->kv_heads, s->dim },
                                        { RA__DV, RA__DEVICE_DV, true, s->kv_heads,
                                          s->value_dim } };
    if (!b->input->loads) return RA_OK;
    return b->program->direction == RA__FORWARD
               ? put_copies(b, false, results, RA__COUNT(results))
               : put_copies(b, false, gradients, RA__COUNT(gradients));
}

/* Delta is computed from the caller's tensors, before heads are exchanged. */
ra_status ra__put_backward_start(struct ra__builder *b)
{
    const struct ra__side *work = &b->program->work;
    struct ra__step step = {
        .op = RA__OP_DELTA, .block = -1, .from = RA__NO_BUFFER, .to = RA__NO_BUFFER
    };
    ra__use_buffer(b, RA__DELTA, b->program->caller.queries);
    ra__use_buffer(b, RA__SUM_Q, work->queries);
    RA__TRY(ra__put_step(b, step));
    step.op = RA__OP_SINKS;
    RA__TRY(ra__put_step(b, step));
    step = ra__gather(RA__GATHER_CLEAR, 0, -1, RA__NO_BUFFER, RA__SUM_Q);
    ra__begin_pieces(b, &step);
    RA__TRY(ra__put_piece(b, &step,
                          (struct ra__piece){ .to = { .buffer = RA__SUM_Q, .step = 1 },
                                              .from = { .buffer = RA__NO_BUFFER },
                                              .tokens = work->queries,
                                              .heads = work->shape.q_heads,
                                              .width = work->shape.dim }));
    return ra__end_pieces(b, &step);
}

ra_status ra__put_finish(struct ra__builder *b, enum ra__buffer sums, bool with_queries)
{
    const struct ra__side *caller = &b->program->caller;
    const struct ra__shape *s = &caller->shape;
    struct ra__step step = ra__gather(RA__GATHER_FINISH, 0, b->rank, sums, RA__NO_BUFFER);
    const struct ra__piece pieces[] = {
        { .to = { .buffer = caller->dk, .step = 1 },
          .from = { .buffer = sums, .step = 1 },
          .tokens = caller->keys,
          .heads = s->kv_heads,
          .width = s->dim },
        { .to = { .buffer = caller->dv, .step = 1 },
          .from = { .buffer = sums, .number = s->dim, .step = 1 },
          .tokens = caller->keys,
          .heads = s->kv_heads,
          .width = s->value_dim },
        { .to = { .buffer = caller->dq, .step = 1 },
          .from = { .buffer = RA__SUM_Q, .step = 1 },
          .tokens = caller->queries,
          .heads = s->q_heads,
          .width = s->dim },
    };
    ra__begin_pieces(b, &step);
    for (int i = 0; i < (with_queries ? 3 : 2); i++) RA__TRY(ra__put_piece(b, &step, pieces[i]));
    return ra__end_pieces(b, &step);
}
