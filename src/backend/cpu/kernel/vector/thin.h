/* SPDX-License-Identifier: Apache-2.0 */
/* thin.h - the products of a job of few query rows, as in decoding, without panels: keys and values
 * are read in place, and all rows use them while they are in registers. Written with the operations
 * of an ISA's vec.h and the operands of operand_*.h; knows nothing of the softmax.
 *
 * Sums are those of gemm.h to the bit: from 0, in the order of t, one operand_dot() each. A weight
 * is multiplied only with values that its row sees, so nothing hidden from a row can reach it. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_THIN_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_THIN_H

#include "backend/cpu/kernel/vector/pack.h"
#include "backend/cpu/kernel/vector/rows.h"

enum {
    THIN_TILE = 4,   /* most rows at a time */
    THIN_GROUPS = 2, /* most squares of keys at a time */
    THIN_VECS = 8,   /* most vectors of values at a time */
    VEC_BYTES = sizeof(vec),
    LINE_BYTES = 64 /* of a cache line */
};

/* The keys of a block, or their values, in a tensor. */
struct thin_rows {
    const char *data;
    /* in bytes: the offset of column 0, which may be before the tensor, and from column to
     * column */
    int64_t first, step;
    int numbers, bytes; /* of a row */
};

static struct thin_rows thin_rows(ra_dtype dtype, const struct ra__matrix *from, int numbers,
                                  const struct key_block *block)
{
    const struct ra__key_run *run = block->run;
    const int element = (int)ra__dtype_bytes(dtype);
    return (struct thin_rows){ .data = from->data,
                               .first = (run->token + block->first * run->token_step) *
                                        from->row_stride * element,
                               .step = run->token_step * from->row_stride * element,
                               .numbers = numbers,
                               .bytes = numbers * element };
}

static inline const char *thin_row(const struct thin_rows *rows, int column)
{
    return rows->data + (rows->first + column * rows->step);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Keys to be prefetched, in the order of memory. Squares read them in another order, which no
 * hardware prefetcher follows; values, read token by token, need it only if tokens are not
 * adjacent. On Zen 4 this doubles the speed of decoding. A distance of 64 to 256 keys makes little
 * difference; prefetching into the L1 cache, or every second line, is slower. */
struct thin_prefetch {
    const char *row;
    int64_t step;
    int at, bytes; /* offset in the token; its length */
    int64_t left;  /* tokens */
};

enum { PREFETCH_KEYS = 128 }; /* keys */

static struct thin_prefetch thin_prefetch_from(const struct thin_rows *rows, int column,
                                               int64_t count)
{
    return (struct thin_prefetch){ .row = count > 0 ? thin_row(rows, column) : NULL,
                                   .step = rows->step,
                                   .bytes = rows->bytes,
                                   .left = count };
}

/* Prefetches the next cache line. */
static inline __attribute__((always_inline)) void prefetch_line(struct thin_prefetch *prefetch)
{
    if (prefetch->left <= 0) return;
    __builtin_prefetch(prefetch->row + prefetch->at, 0, 2);
    prefetch->at += LINE_BYTES;
    if (prefetch->at < prefetch->bytes) return;
    prefetch->at = 0;
    if (--prefetch->left > 0) prefetch->row += prefetch->step;
}

/* Do i + 1 vectors end at a cache line? */
static inline bool cache_line_ends(int i) { return (i + 1) * VEC_BYTES % LINE_BYTES == 0; }

struct thin_scores {
    struct thin_rows k;
    struct thin_prefetch keys, values;
    const operand *q; /* [rows][stride] */
    int64_t stride;
    float *to; /* [rows][LINE] */
};

static inline __attribute__((always_inline)) void prefetch_both(struct thin_scores *s)
{
    prefetch_line(&s->keys);
    prefetch_line(&s->values);
}

/* The 32-bit words of vector `at` of LANES keys, as they are stored; zeros after the end of a
 * key. */
static inline __attribute__((always_inline)) void read_square(struct thin_scores *s,
                                                              const char *const keys[LANES], int at,
                                                              const bool ask, vec square[LANES])
{
    const int done = at * VEC_BYTES, left = s->k.bytes - done;
    if (left < VEC_BYTES) {
        for (int i = 0; i < LANES; i++) {
            float tail[LANES] = { 0 };
            memcpy(tail, keys[i] + done, (size_t)left);
            square[i] = vec_load(tail);
        }
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        square[i] = vec_load((const float *)(keys[i] + done));
        if (ask && cache_line_ends(i)) prefetch_both(s);
    }
}

/* Adds the contribution of vector `at` of LANES keys to their scores. A word of a key becomes one
 * lane of a transposed vector; only then is it converted to numbers. Prefetches are spread evenly:
 * among the loads, or among the multiplications if these take longer. Without the pragmas squares
 * would not stay in registers. */
static inline __attribute__((always_inline)) void score_square(const ra_dtype dtype,
                                                               struct thin_scores *s,
                                                               const char *const keys[LANES],
                                                               int at, const bool whole,
                                                               const int rows, vec *sum)
{
    const int per_word = operands_per_word(dtype);
    const operand *q = s->q + at * LANES * per_word;
    vec square[LANES];
    read_square(s, keys, at, per_word == 1, square);
    vec_transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        vec column[2];
        if (!whole && i * (int)sizeof(float) >= s->k.bytes - at * VEC_BYTES) break; /* as q does */
        operand_split(dtype, square[i], column);
        for (int n = 0; n < per_word; n++)
            for (int r = 0; r < rows; r++) {
                vec left = operand_broadcast(q + r * s->stride + i * per_word + n);
                sum[r] = operand_dot(left, column[n], sum[r]);
            }
        if (per_word > 1 && cache_line_ends(i)) prefetch_both(s);
    }
}

