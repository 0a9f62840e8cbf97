/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_work.c - the work of a step: which kernel runs it, its schedule, and its memory. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/results.h"
#include "backend/cuda/sm90/bridge.h"

/* Of starting and ending an item, in blocks; as bench/lab has it. */
enum { ITEM_COST = 2 };

/* K and V of heads that are worked on together: what stays in the L2 cache of 50 MB. The same
 * number on every GPU, so that memory can be counted before one is known. */
#define SECTION_BYTES ((int64_t)32 << 20)
enum { SECTION_HEADS = 4 }; /* more are no faster: docs/GPU.md */

/* Ranks of adds to dq take 4 bytes each. More than `SOME` in a launch: one launch per KV head, by
 * the same schedule; more than `MOST` even so: not these kernels. */
#define SOME_ADDS ((int64_t)1 << 24)
#define MOST_ADDS ((int64_t)1 << 27)

static bool is_backward(const struct ra__program *program)
{
    return program->direction == RA__BACKWARD;
}

static struct ra__sm90_heads heads_of(const struct ra__shape *shape,
                                      const struct ra__sm90_work *work)
{
    if (work->by_head)
        return (struct ra__sm90_heads){ 1, shape->q_heads / shape->kv_heads, 1, false };
    return (struct ra__sm90_heads){ (int)shape->batch, shape->q_heads, shape->kv_heads,
                                    work->one_head };
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* A deterministic launch starts when all of its clusters can. Where ranks share a GPU it takes half
 * of them, so that it need not wait for the end of another one; unless there may be no other. */
static int shape_for(const struct ra__program *program, const struct ra__sm90_needs *needs,
                     struct ra__sm90_shape *shape, int *clusters)
{
    const int error = is_backward(program) ? ra__sm90_backward_shape(needs, shape, clusters)
                                           : ra__sm90_forward_shape(needs, shape, clusters);
    if (!error && program->device_ranks > 1 && !program->uneven && needs->deterministic)
        *clusters = (*clusters + 1) / 2;
    return error;
}

/* Calls with sinks or a bias take other kernels; a schedule fits them if their tiles are equal. */
static void find_extras(const struct ra__program *program, int clusters, struct ra__sm90_work *work)
{
    for (int extra = 0; extra < RA__SM90_EXTRAS; extra++) {
        struct ra__sm90_needs needs = work->needs;
        struct ra__sm90_shape shape;
        int other;
        if (extra & RA__SM90_WITH_SINKS) needs.terms |= RA__SM90_SINKS;
        if (extra & RA__SM90_WITH_BIAS) needs.terms |= RA__SM90_BIAS;
        work->extras[extra] = shape_for(program, &needs, &shape, &other) == 0 &&
                              other == clusters && shape.tile_rows == work->shape.tile_rows &&
                              shape.block_keys == work->shape.block_keys &&
                              shape.part_floats == work->shape.part_floats &&
                              shape.warps == work->shape.warps;
    }
}

/* Queries of a row, on average. */
static int mean_rows(const struct ra__sm90_expanded *rows)
{
    int64_t sum = 0;
    for (int i = 0; i < rows->family_count; i++) sum += rows->families[i].q_count;
    return rows->family_count ? (int)(sum / rows->family_count) : 0;
}

/* ---- Schedules ------------------------------------------------------------------------------- */

/* Does every key have a row? Otherwise its gradients would not be written. */
static bool covers(const struct ra__sm90_row_list *list, const struct ra__sm90_heads *heads,
                   int64_t keys)
{
    int64_t sum = 0;
    for (int i = 0; i < list->row_count; i++) sum += list->rows[i].q_count;
    return sum > 0 && sum == keys * heads->kv_heads * heads->batch;
}

static void count_rows(struct ra__sm90_work *work, const struct ra__sm90_row_list *list)
{
    const int64_t tile = work->shape.tile_rows;
    for (int i = 0; i < list->row_count; i++) {
        const int64_t count = list->rows[i].q_count, runs = list->rows[i].run_count;
        work->rows_used += count * runs;
        work->rows_paid += (count + tile - 1) / tile * tile * runs;
    }
}

static int section_of(const struct ra__sm90_work *work)
{
    const int64_t head = 4 * (int64_t)ra__max(work->k_rows, 1) * work->needs.dim;
    return (int)ra__min(ra__max(SECTION_BYTES / head, 1), SECTION_HEADS);
}

static bool all_end(const struct ra__sm90_row_list *list)
{
    bool all = true;
    for (int i = 0; i < list->row_count; i++) all = all && list->rows[i].flags & RA__SM90_LAST;
    return all;
}

/* May the runs of a tile be shared out, so that clusters end together? Where ranks share a GPU, the
 * launch of another rank begins where clusters have ended, and whole tiles are faster. Sharing out
 * is faster in two cases: in the last step of a rank, forward, and where a launch takes half of the
 * GPU and starts when all of its clusters can (shape_for()). merge_keys() finds KV heads by query
 * heads and knows no views. */
static bool may_split(const struct ra__program *program, const struct ra__sm90_work *work,
                      const struct ra__sm90_row_list *list)
{
    const bool back = is_backward(program);
    const bool whole_tiles = back ? program->uneven || !work->needs.deterministic : !all_end(list);
    if (program->device_ranks > 1 && whole_tiles) return false;
    return !(back && (work->one_head || work->needs.views));
}

/* Are neighbouring tiles worked on at different times? Measured: docs/GPU.md. */
static bool spreads(const struct ra__program *program, const struct ra__sm90_work *work)
{
    const bool often_waits = work->rows.banded || (program->device_ranks > 1 && program->uneven);
    return work->needs.deterministic && work->needs.dim == 64 && often_waits;
}

static enum ra__sm90_answer schedule(const struct ra__program *program, int clusters,
                                     struct ra__sm90_work *work)
{
    const struct ra__sm90_heads heads = heads_of(&program->work.shape, work);
    const bool back = is_backward(program);
    struct ra__sm90_row_list list;
    enum ra__sm90_answer answer = back ? ra__sm90_list_keys(&work->rows, &heads, work->padded_rows,
                                                            work->view_starts, &list)
                                       : ra__sm90_list_rows(&work->rows, &heads, &list);
    if (answer != RA__SM90_YES) return answer;
    work->covers = back && covers(&list, &heads, work->k_rows);
    work->direct = work->direct && work->covers && work->k_rows == program->work.keys;
    for (int i = 0; i < list.row_count && work->direct; i++)
        list.rows[i].flags |= RA__SM90_FIRST | RA__SM90_LAST;
    const struct ra__sm90_schedule_input in = {
        .rows = list.rows,
        .runs = list.runs ? list.runs : work->rows.runs,
        .row_count = list.row_count,
        .tile_rows = work->shape.tile_rows,
        .block_keys = work->shape.block_keys,
        .clusters = clusters,
        .section_heads = section_of(work),
        .item_cost = ITEM_COST,
        .split = may_split(program, work, &list),
        .spread = spreads(program, work) ? 2 : 1,
        .rotate = work->needs.deterministic,
        .views = work->needs.views,
    };
    if (ra__sm90_schedule(&in, &work->schedule)) answer = RA__SM90_NO_MEMORY;
    work->rows_used = work->rows_paid = 0;
    count_rows(work, &list);
    ra__sm90_row_list_clear(&list);
    return answer;
}

static struct ra__sm90_order_input order_of(const struct ra__shape *shape,
                                            const struct ra__sm90_work *work)
{
    const struct ra__sm90_heads heads = heads_of(shape, work);
    return (struct ra__sm90_order_input){ .schedule = &work->schedule,
                                          .batch = heads.batch,
                                          .heads = heads.q_heads,
                                          .padded_rows = work->padded_rows,
                                          .block_queries = work->shape.block_keys,
                                          .item_cost = ITEM_COST,
                                          .walks = work->shape.walks,
                                          .views = work->needs.views };
}

/* The rows of dq of a head; without views all queries of the rank, so that dq of several steps is
 * in the same place. RA__SM90_NO: more than runs can name. */
static enum ra__sm90_answer place_queries(const struct ra__program *program,
                                          struct ra__sm90_work *work)
{
    const struct ra__shape *s = &program->work.shape;
    const int block = work->shape.block_keys, group = s->q_heads / s->kv_heads;
    const int64_t rows = program->units ? work->q_rows
                                        : ra__max(work->q_rows, program->work.queries);
    const int64_t most = work->needs.views ? RA__SM90_VIEW_ROWS : RA__SM90_FAR;
    const int64_t padded = work->needs.views
                               ? ra__sm90_place_classes(&work->rows, block, work->view_starts)
                               : ra__ceil_div(rows, block) * block;
    if (group * padded >= most) return RA__SM90_NO;
    work->padded_rows = (int)padded;
    return RA__SM90_YES;
}

/* Which view the blocks of dq have that a launch works on. */
static enum ra__sm90_answer find_blocks(const struct ra__shape *s, struct ra__sm90_work *work)
{
    const struct ra__sm90_heads heads = heads_of(s, work);
    const int block = work->shape.block_keys, blocks = work->padded_rows / block;
    if (!work->needs.views) return RA__SM90_YES;
    work->block_views = malloc((size_t)heads.q_heads * (size_t)blocks + 1);
    if (!work->block_views) return RA__SM90_NO_MEMORY;
    for (int h = 0; h < heads.q_heads; h++)
        ra__sm90_fill_blocks(&work->rows, work->view_starts, block,
                             h / (heads.q_heads / heads.kv_heads),
                             work->block_views + (size_t)h * (size_t)blocks, blocks);
    return RA__SM90_YES;
}

/* Backward, with ranks that are not too many. */
static enum ra__sm90_answer schedule_gradient(const struct ra__program *program, int clusters,
                                              struct ra__sm90_work *work)
{
    const struct ra__shape *s = &program->work.shape;
    enum ra__sm90_answer answer = place_queries(program, work);
    if (answer != RA__SM90_YES) return answer;
    for (;;) {
        answer = schedule(program, clusters, work);
        if (answer != RA__SM90_YES || !work->needs.deterministic) break;
        const struct ra__sm90_order_input in = order_of(s, work);
        work->adds = ra__sm90_order_adds(&in);
        if (work->adds <= SOME_ADDS || work->by_head) break;
        if (!work->rows.all_heads || work->one_head) break;
        if (work->needs.terms & RA__SM90_DROPOUT) break; /* it counts heads and batch items */
        work->by_head = true;
        ra__sm90_schedule_clear(&work->schedule);
    }
    if (answer == RA__SM90_YES && work->adds > MOST_ADDS) answer = RA__SM90_NO;
    return answer == RA__SM90_YES ? find_blocks(s, work) : answer;
}

static enum ra__sm90_answer make(const struct ra__program *program, int terms,
                                 struct ra__sm90_work *work)
{
    const struct ra__shape *s = &program->work.shape;
    const bool back = is_backward(program);
    int clusters;
    work->needs = (struct ra__sm90_needs){ .dim = s->dim,
                                           .dtype = s->dtype == RA_F16 ? RA__SM90_F16
                                                                       : RA__SM90_BF16,
                                           .rows = mean_rows(&work->rows),
                                           .terms = terms,
                                           .views = work->rows.view_count > 0,
                                           .deterministic = back && !program->any_order };
    work->backward = back;
    work->direct = back && work->rows.q_rows == program->work.queries &&
                   ra__cuda_writes_results(program);
    work->q_rows = work->rows.q_rows;
    work->k_rows = work->rows.k_rows;
    memcpy(work->views, work->rows.views, sizeof work->views);
    int error = shape_for(program, &work->needs, &work->shape, &clusters);
    if (error && back && program->any_order) { /* score terms have no other kernels */
        work->needs.deterministic = true;
        error = shape_for(program, &work->needs, &work->shape, &clusters);
    }
    if (error) return RA__SM90_NO;
    if (!back && work->shape.tile_rows % (1 << work->rows.stair)) return RA__SM90_NO;
    find_extras(program, clusters, work);
    return back ? schedule_gradient(program, clusters, work) : schedule(program, clusters, work);
}

enum ra__sm90_answer ra__sm90_work_make(const struct ra__program *program, int terms,
                                        struct ra__sm90_work *work)
{
    const enum ra__sm90_answer answer = make(program, terms, work);
    if (answer != RA__SM90_YES) ra__sm90_work_clear(work);
    return answer;
}

void ra__sm90_work_clear(struct ra__sm90_work *work)
{
    ra__sm90_expanded_clear(&work->rows);
    if (!work->placed) {
        ra__sm90_schedule_clear(&work->schedule);
        free(work->block_views);
    }
    *work = (struct ra__sm90_work){ .placed = false };
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Arrays one after the other; with no memory they are only counted. */
struct placing {
    char *host, *device;
    size_t used;
};

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

static void *put(struct placing *at, const void *data, size_t bytes)
{
    char *to = at->device ? at->device + at->used : NULL;
    if (at->host && data && bytes) memcpy(at->host + at->used, data, bytes);
    at->used += padded(bytes);
    return to;
}

static void put_schedule(struct placing *at, const struct ra__sm90_schedule *from,
                         struct ra__sm90_schedule *to)
{
    *to = *from;
    to->items = put(at, from->items, (size_t)from->item_count * sizeof *from->items);
    to->runs = put(at, from->runs, (size_t)from->run_count * sizeof *from->runs);
    to->merges = put(at, from->merges, (size_t)from->merge_count * sizeof *from->merges);
    to->queues = put(at, from->queues, ((size_t)from->clusters + 1) * sizeof *from->queues);
}

static size_t block_bytes(const struct ra__sm90_work *work, const struct ra__shape *shape)
{
    const struct ra__sm90_heads heads = heads_of(shape, work);
    return work->block_views
               ? (size_t)heads.q_heads * (size_t)work->padded_rows / (size_t)work->shape.block_keys
               : 0;
}

size_t ra__sm90_work_bytes(const struct ra__sm90_work *work, const struct ra__shape *shape)
{
    struct placing at = { NULL, NULL, 0 };
    struct ra__sm90_schedule placed;
    put_schedule(&at, &work->schedule, &placed);
    put(&at, NULL, block_bytes(work, shape));
    if (work->adds == 0) return at.used;
    return at.used + padded((size_t)work->adds * sizeof *work->ranks) +
           padded(((size_t)work->schedule.clusters + 1) * sizeof *work->rank_starts);
}

int ra__sm90_work_place(struct ra__sm90_work *work, const struct ra__shape *shape, char *host,
                        char *device)
{
    struct placing at = { host, device, 0 };
    struct ra__sm90_schedule placed;
    const size_t clusters = (size_t)work->schedule.clusters;
    put_schedule(&at, &work->schedule, &placed);
    uint8_t *block_views = put(&at, work->block_views, block_bytes(work, shape));
    if (work->adds > 0) {
        const struct ra__sm90_order_input in = order_of(shape, work);
        struct ra__sm90_order order;
        if (ra__sm90_order(&in, &order)) return -1;
        work->sets_dq = order.complete && work->shape.walks <= 1;
        work->ranks = put(&at, order.ranks, (size_t)work->adds * sizeof *order.ranks);
        work->rank_starts = put(&at, order.starts, (clusters + 1) * sizeof *order.starts);
        ra__sm90_order_clear(&order);
    }
    ra__sm90_schedule_clear(&work->schedule);
    work->schedule = placed;
    if (work->block_views) {
        free(work->block_views);
        work->block_views = block_views;
    }
    work->placed = true;
    return 0;
}

struct ra__sm90_scratch ra__sm90_scratch_of(const struct ra__sm90_work *work,
                                            const struct ra__shape *shape, char *scratch)
{
    const struct ra__sm90_heads heads = heads_of(shape, work);
    struct placing at = { NULL, scratch, 0 };
    struct ra__sm90_scratch out = { .bytes = 0 };
    const size_t parts = (size_t)work->schedule.part_count * (size_t)work->shape.part_floats;
    if (!work->backward) {
        out.failed = put(&at, NULL, (size_t)work->schedule.item_count * (size_t)work->shape.warps);
    } else {
        /* First what may stay from step to step: at the same place whatever the work is. */
        const size_t rows = (size_t)heads.batch * (size_t)heads.q_heads * (size_t)work->padded_rows;
        const size_t blocks = rows / (size_t)work->shape.block_keys;
        out.lse2 = put(&at, NULL, rows * sizeof *out.lse2);
        out.delta = put(&at, NULL, rows * sizeof *out.delta);
        out.dq_sum = put(&at, NULL, rows * (size_t)work->needs.dim * sizeof *out.dq_sum);
        out.turns = put(&at, NULL, 2 * blocks * sizeof *out.turns);
    }
    out.parts = put(&at, NULL, parts * sizeof *out.parts);
    out.bytes = at.used;
    return out;
}
