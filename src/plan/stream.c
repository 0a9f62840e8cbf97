/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - one rank, for tensors that do not fit: blocks of queries and keys are loaded, worked
 * on and stored through a few buffers.
 *
 * Forward, a block of queries is a unit: it meets the key blocks it sees in ascending order, its
 * state stays, and its results are stored once. Backward, a block of keys is a unit: it meets the
 * query blocks that see it, so dK and dV are complete when it ends. dQ is not: its f32 sums are
 * stored after each pair of blocks and loaded before the next, in two places that alternate, so
 * that a unit that was broken off can be done again from what it started with.
 *
 * The loads of a pair of blocks come before the computing of the pair before it. Two windows of
 * queries and two buffers of keys alternate, so these loads wait for nothing that still runs. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/dtype.h"
#include "plan/builder.h"

/* A block of queries and a block of keys that meet. */
struct pair {
    int64_t q, k;       /* blocks; NONE */
    int unit;           /* from 1 on */
    bool opens, closes; /* is it the first, the last of its unit? */
    struct ra__window window;
    struct ra__range seen;      /* keys that are loaded */
    enum ra__buffer keys, sums; /* where they are, and the sums of their gradients */
    int met, of;                /* backward: key blocks that the queries met before, and in all */
};

enum { NONE = -1 };

struct stream {
    struct ra__builder *b;
    int64_t block, q_blocks, k_blocks;
    struct ra__range *ranges; /* [key block]: keys that the block of queries at hand sees */
    uint64_t *met_by;         /* backward: bits [key block][query block] */
    int *met, *of;            /* backward: [query block], as in struct pair */
    struct pair pending;      /* loaded, not yet computed; unit 0: none */
    int pairs;
};

/* ---- Blocks ---------------------------------------------------------------------------------- */

static struct ra__range block_of(const struct stream *s, int64_t index, int64_t length)
{
    const int64_t first = index * s->block;
    return (struct ra__range){ first, ra__min(first + s->block, length) };
}

static struct ra__range keys_of(const struct stream *s, int64_t index)
{
    return block_of(s, index, s->b->input->shape.k_len);
}

/* The two windows alternate with `count`. */
static struct ra__window window_of(const struct stream *s, int64_t q, int count)
{
    const struct ra__range at = block_of(s, q, s->b->input->shape.q_len);
    return (struct ra__window){ count % 2 ? RA__WINDOW_B : RA__WINDOW_A, at.lo, at.hi - at.lo };
}

static void extend(struct ra__range *range, ra_run keys)
{
    const bool none = range->lo == range->hi;
    range->lo = none ? keys.start : ra__min(range->lo, keys.start);
    range->hi = ra__max(range->hi, ra__run_last(keys) + 1);
}

static ra_status note_row(void *context, const struct ra__row *row)
{
    struct stream *s = context;
    for (int i = 0; i < row->tile_count; i++) {
        const ra_run keys = ra__row_keys(row, &row->tiles[i]);
        if (keys.count == 0) continue;
        for (int64_t k = keys.start / s->block; k <= ra__run_last(keys) / s->block; k++) {
            const struct ra__range block = keys_of(s, k);
            int64_t skipped;
            const ra_run here = ra__run_clip(keys, block.lo, block.hi, &skipped);
            if (here.count > 0) extend(&s->ranges[k], here);
        }
    }
    return RA_OK;
}

/* Which keys a block of queries sees, by key block. */
static ra_status find_ranges(struct stream *s, int64_t q)
{
    const struct ra__window window = window_of(s, q, 0);
    for (int64_t k = 0; k < s->k_blocks; k++) s->ranges[k] = (struct ra__range){ 0, 0 };
    return ra__rows_of_window(s->b, &window, (struct ra__row_sink){ note_row, s });
}

static bool is_seen(const struct stream *s, int64_t k) { return s->ranges[k].lo < s->ranges[k].hi; }

/* ---- Steps ----------------------------------------------------------------------------------- */

static const struct ra__side *side_of(const struct stream *s, const struct pair *pair)
{
    const struct ra__program *p = s->b->program;
    return pair->window.side == RA__WINDOW_B ? &p->next : &p->work;
}

static struct ra__step make_step(const struct stream *s, const struct pair *pair, enum ra__op op)
{
    return (struct ra__step){ .op = op,
                              .hop = s->pairs,
                              .block = pair->k == NONE ? NONE : s->b->rank,
                              .from = RA__NO_BUFFER,
                              .to = RA__NO_BUFFER,
                              .window = pair->window,
                              .unit = pair->unit };
}