/* The scores of `groups` x LANES keys, from column `column` on. Zeros after the end of a key add
 * nothing. */
static inline __attribute__((always_inline)) void score_keys(const ra_dtype dtype,
                                                             struct thin_scores *s,
                                                             const char *const *keys, int column,
                                                             const int rows, const int groups)
{
    vec sum[THIN_GROUPS][THIN_TILE];
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < rows; r++) sum[g][r] = vec_zero();
    const int whole = s->k.bytes / VEC_BYTES;
    for (int at = 0; at < whole; at++)
        for (int g = 0; g < groups; g++)
            score_square(dtype, s, keys + g * LANES, at, true, rows, sum[g]);
    if (whole * VEC_BYTES < s->k.bytes)
        for (int g = 0; g < groups; g++)
            score_square(dtype, s, keys + g * LANES, whole, false, rows, sum[g]);
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < rows; r++) vec_store(s->to + r * LINE + column + g * LANES, sum[g][r]);
}

/* All visible columns. Around them, up to whole vectors, the nearest key is scored again. If a sum
 * is a long chain, two squares at a time hide each other's latency; f32 is faster with one. */
static inline __attribute__((always_inline)) void score_block(const ra_dtype dtype,
                                                              struct thin_scores *s,
                                                              struct columns seen, const int rows)
{
    const struct columns all = columns_whole(seen);
    const int most = dtype == RA_F32 ? 1 : THIN_GROUPS;
    for (int column = all.from, groups; column < all.to; column += groups * LANES) {
        const char *keys[THIN_GROUPS * LANES];
        groups = column + most * LANES <= all.to ? most : 1;
        for (int i = 0; i < groups * LANES; i++)
            keys[i] = thin_row(&s->k, (int)ra__min(ra__max(column + i, seen.from), seen.to - 1));
        if (groups == 1) score_keys(dtype, s, keys, column, rows, 1);
        else score_keys(dtype, s, keys, column, rows, THIN_GROUPS);
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

struct thin_values {
    struct thin_rows v;
    struct columns own; /* that the rows see */
    const operand *p;   /* rows: [rows][OPERAND_LINE] */
    float *acc;         /* [rows][padded(value_dim)] */
};

/* Sums over the keys, of the value columns from vector `at` on. */
struct thin_tile {
    int at;
    vec sum[THIN_TILE][THIN_VECS];
};

/* Adds the values of PER_OPERAND keys, from column `column` on, times their weights. */
static inline __attribute__((always_inline)) void gather_line(const struct thin_values *s,
                                                              int column, const vec *line,
                                                              struct thin_tile *tile,
                                                              const int rows, const int vecs)
{
    for (int r = 0; r < rows; r++) {
        vec weight = operand_broadcast(s->p + r * OPERAND_LINE + column / PER_OPERAND);
        for (int i = 0; i < vecs; i++)
            tile->sum[r][i] = operand_dot(weight, line[i], tile->sum[r][i]);
    }
}

/* The same if a token ends within a vector, or one of the keys is hidden. */
static inline __attribute__((always_inline)) void gather_edge(const ra_dtype dtype,
                                                              const struct thin_values *s,
                                                              int column, struct thin_tile *tile,
                                                              const int rows, const int vecs)
{
    const void *values[PER_OPERAND];
    vec line[THIN_VECS];
    for (int n = 0; n < PER_OPERAND; n++) {
        bool seen = column + n >= s->own.from && column + n < s->own.to;
        values[n] = seen ? thin_row(&s->v, column + n) : NULL;
    }
    for (int i = 0; i < vecs; i++)
        line[i] = interleave_at(dtype, values, tile->at + i, s->v.numbers);
    gather_line(s, column, line, tile, rows, vecs);
}

/* The same if tokens are whole vectors and all keys are visible. */
static inline __attribute__((always_inline)) void gather_whole(const ra_dtype dtype,
                                                               const struct thin_values *s,
                                                               int column, struct thin_tile *tile,
                                                               const int rows, const int vecs)
{
    const int64_t bytes = (int64_t)ra__dtype_bytes(dtype);
    const void *values[PER_OPERAND];
    vec line[THIN_VECS];
    for (int i = 0; i < vecs; i += 2) {
        for (int n = 0; n < PER_OPERAND; n++)
            values[n] = thin_row(&s->v, column + n) + (tile->at + i) * LANES * bytes;
        if (vecs == 1) line[i] = operand_read_interleaved(dtype, values);
        else operand_read_interleaved_pair(dtype, values, line + i);
    }
    gather_line(s, column, line, tile, rows, vecs);
}

/* acc += p v for `vecs` vectors of the value dim from vector `at` on. */
static inline __attribute__((always_inline)) void gather_piece(const ra_dtype dtype,
                                                               const struct thin_values *s, int at,
                                                               const int rows, const int vecs)
{
    const struct columns own = s->own;
    const bool whole = (at + vecs) * LANES <= s->v.numbers;
    const int body = whole ? (own.from + PER_OPERAND - 1) / PER_OPERAND * PER_OPERAND : own.to;
    int column = own.from / PER_OPERAND * PER_OPERAND;
    struct thin_tile tile;
    tile.at = at;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++) tile.sum[r][i] = vec_zero();

    for (; column < body; column += PER_OPERAND) gather_edge(dtype, s, column, &tile, rows, vecs);
    for (; column + PER_OPERAND <= own.to; column += PER_OPERAND)
        gather_whole(dtype, s, column, &tile, rows, vecs);
    for (; column < own.to; column += PER_OPERAND) gather_edge(dtype, s, column, &tile, rows, vecs);

    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++) {
            float *acc = s->acc + (int64_t)r * padded(s->v.numbers) + (at + i) * LANES;
            vec_store(acc, vec_add(vec_load(acc), tile.sum[r][i]));
        }
}

