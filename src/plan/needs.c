/* SPDX-License-Identifier: Apache-2.0 */
/* needs.c - exactly which tokens of a block a reader sees: tokens are marked bit by bit, per KV
 * head if these differ, and a left-to-right search turns the marks into few pieces. Owner and
 * reader both compute it in the same way, so they agree without a message. */
#include <inttypes.h>

#include "plan/builder.h"

/* A bit per token of a block, `heads` times. */
struct marks {
    uint64_t *bits;
    int64_t tokens;
    int heads; /* 1: all KV heads alike */
};

static int64_t words_of(int64_t tokens) { return (tokens + 63) / 64; }

static void mark(const struct marks *marks, int head, const struct ra__key_run *keys)
{
    uint64_t *bits = marks->bits + head * words_of(marks->tokens);
    int64_t token = keys->token, end = keys->token + keys->count;
    if (keys->token_step != 1) {
        for (int64_t i = 0; i < keys->count; i++, token += keys->token_step)
            bits[token / 64] |= UINT64_C(1) << token % 64;
        return;
    }
    for (; token < end && token % 64; token++) bits[token / 64] |= UINT64_C(1) << token % 64;
    for (; token + 64 <= end; token += 64) bits[token / 64] = UINT64_MAX;
    for (; token < end; token++) bits[token / 64] |= UINT64_C(1) << token % 64;
}

/* The next marked token from `token` on; `tokens` if there is none. */
static int64_t next_marked(const uint64_t *bits, int64_t token, int64_t tokens)
{
    if (token >= tokens) return tokens;
    uint64_t word = bits[token / 64] >> token % 64;
    if (word) return token + __builtin_ctzll(word);
    for (int64_t w = token / 64 + 1; w < words_of(tokens); w++)
        if (bits[w]) return w * 64 + __builtin_ctzll(bits[w]);
    return tokens;
}

/* ---- From marks to pieces -------------------------------------------------------------------- */

static ra_status add_piece(struct ra__needs *needs, int kv_head, ra_run tokens)
{
    struct ra__needed *pieces = ra__grow(NULL, needs->pieces, (size_t)needs->count, sizeof *pieces);
    if (!pieces) return ra__fail(RA_ERR_MEMORY, "plan: %d pieces", needs->count);
    needs->pieces = pieces;
    const struct ra__needed *before = needs->count ? &pieces[needs->count - 1] : NULL;
    int64_t max_last = before && before->kv_head == kv_head ? before->max_last : 0;
    pieces[needs->count++] = (struct ra__needed){ .kv_head = kv_head,
                                                  .tokens = tokens,
                                                  .at = needs->tokens,
                                                  .max_last = ra__max(max_last,
                                                                      ra__run_last(tokens)) };
    needs->tokens += tokens.count;
    return RA_OK;
}

static bool is_marked(const uint64_t *bits, int64_t token)
{
    return bits[token / 64] >> token % 64 & 1;
}

/* How many marked tokens there are at distance `step` from `token` on. */
static int64_t length_of(const uint64_t *bits, int64_t tokens, int64_t token, int64_t step)
{
    int64_t count = 1;
    while (token + count * step < tokens && is_marked(bits, token + count * step)) count++;
    return count;
}

/* The longest run of marked tokens from `token` on whose second token is one of the next few. Heads
 * of one KV head may need 0, 1, 4, 5, 8, 9, ...: two runs of step 4 are better than many pairs. */
static ra_run longest_run(const uint64_t *bits, int64_t tokens, int64_t token)
{
    enum { TRIES = 16, LONG_ENOUGH = 16 };
    ra_run best = { token, 1, 1 };
    int64_t next = token;
    for (int i = 0; i < TRIES; i++) {
        next = next_marked(bits, next + 1, tokens);
        if (next == tokens) break;
        int64_t count = length_of(bits, tokens, token, next - token);
        if (count > best.count) best = (ra_run){ token, next - token, count };
        if (i == 0 && best.step == 1 && best.count >= LONG_ENOUGH) break;
    }
    return best;
}

/* Marked tokens as runs; clears their marks. */
static ra_status add_head(struct ra__needs *needs, const struct marks *marks, int head)
{
    uint64_t *bits = marks->bits + head * words_of(marks->tokens);
    int kv_head = marks->heads == 1 ? RA__ALL_HEADS : head;
    for (int64_t token = 0; (token = next_marked(bits, token, marks->tokens)) < marks->tokens;) {
        ra_run run = longest_run(bits, marks->tokens, token);
        for (int64_t i = 0; i < run.count; i++) {
            int64_t taken = run.start + i * run.step;
            bits[taken / 64] &= ~(UINT64_C(1) << taken % 64);
        }
        RA__TRY(add_piece(needs, kv_head, run));
    }
    return RA_OK;
}