/* Rows of a tensor that go from or to a window. */
static ra_status put_queries(struct stream *s, struct ra__step *step, enum ra__buffer tensor,
                             enum ra__buffer window, int width)
{
    const struct ra__end outside = { .buffer = tensor, .token = step->window.first, .step = 1 };
    const struct ra__end inside = { .buffer = window, .step = 1 };
    const bool load = step->op == RA__OP_LOAD;
    const struct ra__shape *shape = &s->b->input->shape;
    ra__use_buffer(s->b, window, ra__min(s->block, shape->q_len));
    return ra__put_piece(s->b, step,
                         (struct ra__piece){ .to = load ? inside : outside,
                                             .from = load ? outside : inside,
                                             .tokens = step->window.count,
                                             .heads = shape->q_heads,
                                             .width = width });
}

/* The same for keys; inside.number says where they start in each head of the buffer. */
static ra_status put_keys(struct stream *s, struct ra__step *step, enum ra__buffer tensor,
                          struct ra__end inside, struct ra__range positions, int width)
{
    const struct ra__end outside = { .buffer = tensor, .token = positions.lo, .step = 1 };
    const bool load = step->op == RA__OP_LOAD;
    const struct ra__shape *shape = &s->b->input->shape;
    ra__use_buffer(s->b, inside.buffer, ra__min(s->block, shape->k_len));
    return ra__put_piece(s->b, step,
                         (struct ra__piece){ .to = load ? inside : outside,
                                             .from = load ? outside : inside,
                                             .tokens = positions.hi - positions.lo,
                                             .heads = shape->kv_heads,
                                             .width = width });
}

static ra_status put_load_keys(struct stream *s, const struct pair *pair)
{
    const struct ra__shape *shape = &s->b->input->shape;
    struct ra__step step = make_step(s, pair, RA__OP_LOAD);
    struct ra__end inside = { .buffer = pair->keys,
                              .token = pair->seen.lo - keys_of(s, pair->k).lo,
                              .step = 1 };
    ra__begin_pieces(s->b, &step);
    RA__TRY(put_keys(s, &step, RA__K, inside, pair->seen, shape->dim));
    inside.number = shape->dim;
    RA__TRY(put_keys(s, &step, RA__V, inside, pair->seen, shape->value_dim));
    return ra__end_pieces(s->b, &step);
}

static ra_status put_clear(struct stream *s, const struct pair *pair, struct ra__piece piece)
{
    struct ra__step step = make_step(s, pair, RA__OP_GATHER);
    step.gather = RA__GATHER_CLEAR;
    piece.to.step = 1;
    piece.from.buffer = RA__NO_BUFFER;
    ra__begin_pieces(s->b, &step);
    RA__TRY(ra__put_piece(s->b, &step, piece));
    return ra__end_pieces(s->b, &step);
}

/* The steps of some pairs have taken `used` bytes so far; at most all pairs of blocks have some. */
static ra_status refuse_steps(const struct stream *s, size_t used, size_t limit)
{
    const double pairs = (double)s->q_blocks * (double)s->k_blocks;
    const double share = s->pairs > 0 && s->pairs < pairs ? s->pairs / pairs : 1.0;
    return ra__fail(RA_ERR_BUDGET,
                    "plan: a stream in blocks of %" PRId64
                    " has so many steps that these alone need up to %.0f bytes; the budget is "
                    "%zu bytes",
                    s->block, (double)used / share, limit);
}

