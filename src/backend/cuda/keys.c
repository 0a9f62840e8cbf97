/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - backward: the keys of a step as tiles, each with the rows that see it.
 *
 * Rows name keys; for dk and dv the question is the other way round. Keys that are token_step
 * apart and equal modulo it form a column, which is cut into tiles at multiples of the tile size.
 * A key may be in columns of different steps, as under dilated patterns: tiles of each token_step
 * are a wave, and waves run one after the other, so no two tiles that run together add to the same
 * key.
 *
 * A buffer whose tokens are of one KV head each (storage.one_head) has keys of other heads next to
 * those of a tile. There parts are cut so that a tile holds no key that none of its parts sees.
 *
 * The walk over all parts is made twice: to count them, and to fill them in. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

/* A part, with what its tile is found by. */
struct found {
    int64_t token_step, column, tile; /* tile: number of the tile in its column */
    int kv_head;                      /* -1: every */
    int start;                        /* the first key of what the tile is cut to; 0: not cut */
    int order;                        /* in which it was found */
    struct ra__cuda_part part;
};

struct search {
    struct ra__cuda_program *p;
    const struct ra__step *step;
    int tile_keys;
    bool by_head; /* some row of the step has only some heads */
    struct found *found;
    int64_t count, room;
};

static ra_status add(struct search *search, const struct found *found)
{
    if (search->count == search->room) {
        const int64_t room = search->room ? 2 * search->room : 256;
        struct found *larger = ra__cuda_host->alloc((size_t)room * sizeof *larger);
        if (!larger) return ra__cuda_fail(RA_ERR_MEMORY, "plan: %lld parts", (long long)room);
        if (search->count) memcpy(larger, search->found, (size_t)search->count * sizeof *larger);
        ra__cuda_host->free(search->found);
        search->found = larger;
        search->room = room;
    }
    search->found[search->count] = *found;
    search->found[search->count].order = (int)search->count;
    search->count++;
    return RA_OK;
}

/* The queries of a row that may see keys [lo, hi) of a run: positions are monotonic. */
static struct ra__range queries_of(const struct ra__plan_row *row, int64_t repeat,
                                   const struct ra__key_run *run, int64_t lo, int64_t hi)
{
    const int64_t first = row->q_pos + repeat * row->q_pos_advance;
    const int64_t low = run->pos + lo * run->pos_step - run->band.right;
    const int64_t high = run->pos + (hi - 1) * run->pos_step + run->band.left;
    const int64_t from = ra__ceil_div(low - first, row->q_step);
    const int64_t to = ra__floor_div(high - first, row->q_step) + 1;
    return (struct ra__range){ ra__min(ra__max(from, 0), row->q_count),
                               ra__min(ra__max(to, 0), row->q_count) };
}

/* The parts of one run of one row of a family, for a KV head or all. */
static ra_status add_run(struct search *search, int row_index, int run_index, int64_t repeat,
                         int kv_head)
{
    const struct ra__program *program = search->p->program;
    const struct ra__plan_row *row = &program->rows[row_index];
    const struct ra__key_run run = ra__key_run_at(&program->keys[run_index],
                                                  &program->advances[run_index], repeat);
    const int64_t step = run.token_step, column = run.token % step, start = run.token / step;
    const int64_t size = search->tile_keys;
    for (int64_t tile = start / size; tile * size < start + run.count; tile++) {
        const int64_t shift = tile * size - start; /* tile index -> run index */
        const int64_t lo = ra__max(-shift, 0), hi = ra__min(run.count - shift, size);
        const struct ra__range q = queries_of(row, repeat, &run, lo + shift, hi + shift);
        if (q.lo >= q.hi) continue;
        const struct found found = { step,
                                     column,
                                     tile,
                                     kv_head,
                                     0,
                                     0,
                                     { repeat, q.lo, q.hi, shift, row_index, run_index, (int32_t)lo,
                                       (int32_t)hi } };
        RA__TRY(add(search, &found));
    }
    return RA_OK;
}

static bool has_all_heads(const struct ra__program *program, const struct ra__plan_row *row)
{
    return row->heads.count == program->work.shape.q_heads && row->heads.step == 1;
}

/* Does the row have a query head that reads this KV head? */
static bool reads(const struct ra__program *program, const struct ra__plan_row *row, int kv_head)
{
    const int group = program->work.shape.q_heads / program->work.shape.kv_heads;
    int64_t skipped;
    return ra__run_clip(row->heads, (int64_t)kv_head * group, (int64_t)(kv_head + 1) * group,
                        &skipped)
               .count > 0;
}

static ra_status add_row(struct search *search, int index, int kv_head)
{
    const struct ra__plan_row *row = &search->p->program->rows[index];
    for (int64_t repeat = 0; repeat < row->repeat; repeat++)
        for (int i = 0; i < row->key_count; i++)
            RA__TRY(add_run(search, index, row->first_key + i, repeat, kv_head));
    return RA_OK;
}

static ra_status find_parts(struct search *search)
{
    const struct ra__program *program = search->p->program;
    const struct ra__step *step = search->step;
    const int end = step->first_row + step->row_count;
    for (int i = step->first_row; i < end; i++)
        search->by_head = search->by_head || !has_all_heads(program, &program->rows[i]);
    for (int i = step->first_row; i < end; i++) {
        if (!search->by_head) RA__TRY(add_row(search, i, -1));
        for (int h = 0; search->by_head && h < program->work.shape.kv_heads; h++)
            if (reads(program, &program->rows[i], h)) RA__TRY(add_row(search, i, h));
    }
    return RA_OK;
}