/* All of the value dim, as many vectors at a time as registers hold: whole tokens are best. */
static inline __attribute__((always_inline)) void gather_block(const ra_dtype dtype,
                                                               const struct thin_values *s,
                                                               const int rows)
{
    const int vectors = padded(s->v.numbers) / LANES;
    const int most = rows == 1 ? THIN_VECS : rows == 2 ? 2 * TILE_VECS : TILE_VECS;
    int at = 0;
    for (; at + most <= vectors; at += most) gather_piece(dtype, s, at, rows, most);
    for (; at + TILE_VECS <= vectors; at += TILE_VECS) gather_piece(dtype, s, at, rows, TILE_VECS);
    for (; at < vectors; at++) gather_piece(dtype, s, at, rows, 1);
}

/* ---- For rows and a dtype that are known only now -------------------------------------------- */

static inline __attribute__((always_inline)) void score_as(const ra_dtype dtype,
                                                           struct thin_scores *s,
                                                           struct columns seen, int rows)
{
    _Static_assert(THIN_TILE == 4, "score_as() and gather_as() name every number of rows");
    switch (rows) {
    case 1: score_block(dtype, s, seen, 1); break;
    case 2: score_block(dtype, s, seen, 2); break;
    case 3: score_block(dtype, s, seen, 3); break;
    default: score_block(dtype, s, seen, 4); break;
    }
}