/* Computing is one pair later than loading. */
static ra_status put_pair(struct stream *s, const struct pair *pair,
                          ra_status (*load)(struct stream *, const struct pair *),
                          ra_status (*compute)(struct stream *, const struct pair *))
{
    const struct pair before = s->pending;
    const size_t used = s->b->account->bytes[RA__FOR_BOOKKEEPING], limit = s->b->input->limit;
    if (limit && used > limit) return refuse_steps(s, used, limit);
    /* Backward, sums of dQ must be stored before they are loaded again. */
    const bool again = pair && before.unit && pair->of > 0 && pair->q == before.q;
    if (again) RA__TRY(compute(s, &before));
    if (pair) RA__TRY(load(s, pair));
    if (before.unit && !again) RA__TRY(compute(s, &before));
    s->pending = pair ? *pair : (struct pair){ .unit = 0 };
    s->pairs++;
    return RA_OK;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static ra_status load_forward(struct stream *s, const struct pair *pair)
{
    struct ra__step step = make_step(s, pair, RA__OP_LOAD);
    if (pair->k == NONE) return RA_OK;
    ra__begin_pieces(s->b, &step);
    if (pair->opens)
        RA__TRY(put_queries(s, &step, RA__Q, side_of(s, pair)->q, s->b->input->shape.dim));
    RA__TRY(ra__end_pieces(s->b, &step));
    return put_load_keys(s, pair);
}

static ra_status compute_forward(struct stream *s, const struct pair *pair)
{
    const struct ra__side *side = side_of(s, pair);
    const struct ra__shape *shape = &s->b->input->shape;
    struct ra__step step = make_step(s, pair, RA__OP_ATTEND);
    step.from = pair->keys;
    if (pair->k != NONE) RA__TRY(ra__put_window(s->b, step, keys_of(s, pair->k)));
    if (!pair->closes) return RA_OK;
    step.block = NONE;
    step.from = RA__NO_BUFFER;
    RA__TRY(ra__put_window(s->b, step, (struct ra__range){ 0, 0 }));
    step = make_step(s, pair, RA__OP_STORE);
    step.ends_unit = true;
    ra__begin_pieces(s->b, &step);
    RA__TRY(put_queries(s, &step, RA__OUT, side->out, shape->value_dim));
    RA__TRY(put_queries(s, &step, RA__LSE, side->lse, 1));
    return ra__end_pieces(s->b, &step);
}

static ra_status write_forward_unit(struct stream *s, int64_t q)
{
    struct pair pair = { .q = q, .k = NONE, .unit = (int)q + 1, .opens = true };
    int64_t left = 0;
    pair.window = window_of(s, q, (int)(q % 2));
    RA__TRY(find_ranges(s, q));
    for (int64_t k = 0; k < s->k_blocks; k++) left += is_seen(s, k);
    pair.closes = left == 0;
    if (left == 0) return put_pair(s, &pair, load_forward, compute_forward);
    for (int64_t k = 0; k < s->k_blocks; k++) {
        if (!is_seen(s, k)) continue;
        pair.k = k;
        pair.seen = s->ranges[k];
        pair.keys = ra__key_buffer(s->pairs);
        pair.closes = --left == 0;
        RA__TRY(put_pair(s, &pair, load_forward, compute_forward));
        pair.opens = false;
    }
    return RA_OK;
}

static ra_status write_forward(struct stream *s)
{
    for (int64_t q = 0; q < s->q_blocks; q++) RA__TRY(write_forward_unit(s, q));
    s->b->program->units = (int)s->q_blocks;
    return put_pair(s, NULL, load_forward, compute_forward);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* Where the sums of dQ are after `met` key blocks: over memory always in one place. */
static enum ra__buffer spill_after(const struct stream *s, int met)
{
    if (s->b->input->sourced) return met % 2 ? RA__SPILL_B : RA__SPILL_A;
    ra__use_buffer(s->b, RA__SPILL, s->b->input->shape.q_len);
    return RA__SPILL;
}

/* What delta is made of. */
static ra_status put_results(struct stream *s, struct ra__step *step, const struct ra__side *side)
{
    const int width = s->b->input->shape.value_dim;
    RA__TRY(put_queries(s, step, RA__OUT, side->out, width));
    RA__TRY(put_queries(s, step, RA__DOUT, side->dout, width));
    RA__TRY(put_queries(s, step, RA__LSE, side->lse, 1));
    RA__TRY(put_queries(s, step, RA__DLSE, side->dlse, 1));
    ra__use_buffer(s->b, side->delta, ra__min(s->block, s->b->input->shape.q_len));
    return RA_OK;
}

static ra_status load_backward(struct stream *s, const struct pair *pair)
{
    const struct ra__side *side = side_of(s, pair);
    const int dim = s->b->input->shape.dim;
    struct ra__step step = make_step(s, pair, RA__OP_LOAD);
    if (pair->opens && pair->q != NONE && pair->k != NONE) RA__TRY(put_load_keys(s, pair));
    if (pair->q == NONE || pair->k == NONE) return RA_OK;
    ra__begin_pieces(s->b, &step);
    RA__TRY(put_queries(s, &step, RA__Q, side->q, dim));
    RA__TRY(put_results(s, &step, side));
    if (pair->met > 0) RA__TRY(put_queries(s, &step, spill_after(s, pair->met), side->sum_q, dim));
    return ra__end_pieces(s->b, &step);
}

static ra_status clear_queries(struct stream *s, const struct pair *pair)
{
    const struct ra__side *side = side_of(s, pair);
    const struct ra__shape *shape = &s->b->input->shape;
    ra__use_buffer(s->b, side->sum_q, ra__min(s->block, shape->q_len));
    return put_clear(s, pair,
                     (struct ra__piece){ .to = { .buffer = side->sum_q },
                                         .tokens = pair->window.count,
                                         .heads = shape->q_heads,
                                         .width = shape->dim });
}

static ra_status clear_keys(struct stream *s, const struct pair *pair)
{
    const struct ra__shape *shape = &s->b->input->shape;
    const struct ra__range keys = keys_of(s, pair->k);
    ra__use_buffer(s->b, pair->sums, ra__min(s->block, shape->k_len));
    return put_clear(s, pair,
                     (struct ra__piece){ .to = { .buffer = pair->sums },
                                         .tokens = keys.hi - keys.lo,
                                         .heads = shape->kv_heads,
                                         .width = shape->dim + shape->value_dim });
}

/* The sums of the queries of a pair: they are continued later, or complete. */
static ra_status store_queries(struct stream *s, const struct pair *pair)
{
    struct ra__step step = make_step(s, pair, RA__OP_STORE);
    const bool complete = pair->met + 1 >= pair->of;
    step.ends_unit = pair->k == NONE;
    ra__begin_pieces(s->b, &step);
    RA__TRY(put_queries(s, &step, complete ? RA__DQ : spill_after(s, pair->met + 1),
                        side_of(s, pair)->sum_q, s->b->input->shape.dim));
    return ra__end_pieces(s->b, &step);
}

static ra_status store_keys(struct stream *s, const struct pair *pair)
{
    const struct ra__shape *shape = &s->b->input->shape;
    struct ra__step step = make_step(s, pair, RA__OP_STORE);
    struct ra__end inside = { .buffer = pair->sums, .step = 1 };
    step.ends_unit = true;
    ra__begin_pieces(s->b, &step);
    RA__TRY(put_keys(s, &step, RA__DK, inside, keys_of(s, pair->k), shape->dim));
    inside.number = shape->dim;
    RA__TRY(put_keys(s, &step, RA__DV, inside, keys_of(s, pair->k), shape->value_dim));
    return ra__end_pieces(s->b, &step);
}

static ra_status compute_pair(struct stream *s, const struct pair *pair)
{
    struct ra__step step = make_step(s, pair, RA__OP_DELTA);
    if (pair->met == 0) RA__TRY(clear_queries(s, pair));
    RA__TRY(ra__put_step(s->b, step));
    step = make_step(s, pair, RA__OP_GRADIENT);
    step.from = pair->keys;
    step.to = pair->sums;
    RA__TRY(ra__put_window(s->b, step, keys_of(s, pair->k)));
    return store_queries(s, pair);
}

static ra_status compute_backward(struct stream *s, const struct pair *pair)
{
    if (pair->k == NONE) { /* queries that see no key */
        RA__TRY(clear_queries(s, pair));
        return store_queries(s, pair);
    }
    if (pair->opens) RA__TRY(clear_keys(s, pair));
    if (pair->q != NONE) RA__TRY(compute_pair(s, pair));
    return pair->closes ? store_keys(s, pair) : RA_OK;
}

/* Before everything else, and only if they are wanted: the gradients of the sinks. */
static ra_status write_sinks(struct stream *s)
{
    for (int64_t q = 0; q < ra__max(s->q_blocks, 1); q++) {
        const struct pair pair = {
            .q = q, .k = NONE, .unit = RA__SINKS_UNIT, .window = window_of(s, q, (int)(q % 2))
        };
        struct ra__step step = make_step(s, &pair, RA__OP_LOAD);
        ra__begin_pieces(s->b, &step);
        RA__TRY(put_results(s, &step, side_of(s, &pair)));
        RA__TRY(ra__end_pieces(s->b, &step));
        RA__TRY(ra__put_step(s->b, make_step(s, &pair, RA__OP_DELTA)));
        RA__TRY(ra__put_step(s->b, make_step(s, &pair, RA__OP_SINKS)));
    }
    return RA_OK;
}

/* Which blocks meet, before units are written key block by key block. */
static ra_status find_meetings(struct stream *s)
{
    for (int64_t q = 0; q < s->q_blocks; q++) {
        RA__TRY(find_ranges(s, q));
        for (int64_t k = 0; k < s->k_blocks; k++) {
            if (!is_seen(s, k)) continue;
            const int64_t bit = k * s->q_blocks + q;
            s->met_by[bit / 64] |= UINT64_C(1) << bit % 64;
            s->of[q]++;
        }
    }
    return RA_OK;
}

static bool meets(const struct stream *s, int64_t q, int64_t k)
{
    const int64_t bit = k * s->q_blocks + q;
    return s->met_by[bit / 64] >> bit % 64 & 1;
}

static ra_status write_backward_unit(struct stream *s, int64_t k)
{
    struct pair pair = { .q = NONE,
                         .k = k,
                         .unit = (int)k + 1,
                         .opens = true,
                         .seen = keys_of(s, k),
                         .keys = ra__key_buffer((int)(k % 2)),
                         .sums = ra__sum_buffer((int)(k % 2)) };
    int64_t left = 0;
    for (int64_t q = 0; q < s->q_blocks; q++) left += meets(s, q, k);
    pair.closes = left == 0;
    if (left == 0) return put_pair(s, &pair, load_backward, compute_backward);
    for (int64_t q = 0; q < s->q_blocks; q++) {
        if (!meets(s, q, k)) continue;
        pair.q = q;
        pair.window = window_of(s, q, s->pairs);
        pair.met = s->met[q]++;
        pair.of = s->of[q];
        pair.closes = --left == 0;
        RA__TRY(put_pair(s, &pair, load_backward, compute_backward));
        pair.opens = false;
    }
    return RA_OK;
}

static ra_status write_backward(struct stream *s)
{
    int units = (int)s->k_blocks;
    RA__TRY(find_meetings(s));
    RA__TRY(write_sinks(s));
    for (int64_t k = 0; k < s->k_blocks; k++) RA__TRY(write_backward_unit(s, k));
    for (int64_t q = 0; q < s->q_blocks; q++) {
        if (s->of[q] > 0) continue;
        const struct pair pair = { .q = q,
                                   .k = NONE,
                                   .unit = ++units,
                                   .opens = true,
                                   .closes = true,
                                   .window = window_of(s, q, s->pairs) };
        RA__TRY(put_pair(s, &pair, load_backward, compute_backward));
    }
    s->b->program->units = units;
    return put_pair(s, NULL, load_backward, compute_backward);
}

/* ---- The strategy ---------------------------------------------------------------------------- */

static void set_sides(struct ra__program *program, const struct stream *s)
{
    struct ra__side side = program->caller;
    side.queries = ra__min(s->block, side.queries);
    side.keys = ra__min(s->block, side.keys);
    side.q = RA__DEVICE_Q;
    side.out = RA__DEVICE_OUT;
    side.lse = RA__DEVICE_LSE;
    side.dout = RA__DEVICE_DOUT;
    side.dlse = RA__DEVICE_DLSE;
    side.delta = RA__DELTA;
    side.sum_q = RA__SUM_Q;
    program->work = side;
    side.q = RA__NEXT_Q;
    side.out = RA__NEXT_OUT;
    side.lse = RA__NEXT_LSE;
    side.dout = RA__NEXT_DOUT;
    side.dlse = RA__NEXT_DLSE;
    side.delta = RA__NEXT_DELTA;
    side.sum_q = RA__NEXT_SUM_Q;
    program->next = side;
}

static ra_status write_with(struct stream *s, size_t q_blocks, size_t k_blocks, bool backward)
{
    s->ranges = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, k_blocks + 1, sizeof *s->ranges);
    if (backward) {
        s->met_by = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, q_blocks * k_blocks / 64 + 1,
                                    sizeof *s->met_by);
        s->met = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, q_blocks + 1, sizeof *s->met);
        s->of = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, q_blocks + 1, sizeof *s->of);
    }
    if (!s->ranges || (backward && !(s->met_by && s->met && s->of)))
        return ra__fail(RA_ERR_MEMORY, "plan: %zu x %zu blocks of a stream", q_blocks, k_blocks);
    return backward ? write_backward(s) : write_forward(s);
}

