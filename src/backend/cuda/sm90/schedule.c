/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - splits rows of queries into tiles and distributes them over clusters, on the host.
 *
 * Order: heads in sections whose keys stay in the L2 cache, the longest tiles of a section first,
 * each to the cluster with the least to do. Tiles that would make a cluster late are kept back and
 * split along their keys, so that all clusters end together. Knows no kernel: a tile has so many
 * rows, a block so many keys, and work is counted in blocks. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/sm90.h"

/* A tile and its keys, cut to what its rows can see. */
struct tile {
    const struct ra__sm90_rows *rows;
    int32_t from, count; /* of these rows */
    int32_t first_run, run_count;
    int64_t blocks;
    int section, wave;
    int index;
};

/* An item and its cluster. */
struct share {
    struct ra__sm90_item item;
    int cluster;
};

struct builder {
    const struct ra__sm90_schedule_input *input;
    struct ra__sm90_schedule *out;
    struct tile *tiles;
    struct ra__sm90_run *tile_runs;
    struct share *shares;
    int64_t *load; /* of each cluster, in blocks */
    int tile_count, share_count, share_room, run_room;
};

/* No piece of a tile is shorter than so many blocks: writing and merging it costs about as much. */
enum { SHORTEST_PIECE = 8 };

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

static int64_t blocks_of(const struct builder *b, int32_t keys)
{
    return (keys + b->input->block_keys - 1) / b->input->block_keys;
}

/* The band of a run that starts `keys` later, for rows that start `rows` later. */
static int32_t moved(int32_t side, int32_t rows, int32_t keys)
{
    if (side <= -RA__SM90_FAR || side >= RA__SM90_FAR) return side;
    return side + rows - keys;
}

static int stair_of(int32_t flags, int shift) { return flags >> shift & RA__SM90_STAIR_MASK; }

/* The keys of `run` that some of rows [from, from + count) sees; count 0 where there are none. Rows
 * may go in stairs, or, backward, what the run counts; then it is cut at stairs. */
static struct ra__sm90_run cut_run(struct ra__sm90_run run, int32_t from, int32_t count,
                                   int32_t flags)
{
    const int stair = stair_of(flags, RA__SM90_STAIR_SHIFT);
    const int32_t mask = (1 << stair_of(flags, RA__SM90_RUN_STAIR_SHIFT)) - 1;
    const int32_t lo = moved(run.lo, from, 0), hi = moved(run.hi, from, 0);
    const int32_t first = most(0, (lo + mask) & ~mask), climb = (count - 1) >> stair << stair;
    const int32_t last = least(run.count - 1, hi >= RA__SM90_FAR ? hi : (hi + climb) | mask);
    return (struct ra__sm90_run){ .row = run.row + first,
                                  .count = most(0, last - first + 1),
                                  .lo = moved(lo, 0, first),
                                  .hi = moved(hi, 0, first) };
}

/* Runs of a tile, from block `skip` of run `at` on; what comes before it is added at the end.
 * Blocks begin at multiples of their size, where a run is cut as well. */
static void rotate_runs(struct builder *b, struct tile *tile, int at, int64_t skip, int *runs)
{
    struct ra__sm90_run *all = &b->tile_runs[tile->first_run];
    const int32_t block = b->input->block_keys;
    const int32_t row = ra__sm90_row_of(&all[at], b->input->views);
    const int32_t keys = (int32_t)((row + skip * block) / block * block - row);
    struct ra__sm90_run *copy = &all[tile->run_count];
    if (at == 0 && keys <= 0) return;
    memcpy(copy, all, (size_t)tile->run_count * sizeof *copy);
    int count = 0;
    for (int i = 0; i < tile->run_count; i++) all[count++] = copy[(at + i) % tile->run_count];
    if (keys > 0 && keys < all->count) {
        struct ra__sm90_run *end = &all[count++];
        *end = *all;
        tile->blocks -= blocks_of(b, all->count);
        end->count = keys;
        all->row += keys;
        all->count -= keys;
        tile->blocks += blocks_of(b, all->count) + blocks_of(b, end->count);
    }
    *runs += count - tile->run_count;
    tile->run_count = count;
}

