/* SPDX-License-Identifier: Apache-2.0 */
/* attend.c - ATTEND steps: rows split by the buffer that holds their keys, and folded into families
 * if they repeat with constant advances. */
#include <limits.h>

#include "plan/builder.h"

enum { WHOLE = -1 }; /* as half: all queries */

/* Which keys a step works on, and how they are stored. */
struct source {
    int hop, owner;
    enum { AS_IN_SHARD, PACKED, GATHERED } stored;
    int half; /* 0 or 1: only the first or the second half of the queries of each row */
};

/* ---- Keys of a row --------------------------------------------------------------------------- */

static ra_status add_keys(struct ra__builder *b, struct ra__key_run keys)
{
    if (b->found_count == b->found_room) {
        int room = b->found_room ? 2 * b->found_room : 64;
        struct ra__key_run *larger = ra__alloc(NULL, RA__FOR_BOOKKEEPING,
                                               (size_t)room * sizeof *larger);
        if (!larger) return ra__fail(RA_ERR_MEMORY, "plan: %d key runs of a row", room);
        for (int i = 0; i < b->found_count; i++) larger[i] = b->found[i];
        ra__free(b->found);
        b->found = larger;
        b->found_room = room;
    }
    b->found[b->found_count++] = keys;
    return RA_OK;
}