/* Two query rows and whole tokens, then the other rows, are faster than all rows and parts of
 * tokens. */
static inline __attribute__((always_inline)) void gather_as(const ra_dtype dtype,
                                                            const struct thin_values *s, int rows)
{
    struct thin_values rest = *s;
    if (rows > 2 && s->v.numbers > TILE_VECS * LANES) {
        gather_block(dtype, s, 2);
        rest.p += 2 * OPERAND_LINE;
        rest.acc += 2 * (int64_t)padded(s->v.numbers);
        rows -= 2;
    }
    switch (rows) {
    case 1: gather_block(dtype, &rest, 1); break;
    case 2: gather_block(dtype, &rest, 2); break;
    case 3: gather_block(dtype, &rest, 3); break;
    default: gather_block(dtype, &rest, 4); break;
    }
}

/* scores = q k^T in the visible columns of the block, and arbitrary numbers in those around them,
 * up to whole vectors. q: [rows][grains(dim)]; scores: [rows][LINE]. */
static void thin_score(const struct ra__view *view, const struct key_block *block, const operand *q,
                       int rows, float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    const int dim = view->shape->dim;
    struct thin_scores s = { .k = thin_rows(dtype, &view->k, dim, block), .stride = operands(dim) };
    const struct thin_rows v = thin_rows(dtype, &view->v, view->shape->value_dim, block);
    const int from = block->seen.from, soon = from + PREFETCH_KEYS;
    s.keys = thin_prefetch_from(&s.k, soon, block->run->count - (block->first + soon));
    s.values = thin_prefetch_from(&v, from, v.step == v.bytes ? 0 : columns_count(block->seen));
    for (int row = 0; row < rows; row += THIN_TILE) {
        const int count = (int)ra__min(THIN_TILE, rows - row);
        s.q = q + row * s.stride;
        s.to = scores + row * LINE;
        if (dtype == RA_BF16) score_as(RA_BF16, &s, block->seen, count);
        else if (dtype == RA_F16) score_as(RA_F16, &s, block->seen, count);
        else score_as(RA_F32, &s, block->seen, count);
    }
}

/* acc += p v for rows that see the columns `own` of the block. p: [rows][OPERAND_LINE], 0 in the
 * columns around them that share an operand; acc: [rows][padded(value_dim)]. */
static void thin_gather(const struct ra__view *view, const struct key_block *block,
                        struct columns own, const operand *p, int rows, float *acc)
{
    const ra_dtype dtype = view->shape->dtype;
    const int value_dim = view->shape->value_dim;
    struct thin_values s = { .v = thin_rows(dtype, &view->v, value_dim, block), .own = own };
    for (int row = 0; row < rows; row += THIN_TILE) {
        const int count = (int)ra__min(THIN_TILE, rows - row);
        s.p = p + row * OPERAND_LINE;
        s.acc = row_of(acc, row, padded(value_dim));
        if (dtype == RA_BF16) gather_as(RA_BF16, &s, count);
        else if (dtype == RA_F16) gather_as(RA_F16, &s, count);
        else gather_as(RA_F32, &s, count);
    }
}

#endif