/* A tile that sees its runs in full starts elsewhere in them than other tiles do. */
static void rotate(struct builder *b, struct tile *tile, int *runs)
{
    const struct ra__sm90_run *all = &b->tile_runs[tile->first_run];
    const int64_t tiles = (tile->rows->q_count - 1) / b->input->tile_rows + 1;
    int64_t skip = tile->from / b->input->tile_rows * tile->blocks / tiles;
    int at = 0;
    for (int i = 0; i < tile->run_count; i++)
        if (!ra__sm90_is_open(&all[i])) return;
    if (skip == 0) return;
    while (at + 1 < tile->run_count && skip >= blocks_of(b, all[at].count))
        skip -= blocks_of(b, all[at++].count);
    rotate_runs(b, tile, at, skip, runs);
}

/* Tiles of an earlier wave are taken first. Waves go over spread x clusters tiles at a time, not
 * over the whole head: what neighbours share is still in the L2 cache when the next wave needs
 * it. */
static int wave_of(const struct ra__sm90_schedule_input *in, int tile)
{
    const int spread = in->spread, group = spread * in->clusters;
    return spread > 1 ? tile / group * spread + tile % spread : 0; /* 0: the longest first */
}

static void cut_rows(struct builder *b, const struct ra__sm90_rows *rows, int section, int *runs)
{
    for (int32_t from = 0; from < rows->q_count; from += b->input->tile_rows) {
        struct tile *tile = &b->tiles[b->tile_count];
        *tile = (struct tile){ .rows = rows,
                               .from = from,
                               .count = least(b->input->tile_rows, rows->q_count - from),
                               .first_run = *runs,
                               .section = section,
                               .wave = wave_of(b->input, from / b->input->tile_rows),
                               .index = b->tile_count };
        b->tile_count++;
        for (int i = 0; i < rows->run_count; i++) {
            struct ra__sm90_run run = cut_run(b->input->runs[rows->first_run + i], from,
                                              tile->count, rows->flags);
            if (run.count == 0) continue;
            b->tile_runs[(*runs)++] = run;
            tile->run_count++;
            tile->blocks += blocks_of(b, run.count);
        }
        if (b->input->rotate) rotate(b, tile, runs);
    }
}

/* Rows of the same batch item and KV head follow one another; each change is another head. */
static int cut_all(struct builder *b)
{
    const struct ra__sm90_schedule_input *in = b->input;
    int64_t tiles = 0, runs = 0, most_runs = 0; /* of a row: rotate_runs() needs room for a copy */
    for (int i = 0; i < in->row_count; i++) {
        int64_t n = (in->rows[i].q_count + in->tile_rows - 1) / in->tile_rows;
        tiles += n;
        runs += n * (in->rows[i].run_count + 1);
        if (in->rows[i].run_count > most_runs) most_runs = in->rows[i].run_count;
    }
    b->tiles = malloc((size_t)(tiles + 1) * sizeof *b->tiles);
    b->tile_runs = malloc((size_t)(runs + most_runs + 1) * sizeof *b->tile_runs);
    if (!b->tiles || !b->tile_runs) return -1;
    int heads = 0, run_count = 0;
    for (int i = 0; i < in->row_count; i++) {
        const struct ra__sm90_rows *rows = &in->rows[i], *before = rows - 1;
        if (i > 0 && (rows->batch != before->batch || rows->kv_head != before->kv_head)) heads++;
        cut_rows(b, rows, heads / most(1, in->section_heads), &run_count);
    }
    return 0;
}