static ra_status write_stream(struct ra__builder *b, bool backward)
{
    enum { MOST_BLOCKS = 1 << 20 };
    const struct ra__shape *shape = &b->input->shape;
    struct stream s = { .b = b, .block = b->input->block };
    s.q_blocks = ra__ceil_div(shape->q_len, s.block);
    s.k_blocks = ra__ceil_div(shape->k_len, s.block);
    if (s.q_blocks > MOST_BLOCKS || s.k_blocks > MOST_BLOCKS)
        return ra__fail(RA_ERR_ARGUMENT,
                        "plan: a stream of %" PRId64 " blocks; there may be %d: use a larger "
                        "memory budget",
                        ra__max(s.q_blocks, s.k_blocks), MOST_BLOCKS);
    set_sides(b->program, &s);
    const ra_status status = write_with(&s, (size_t)s.q_blocks, (size_t)s.k_blocks, backward);
    ra__free(s.ranges);
    ra__free(s.met_by);
    ra__free(s.met);
    ra__free(s.of);
    return status;
}

static ra_status stream_forward(struct ra__builder *b) { return write_stream(b, false); }
static ra_status stream_backward(struct ra__builder *b) { return write_stream(b, true); }

const struct ra__strategy ra__strategy_stream = {
    .name = "stream",
    .summary = "one rank: blocks pass through a window of memory; for tensors that do not fit",
    .streams = true,
    .takes_args = true,
    .forward = stream_forward,
    .backward = stream_backward,
};