static ra_status add_marks(struct ra__needs *needs, const struct marks *marks)
{
    for (int head = 0; head < marks->heads; head++) RA__TRY(add_head(needs, marks, head));
    return RA_OK;
}

/* ---- From rows to marks ---------------------------------------------------------------------- */

/* Marks what the rows of a reader see: of all blocks, or of that of `first` alone. */
struct reading {
    const struct ra__builder *builder;
    int reader, first, count;
    struct marks *marks; /* [count] */
};

/* Marks keys for the KV heads of a row. */
static void mark_keys(const struct reading *reading, const struct ra__row *row, int owner,
                      const struct ra__key_run *keys)
{
    const struct ra__shape *shape = &reading->builder->input->shape;
    const struct marks *marks = &reading->marks[owner - reading->first];
    int64_t group = shape->q_heads / shape->kv_heads, done = -1;
    if (marks->heads == 1) {
        mark(marks, 0, keys);
        return;
    }
    for (int64_t i = 0; i < row->heads.count; i++) {
        int64_t kv_head = (row->heads.start + i * row->heads.step) / group;
        if (kv_head != done) mark(marks, (int)kv_head, keys);
        done = kv_head;
    }
}

static void mark_tile(const struct reading *reading, const struct ra__row *row,
                      const struct ra__tile *tile)
{
    const ra_layout *layout = reading->builder->input->k_layout;
    struct ra__tile seen = { ra__row_keys(row, tile), tile->band, false };
    struct ra__key_run keys;
    int64_t cursor = reading->count == 1 ? 0 : -1;
    int owner = reading->first;
    if (seen.keys.count == 0) return;
    while (reading->count == 1 ? ra__layout_next_keys(layout, owner, &seen, &cursor, &keys)
                               : ra__next_owner(reading->builder, &seen, &cursor, &owner, &keys))
        if (owner != reading->reader) mark_keys(reading, row, owner, &keys);
}

static ra_status mark_row(void *context, const struct ra__shard_row *row)
{
    const struct reading *reading = context;
    for (int i = 0; i < row->row->tile_count; i++)
        mark_tile(reading, row->row, &row->row->tiles[i]);
    return RA_OK;
}

/* Marks, then pieces, of all `count` blocks. */
static ra_status read_blocks(const struct ra__builder *b, struct reading *reading,
                             struct ra__needs *needs)
{
    int heads = b->plan->by_head ? b->input->shape.kv_heads : 1;
    int64_t words = 0;
    for (int n = 0; n < reading->count; n++)
        words += words_of(ra__block_tokens(b, reading->first + n)) * heads;
    uint64_t *bits = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)words, sizeof *bits);
    if (!bits) return ra__fail(RA_ERR_MEMORY, "plan: marks of %" PRId64 " rows", words * 64);
    uint64_t *next = bits;
    for (int n = 0; n < reading->count; n++) {
        int64_t tokens = ra__block_tokens(b, reading->first + n);
        reading->marks[n] = (struct marks){ next, tokens, heads };
        next += words_of(tokens) * heads;
    }
    ra_status status = ra__rows_of_rank(b, reading->reader,
                                        (struct ra__shard_row_sink){ mark_row, reading });
    for (int n = 0; n < reading->count && status == RA_OK; n++)
        status = add_marks(&needs[n], &reading->marks[n]);
    ra__free(bits);
    return status;
}

static ra_status find_all(struct ra__builder *b, struct marks *marks)
{
    struct reading mine = { b, b->rank, 0, b->ranks, marks };
    RA__TRY(read_blocks(b, &mine, b->incoming));
    for (int reader = 0; reader < b->ranks; reader++) {
        struct reading theirs = { b, reader, b->rank, 1, marks };
        if (reader != b->rank) RA__TRY(read_blocks(b, &theirs, &b->outgoing[reader]));
    }
    return RA_OK;
}

ra_status ra__find_needs(struct ra__builder *b)
{
    size_t ranks = (size_t)b->ranks;
    struct marks *marks = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *marks);
    b->incoming = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *b->incoming);
    b->outgoing = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *b->outgoing);
    ra_status status = marks && b->incoming && b->outgoing
                           ? RA_OK
                           : ra__fail(RA_ERR_MEMORY, "plan: needs of %d ranks", b->ranks);
    if (status == RA_OK && b->ranks > 1) status = find_all(b, marks);
    ra__free(marks);
    return status;
}

void ra__needs_clear(struct ra__needs *needs, int count)
{
    for (int i = 0; needs && i < count; i++) ra__free(needs[i].pieces);
    ra__free(needs);
}