static int longest_first(const void *left, const void *right)
{
    const struct tile *a = left, *b = right;
    if (a->section != b->section) return a->section - b->section;
    if (a->wave != b->wave) return a->wave - b->wave;
    if (a->blocks != b->blocks) return a->blocks < b->blocks ? 1 : -1;
    return a->index - b->index;
}

static int idlest(const struct builder *b)
{
    int cluster = 0;
    for (int w = 1; w < b->input->clusters; w++)
        if (b->load[w] < b->load[cluster]) cluster = w;
    return cluster;
}

static int add_run(struct builder *b, struct ra__sm90_run run)
{
    struct ra__sm90_schedule *out = b->out;
    if (out->run_count == b->run_room) {
        int room = 2 * b->run_room + 64;
        struct ra__sm90_run *more = realloc(out->runs, (size_t)room * sizeof *more);
        if (!more) return -1;
        out->runs = more;
        b->run_room = room;
    }
    if (!ra__sm90_is_open(&run) || run.count % b->input->block_keys) out->hides = 1;
    out->runs[out->run_count++] = run;
    return 0;
}

/* Blocks [from, to) of a tile, counted in the order in which they are folded: runs as they come,
 * the last block of a run first. */
static int add_runs(struct builder *b, const struct tile *tile, int64_t from, int64_t to)
{
    const int32_t keys = b->input->block_keys;
    int64_t before = 0;
    for (int i = 0; i < tile->run_count && before < to; i++) {
        struct ra__sm90_run run = b->tile_runs[tile->first_run + i];
        const int64_t blocks = blocks_of(b, run.count), after = before + blocks;
        const int64_t skip = from > before ? from - before : 0; /* at the end of the run */
        const int64_t stop = after > to ? after - to : 0;       /* at its start */
        before = after;
        if (skip >= blocks) continue;
        const int32_t first = (int32_t)stop * keys;
        const int32_t end = least(run.count, (int32_t)(blocks - skip) * keys);
        run = (struct ra__sm90_run){ .row = run.row + first,
                                     .count = end - first,
                                     .lo = moved(run.lo, 0, first),
                                     .hi = moved(run.hi, 0, first) };
        if (add_run(b, run)) return -1;
    }
    return 0;
}

/* Gives blocks [from, to) of a tile to a cluster; part is -1 where these are all. */
static int give(struct builder *b, const struct tile *tile, int64_t from, int64_t to, int part,
                int cluster)
{
    if (b->share_count == b->share_room) {
        int room = 2 * b->share_room + 64;
        struct share *more = realloc(b->shares, (size_t)room * sizeof *more);
        if (!more) return -1;
        b->shares = more;
        b->share_room = room;
    }
    const struct ra__sm90_rows *rows = tile->rows;
    const int first_run = b->out->run_count;
    if (add_runs(b, tile, from, to)) return -1;
    int32_t flags = rows->flags;
    if (part >= 0 && from > 0) flags |= RA__SM90_FIRST; /* the first part has the state */
    b->shares[b->share_count++] = (struct share){ .cluster = cluster,
                                                  .item = { .batch = rows->batch,
                                                            .head = rows->head,
                                                            .kv_head = rows->kv_head,
                                                            .q_row = rows->q_row + tile->from,
                                                            .q_count = tile->count,
                                                            .first_run = first_run,
                                                            .run_count = b->out->run_count -
                                                                         first_run,
                                                            .part = part,
                                                            .flags = flags } };
    b->load[cluster] += to - from + b->input->item_cost;
    return 0;
}