/* The first piece that can hold tokens from `token` on of this KV head. */
static int find_piece(const struct ra__needs *needs, int kv_head, int64_t token)
{
    int low = 0, high = needs->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct ra__needed *piece = &needs->pieces[middle];
        bool before = piece->kv_head != RA__ALL_HEADS && piece->kv_head < kv_head;
        bool same = piece->kv_head == RA__ALL_HEADS || piece->kv_head == kv_head;
        if (before || (same && piece->max_last < token)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Keys that are stored in pieces: where they are in the buffer. */
static ra_status add_packed(struct ra__builder *b, const struct ra__needs *needs, int kv_head,
                            const struct ra__key_run *keys)
{
    ra_run wanted = { keys->token, keys->token_step, keys->count };
    for (int i = find_piece(needs, kv_head, wanted.start); i < needs->count; i++) {
        const struct ra__needed *piece = &needs->pieces[i];
        bool same = piece->kv_head == RA__ALL_HEADS || piece->kv_head == kv_head;
        if (!same || piece->tokens.start > ra__run_last(wanted)) break;
        ra_run shared = ra__run_intersect(piece->tokens, wanted);
        if (shared.count == 0) continue;
        struct ra__key_run part = *keys;
        part.token = piece->at + (shared.start - piece->tokens.start) / piece->tokens.step;
        part.token_step = ra__max(shared.step / piece->tokens.step, 1);
        part.pos += (shared.start - wanted.start) / wanted.step * keys->pos_step;
        part.pos_step = ra__max(shared.step / wanted.step, 1) * keys->pos_step;
        part.count = shared.count;
        RA__TRY(add_keys(b, part));
    }
    return RA_OK;
}

/* Keys that are stored by position. A buffer ends where no query of this rank sees a key: kernels
 * must not be told of keys after that, which they may add 0 to. */
static ra_status add_gathered(struct ra__builder *b, const struct ra__tile *tile)
{
    const struct ra__range here = b->plan->gathered;
    int64_t skipped;
    ra_run keys = tile->keys;
    if (here.lo < here.hi) keys = ra__run_clip(keys, here.lo, here.hi, &skipped);
    if (keys.count == 0) return RA_OK;
    const int64_t token_step = keys.count > 1 ? keys.step : 1;
    return add_keys(b, (struct ra__key_run){ keys.start - here.lo, token_step, keys.start,
                                             keys.step, keys.count, tile->band });
}

static ra_status add_tile(struct ra__builder *b, const struct source *from,
                          const struct ra__row *row, const struct ra__tile *tile)
{
    const struct ra__shape *shape = &b->input->shape;
    struct ra__key_run keys;
    if (from->stored == GATHERED) return add_gathered(b, tile);
    int kv_head = (int)(row->heads.start / (shape->q_heads / shape->kv_heads));
    int64_t cursor = 0;
    while (ra__layout_next_keys(b->input->k_layout, from->owner, tile, &cursor, &keys))
        RA__TRY(from->stored == PACKED ? add_packed(b, &b->incoming[from->owner], kv_head, &keys)
                                       : add_keys(b, keys));
    return RA_OK;
}

/* ---- Families -------------------------------------------------------------------------------- */

static bool same_shape(const struct ra__plan_row *a, const struct ra__plan_row *b)
{
    return a->q_token_step == b->q_token_step && a->q_count == b->q_count &&
           a->q_step == b->q_step && a->heads.start == b->heads.start &&
           a->heads.step == b->heads.step && a->heads.count == b->heads.count &&
           a->key_count == b->key_count && a->first == b->first && a->last == b->last;
}

static bool same_keys(const struct ra__key_run *a, const struct ra__key_run *b)
{
    return a->token_step == b->token_step && a->pos_step == b->pos_step && a->count == b->count &&
           a->band.left == b->band.left && a->band.right == b->band.right;
}

/* Is the new row the next one of the family? The second row of a family determines its advances. */
static bool extends(const struct ra__program *p, const struct ra__plan_row *family,
                    const struct ra__plan_row *row, const struct ra__key_run *keys)
{
    int64_t n = family->repeat;
    if (!same_shape(family, row)) return false;
    if (n > 1 && (row->q_token != family->q_token + n * family->q_token_advance ||
                  row->q_pos != family->q_pos + n * family->q_pos_advance))
        return false;
    for (int i = 0; i < row->key_count; i++) {
        const struct ra__key_run *base = &p->keys[family->first_key + i];
        struct ra__key_run next = ra__key_run_at(base, &p->advances[family->first_key + i], n);
        if (!same_keys(base, &keys[i])) return false;
        if (n > 1 && (next.token != keys[i].token || next.pos != keys[i].pos)) return false;
    }
    return true;
}

static void extend(struct ra__program *p, struct ra__plan_row *family,
                   const struct ra__plan_row *row, const struct ra__key_run *keys)
{
    if (family->repeat++ > 1) return;
    family->q_token_advance = row->q_token - family->q_token;
    family->q_pos_advance = row->q_pos - family->q_pos;
    for (int i = 0; i < row->key_count; i++) {
        const struct ra__key_run *base = &p->keys[family->first_key + i];
        p->advances[family->first_key + i] = (struct ra__advance){ keys[i].token - base->token,
                                                                   keys[i].pos - base->pos };
    }
}

static ra_status append_keys(struct ra__builder *b, const struct ra__key_run *keys, int count)
{
    struct ra__program *p = b->program;
    for (int i = 0; i < count; i++) {
        size_t used = (size_t)p->key_count;
        if (p->key_count == INT_MAX) return ra__fail(RA_ERR_MEMORY, "plan: too many key runs");
        void *runs = ra__grow(b->account, p->keys, used, sizeof *p->keys);
        if (!runs) return ra__fail(RA_ERR_MEMORY, "plan: %d key runs", p->key_count);
        p->keys = runs;
        void *advances = ra__grow(b->account, p->advances, used, sizeof *p->advances);
        if (!advances) return ra__fail(RA_ERR_MEMORY, "plan: %d key runs", p->key_count);
        p->advances = advances;
        p->keys[used] = keys[i];
        p->advances[used] = (struct ra__advance){ 0, 0 };
        p->key_count++;
    }
    return RA_OK;
}

/* Appends a row and the keys in b->found to the step, or to the newest family of the row's
 * ordinal. */
static ra_status put_row(struct ra__builder *b, struct ra__plan_row row, int64_t ordinal)
{
    struct ra__program *p = b->program;
    int *newest = ordinal < RA__ORDINALS ? &b->newest[ordinal] : NULL;
    while (newest && b->newest_count <= ordinal) b->newest[b->newest_count++] = -1;
    if (newest && *newest >= 0 && extends(p, &p->rows[*newest], &row, b->found)) {
        extend(p, &p->rows[*newest], &row, b->found);
        return RA_OK;
    }
    if (newest) *newest = p->row_count;
    row.first_key = p->key_count;
    RA__TRY(append_keys(b, b->found, b->found_count));
    void *rows = p->row_count < INT_MAX
                     ? ra__grow(b->account, p->rows, (size_t)p->row_count, sizeof *p->rows)
                     : NULL;
    if (!rows) return ra__fail(RA_ERR_MEMORY, "plan: %d rows", p->row_count);
    p->rows = rows;
    p->rows[p->row_count++] = row;
    return RA_OK;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct writing {
    struct ra__builder *builder;
    struct source source;
    bool empty; /* rows without keys, and no others */
};

/* State of rows that span hops. */
static void use_state(struct ra__builder *b)
{
    const enum ra__buffer state[] = { RA__STATE_M, RA__STATE_L, RA__STATE_ACC };
    for (int i = 0; i < RA__COUNT(state); i++)
        ra__use_buffer(b, state[i], b->program->work.queries);
}

static ra_status write_row(void *context, const struct ra__shard_row *shard_row)
{
    struct writing *writing = context;
    struct ra__builder *b = writing->builder;
    const struct ra__row *row = shard_row->row;
    const struct source *from = &writing->source;
    const bool forward = b->program->direction == RA__FORWARD;
    int64_t middle = row->q.count / 2;
    int64_t lo = from->half == 1 ? middle : 0, hi = from->half == 0 ? middle : row->q.count;
    b->found_count = 0;
    if (lo == hi) return RA_OK;
    if (writing->empty ? b->first_hop[shard_row->index] >= 0 : !ra__row_sees(b, row, from->owner))
        return RA_OK;
    for (int i = 0; i < row->tile_count && !writing->empty; i++)
        RA__TRY(add_tile(b, from, row, &row->tiles[i]));
    struct ra__plan_row out = {
        .q_token = shard_row->q_token + lo * shard_row->q_token_step,
        .q_token_step = shard_row->q_token_step,
        .q_count = hi - lo,
        .q_pos = row->q.start + lo * row->q.step,
        .q_step = row->q.step,
        .heads = row->heads,
        .key_count = b->found_count,
        .repeat = 1,
        .first = writing->empty || (forward && b->first_hop[shard_row->index] == from->hop),
        .last = writing->empty || (forward && b->last_hop[shard_row->index] == from->hop),
    };
    if (forward && !(out.first && out.last)) use_state(b);
    return put_row(b, out, shard_row->ordinal);
}

/* Appends the step of the rows from step.first_row on, if there are any. */
static ra_status put_rows(struct ra__builder *b, struct ra__step step)
{
    step.op = b->program->direction == RA__FORWARD ? RA__OP_ATTEND : RA__OP_GRADIENT;
    step.row_count = b->program->row_count - step.first_row;
    if (step.row_count == 0) return RA_OK;
    RA__TRY(ra__put_step(b, step));
    if (step.op == RA__OP_GRADIENT || b->program->split.ranges == 1) return RA_OK;
    ra__use_buffer(b, RA__SPLIT_STATE, b->program->split.ranges * b->program->work.queries);
    step.op = RA__OP_MERGE;
    return ra__put_step(b, step);
}

static ra_status put_attend(struct ra__builder *b, struct ra__step step, struct source source,
                            bool empty)
{
    struct writing writing = { b, source, empty };
    step.first_row = b->program->row_count;
    if (source.owner != RA__ANYBODY && !b->sees[source.owner]) return RA_OK;
    b->newest_count = 0;
    RA__TRY(ra__rows_of_rank(b, b->rank, (struct ra__shard_row_sink){ write_row, &writing }));
    return put_rows(b, step);
}

ra_status ra__put_attend_half(struct ra__builder *b, int hop, int owner, enum ra__buffer from,
                              enum ra__buffer to, int half)
{
    struct ra__step step = { .hop = hop, .block = owner, .from = from, .to = to };
    bool packed = b->direct && owner != b->rank;
    return put_attend(b, step, (struct source){ hop, owner, packed ? PACKED : AS_IN_SHARD, half },
                      false);
}

ra_status ra__put_attend(struct ra__builder *b, int hop, int owner, enum ra__buffer from,
                         enum ra__buffer to)
{
    return ra__put_attend_half(b, hop, owner, from, to, WHOLE);
}

ra_status ra__put_attend_gathered(struct ra__builder *b, enum ra__buffer from, enum ra__buffer to)
{
    struct ra__step step = { .block = -1, .from = from, .to = to };
    return put_attend(b, step, (struct source){ 0, RA__ANYBODY, GATHERED, WHOLE }, false);
}

ra_status ra__put_empty_rows(struct ra__builder *b)
{
    struct ra__step step = { .block = -1 };
    return put_attend(b, step, (struct source){ 0, RA__ANYBODY, GATHERED, WHOLE }, true);
}

/* ---- Windows of a stream --------------------------------------------------------------------- */

struct ra__range ra__row_keys_range(const struct ra__row *row)
{
    struct ra__range seen = { 0, 0 };
    for (int i = 0; i < row->tile_count; i++) {
        const ra_run keys = ra__row_keys(row, &row->tiles[i]);
        if (keys.count == 0) continue;
        const bool none = seen.lo == seen.hi;
        seen.lo = none ? keys.start : ra__min(seen.lo, keys.start);
        seen.hi = ra__max(seen.hi, ra__run_last(keys) + 1);
    }
    return seen;
}

struct window_writing {
    struct ra__builder *builder;
    struct ra__window window;
    struct ra__range keys; /* empty: rows without keys, and no others */
};

/* Those keys of a tile that are in the buffer. */
static ra_status add_window_keys(struct ra__builder *b, struct ra__range keys,
                                 const struct ra__row *row, const struct ra__tile *tile)
{
    int64_t skipped;
    const ra_run seen = ra__row_keys(row, tile);
    const ra_run here = ra__run_clip(seen, keys.lo, keys.hi, &skipped);
    const int64_t step = here.count > 1 ? here.step : 1;
    if (here.count == 0) return RA_OK;
    return add_keys(b, (struct ra__key_run){ here.start - keys.lo, step, here.start, here.step,
                                             here.count, tile->band });
}

static ra_status write_window_row(void *context, const struct ra__row *row)
{
    const struct window_writing *writing = context;
    struct ra__builder *b = writing->builder;
    const struct ra__range keys = writing->keys, seen = ra__row_keys_range(row);
    const bool forward = b->program->direction == RA__FORWARD, empty = keys.lo == keys.hi;
    b->found_count = 0;
    if (empty != (seen.lo == seen.hi)) return RA_OK;
    for (int i = 0; i < row->tile_count && !empty; i++)
        RA__TRY(add_window_keys(b, keys, row, &row->tiles[i]));
    if (!empty && b->found_count == 0) return RA_OK;
    struct ra__plan_row out = {
        .q_token = row->query - writing->window.first,
        .q_token_step = row->q.count > 1 ? row->q.step : 1,
        .q_count = row->q.count,
        .q_pos = row->q.start,
        .q_step = row->q.step,
        .heads = row->heads,
        .key_count = b->found_count,
        .repeat = 1,
        .first = empty || (forward && seen.lo >= keys.lo),
        .last = empty || (forward && seen.hi <= keys.hi),
    };
    if (forward && !(out.first && out.last)) use_state(b);
    return put_row(b, out, row->ordinal);
}

ra_status ra__put_window(struct ra__builder *b, struct ra__step step, struct ra__range keys)
{
    struct window_writing writing = { b, step.window, keys };
    step.first_row = b->program->row_count;
    b->newest_count = 0;
    RA__TRY(
        ra__rows_of_window(b, &step.window, (struct ra__row_sink){ write_window_row, &writing }));
    return put_rows(b, step);
}

/* ---- First and last -------------------------------------------------------------------------- */

/* Hops at which the row sees keys, and whose they are. */
static void find_hops(struct ra__builder *b, const struct ra__row *row, int *first, int *last)
{
    struct ra__key_run keys;
    for (int i = 0; i < row->tile_count; i++) {
        struct ra__tile seen = { ra__row_keys(row, &row->tiles[i]), row->tiles[i].band, false };
        int64_t cursor = -1;
        int owner;
        if (seen.keys.count == 0) continue;
        while (ra__next_owner(b, &seen, &cursor, &owner, &keys)) {
            int hop = (b->rank - owner + b->ranks) % b->ranks;
            b->sees[owner] = true;
            if (*first < 0 || hop < *first) *first = hop;
            if (hop > *last) *last = hop;
        }
    }
}

static ra_status find_row_hops(void *context, const struct ra__shard_row *shard_row)
{
    struct ra__builder *b = context;
    size_t count = (size_t)b->row_count;
    int *first = ra__grow(NULL, b->first_hop, count, sizeof *first);
    if (first) b->first_hop = first;
    int *last = ra__grow(NULL, b->last_hop, count, sizeof *last);
    if (last) b->last_hop = last;
    if (!first || !last) return ra__fail(RA_ERR_MEMORY, "plan: %d rows", b->row_count);
    first[count] = last[count] = -1;
    if (!b->input->strategy->gathers) find_hops(b, shard_row->row, &first[count], &last[count]);
    else if (ra__row_sees(b, shard_row->row, RA__ANYBODY)) first[count] = last[count] = 0;
    b->row_count++;
    return RA_OK;
}

ra_status ra__find_hops(struct ra__builder *b)
{
    b->sees = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)b->ranks, sizeof *b->sees);
    if (!b->sees) return ra__fail(RA_ERR_MEMORY, "plan: owners of %d blocks", b->ranks);
    return ra__rows_of_rank(b, b->rank, (struct ra__shard_row_sink){ find_row_hops, b });
}