/* By wave, tile, and the order in which parts were found. */
static int by_tile(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    const int64_t left[] = { x->token_step, x->kv_head, x->column, x->tile, x->start, x->order };
    const int64_t right[] = { y->token_step, y->kv_head, y->column, y->tile, y->start, y->order };
    for (int i = 0; i < RA__COUNT(left); i++)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

static bool same_tile(const struct found *x, const struct found *y)
{
    return x->token_step == y->token_step && x->kv_head == y->kv_head && x->column == y->column &&
           x->tile == y->tile && x->start == y->start;
}

/* By tile, and in a tile by their keys. */
static int by_keys(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (same_tile(x, y)) return x->part.lo - y->part.lo;
    return by_tile(a, b);
}

/* Cuts tiles where no part has a key: parts that overlap, or follow one another, stay together. */
static void cut_tiles(struct search *search)
{
    struct found *found = search->found;
    qsort(found, (size_t)search->count, sizeof *found, by_keys);
    int end = 0, start = 0;
    for (int64_t i = 0; i < search->count; i++) {
        const bool same = i > 0 && found[i].token_step == found[i - 1].token_step &&
                          found[i].kv_head == found[i - 1].kv_head &&
                          found[i].column == found[i - 1].column &&
                          found[i].tile == found[i - 1].tile;
        if (!same || found[i].part.lo > end) {
            start = found[i].part.lo;
            end = found[i].part.hi;
        }
        if (found[i].part.hi > end) end = found[i].part.hi;
        found[i].start = start;
        found[i].part.lo -= start;
        found[i].part.hi -= start;
        found[i].part.shift += start;
    }
}

/* The first part of each tile gives where its keys are; all parts, how many there are. */
static struct ra__cuda_key_tile tile_of(const struct found *found, int tile_keys)
{
    return (struct ra__cuda_key_tile){
        .token = found->column + (found->tile * tile_keys + found->start) * found->token_step,
        .token_step = found->token_step,
        .kv_head = found->kv_head,
    };
}

static void fill(struct search *search, struct ra__cuda_tables *tables)
{
    struct ra__cuda_program *p = search->p;
    struct ra__cuda_step_table *table = &p->steps[search->step - p->program->steps];
    const bool real = tables->parts != NULL;
    if (real) table->first_wave = p->wave_count;
    for (int64_t i = 0; i < search->count; i++) {
        const struct found *found = &search->found[i];
        const bool wave = i == 0 || found->token_step != found[-1].token_step;
        const bool tile = i == 0 || !same_tile(found, found - 1);
        if (wave) p->wave_count++;
        if (real && wave) {
            table->wave_count++;
            p->waves[p->wave_count - 1] = (struct ra__cuda_wave){ (int)tables->key_tile_count, 0 };
        }
        if (tile) tables->key_tile_count++;
        struct ra__cuda_key_tile *at = real ? &tables->key_tiles[tables->key_tile_count - 1] : NULL;
        if (real && tile) {
            *at = tile_of(found, search->tile_keys);
            at->first_part = (int32_t)tables->part_count;
            p->waves[p->wave_count - 1].count++;
        }
        if (real) {
            at->part_count++;
            if (found->part.hi > at->count) at->count = found->part.hi;
            tables->parts[tables->part_count] = found->part;
        }
        tables->part_count++;
    }
}

/* Keys that most queries see come first. */
static int by_queries(const void *a, const void *b)
{
    const struct ra__cuda_key_tile *x = a, *y = b;
    if (x->part_count != y->part_count) return x->part_count < y->part_count ? 1 : -1;
    if (x->kv_head != y->kv_head) return x->kv_head < y->kv_head ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

bool ra__cuda_tables_cover(const struct ra__cuda_program *p, const struct ra__cuda_tables *tables)
{
    const struct ra__side *work = &p->program->work;
    int64_t keys = 0;
    for (int64_t i = 0; i < tables->key_tile_count; i++)
        keys += tables->key_tiles[i].count *
                (tables->key_tiles[i].kv_head < 0 ? (int64_t)work->shape.kv_heads : 1);
    return p->wave_count == 1 && keys == work->keys * work->shape.kv_heads;
}

ra_status ra__cuda_tables_keys(struct ra__cuda_program *p, int tile_keys,
                               struct ra__cuda_tables *tables)
{
    const struct ra__program *program = p->program;
    tables->key_tile_count = tables->part_count = p->wave_count = 0;
    for (int i = 0; i < program->step_count; i++) {
        struct search search = { .p = p, .step = &program->steps[i], .tile_keys = tile_keys };
        if (search.step->op != RA__OP_GRADIENT) continue;
        const ra_status status = find_parts(&search);
        if (status == RA_OK) {
            if (search.count && program->storage[search.step->to].one_head) cut_tiles(&search);
            if (search.count)
                qsort(search.found, (size_t)search.count, sizeof *search.found, by_tile);
            fill(&search, tables);
        }
        ra__cuda_host->free(search.found);
        RA__TRY(status);
    }
    for (int i = 0; tables->key_tiles && i < p->wave_count; i++)
        qsort(tables->key_tiles + p->waves[i].first, (size_t)p->waves[i].count,
              sizeof *tables->key_tiles, by_queries);
    return RA_OK;
}