/* Cuts a tile so that its pieces fill up clusters to `limit`. */
static int share_out(struct builder *b, const struct tile *tile, int64_t limit)
{
    struct ra__sm90_merge *merge = &b->out->merges[b->out->merge_count];
    *merge = (struct ra__sm90_merge){ .batch = tile->rows->batch,
                                      .head = tile->rows->head,
                                      .q_row = tile->rows->q_row + tile->from,
                                      .q_count = tile->count,
                                      .first_part = b->out->part_count,
                                      .flags = tile->rows->flags };
    for (int64_t from = 0; from < tile->blocks;) {
        const int cluster = idlest(b);
        int64_t piece = limit - b->load[cluster] - b->input->item_cost;
        if (piece < SHORTEST_PIECE) piece = SHORTEST_PIECE;
        if (tile->blocks - from - piece < SHORTEST_PIECE) piece = tile->blocks - from;
        const int whole = piece == tile->blocks;
        if (give(b, tile, from, from + piece, whole ? -1 : b->out->part_count, cluster)) return -1;
        if (!whole) b->out->part_count++, merge->part_count++;
        from += piece;
    }
    if (merge->part_count) b->out->merge_count++;
    return 0;
}

/* May its keys be shared out? Pieces begin at blocks, and must begin at stairs. */
static bool can_split(const struct builder *b, const struct tile *tile)
{
    const int stair = stair_of(tile->rows->flags, RA__SM90_RUN_STAIR_SHIFT);
    return b->input->split && tile->blocks > 2 * SHORTEST_PIECE &&
           b->input->block_keys % (1 << stair) == 0;
}

/* Whole tiles first, in order; what does not fit any more is cut at the end. */
static int share_all(struct builder *b)
{
    int64_t total = 0;
    for (int i = 0; i < b->tile_count; i++) total += b->tiles[i].blocks + b->input->item_cost;
    const int64_t limit = (total + b->input->clusters - 1) / b->input->clusters;
    int late = 0;
    for (int i = 0; i < b->tile_count; i++) {
        const struct tile *tile = &b->tiles[i];
        const int cluster = idlest(b);
        const int64_t end = b->load[cluster] + tile->blocks + b->input->item_cost;
        if (end > limit + SHORTEST_PIECE && can_split(b, tile)) b->tiles[late++] = *tile;
        else if (give(b, tile, 0, tile->blocks, -1, cluster)) return -1;
    }
    b->out->merges = malloc((size_t)(late + 1) * sizeof *b->out->merges);
    if (!b->out->merges) return -1;
    for (int i = 0; i < late; i++)
        if (share_out(b, &b->tiles[i], limit)) return -1;
    return 0;
}

/* Items by cluster, in the order in which they were given. */
static int queue_all(struct builder *b)
{
    struct ra__sm90_schedule *out = b->out;
    const int clusters = b->input->clusters;
    out->items = malloc((size_t)(b->share_count + 1) * sizeof *out->items);
    out->queues = calloc((size_t)clusters + 1, sizeof *out->queues);
    if (!out->items || !out->queues) return -1;
    for (int w = 0; w < clusters; w++) {
        for (int i = 0; i < b->share_count; i++)
            if (b->shares[i].cluster == w) out->items[out->item_count++] = b->shares[i].item;
        out->queues[w + 1] = out->item_count;
    }
    return 0;
}

int ra__sm90_schedule(const struct ra__sm90_schedule_input *input, struct ra__sm90_schedule *out)
{
    *out = (struct ra__sm90_schedule){ .clusters = input->clusters };
    struct builder b = { .input = input, .out = out };
    b.load = calloc((size_t)input->clusters, sizeof *b.load);
    int status = b.load ? cut_all(&b) : -1;
    if (status == 0) {
        qsort(b.tiles, (size_t)b.tile_count, sizeof *b.tiles, longest_first);
        status = share_all(&b);
    }
    if (status == 0) status = queue_all(&b);
    free(b.load);
    free(b.tiles);
    free(b.tile_runs);
    free(b.shares);
    if (status != 0) ra__sm90_schedule_clear(out);
    return status;
}

void ra__sm90_schedule_clear(struct ra__sm90_schedule *schedule)
{
    free(schedule->items);
    free(schedule->runs);
    free(schedule->merges);
    free(schedule->queues);
    *schedule = (struct ra__sm90_schedule){ 0 };
}