ra_status ra__stream_parse(const char *args, struct ra__plan_input *input)
{
    const int64_t most = INT64_C(1) << 40;
    int64_t block = 0;
    const char *at = args;
    for (; at && *at >= '0' && *at <= '9' && block < most; at++) block = block * 10 + (*at - '0');
    if (args && (at == args || *at || block < 1 || block > most))
        return ra__fail(RA_ERR_ARGUMENT, "strategy stream: \"%.40s\" is not a number of positions",
                        args);
    if (input->ranks > 1)
        return ra__fail(RA_ERR_UNSUPPORTED, "strategy stream: one rank, but there are %d",
                        input->ranks);
    input->block = block;
    return RA_OK;
}

/* ---- The size of a block --------------------------------------------------------------------- */

/* Bytes of all windows, for each position of a block. */
static double bytes_per_position(const struct ra__plan_input *input)
{
    const struct ra__shape *s = &input->shape;
    const double e = (double)ra__dtype_bytes(s->dtype), q = s->q_heads, kv = s->kv_heads;
    const double widths = s->dim + s->value_dim;
    double bytes = 2 * (q * widths * e + q * 4) + q * (s->value_dim + 2) * 4 + 2 * kv * widths * e;
    if (input->backward) bytes += 2 * (q * (s->value_dim * e + 8 + s->dim * 4.0) + kv * widths * 4);
    return bytes * (double)s->batch;
}

/* Blocks begin where the pattern begins again, so that few rows span blocks; and at multiples of
 * the key block of kernels. */
static int64_t granule_of(const struct ra__plan_input *input, int64_t most)
{
    enum { KEY_BLOCK = 256 };
    const struct ra__pattern_kind *kind = input->pattern->kind;
    const int64_t period = ra__max(kind->period ? kind->period(input->pattern) : 0, 1);
    const int64_t both = ra__common_multiple(period, KEY_BLOCK);
    return both <= most ? both : KEY_BLOCK <= most ? KEY_BLOCK : 1;
}

static void set_block(struct ra__plan_input *input, int64_t most)
{
    const int64_t n = ra__max(ra__max(input->shape.q_len, input->shape.k_len), 1);
    most = ra__max(ra__min(most, n), 1);
    const int64_t granule = granule_of(input, most);
    most = most / granule * granule;
    const int64_t each = ra__ceil_div(n, ra__ceil_div(n, most)); /* about equal blocks */
    input->block = ra__min(ra__ceil_div(each, granule) * granule, most);
}

void ra__stream_choose_block(struct ra__plan_input *input, size_t bytes)
{
    /* Loads and stores overlap with computing only if there are several blocks. */
    enum { BLOCKS = 8, LARGE_ENOUGH = 4096 };
    const int64_t n = ra__max(input->shape.q_len, input->shape.k_len);
    const double most = (double)bytes / bytes_per_position(input);
    const int64_t several = ra__max(ra__ceil_div(n, BLOCKS), LARGE_ENOUGH);
    set_block(input, most < (double)several ? (int64_t)most : several);
}
