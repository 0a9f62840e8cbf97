/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_rows.c - the rows of a step as the Hopper kernels take them: families of the plan
 * expanded, positions as bands, tokens that are some steps apart as views.
 *
 * Query i at q + i s and key j at k + j t see each other if -left <= key - query <= right. With s =
 * t that is a band in i and j; with other steps it is one only where all see all. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/bridge.h"

/* More than this many would take longer to plan than they are worth. */
enum { MOST_ROWS = 1 << 22, MOST_RUNS = 1 << 23 };

void *ra__sm90_grow(void *array, int count, int *room, size_t bytes)
{
    if (count < *room) return array;
    const int more = 2 * *room + 64;
    void *larger = realloc(array, (size_t)more * bytes);
    if (larger) *room = more;
    return larger;
}

/* The repeat-th row of a family. */
struct queries {
    int64_t token, token_step, pos, step, count;
};

struct expansion {
    const struct ra__sm90_expand_input *in;
    struct ra__sm90_expanded *out;
    bool views; /* some tokens are more than one step apart */
};

/* ---- Views and positions --------------------------------------------------------------------- */

/* Tokens token, token + step, ... as rows of a view. */
static enum ra__sm90_answer view_of(struct expansion *e, int64_t token, int64_t step, int64_t count,
                                    int *view, int64_t *row)
{
    struct ra__sm90_expanded *out = e->out;
    const int64_t apart = count > 1 ? step : 1, first = token % apart;
    const int64_t most = e->views ? 1 << RA__SM90_RUN_VIEW_SHIFT : RA__SM90_FAR;
    *view = 0;
    *row = token / apart;
    if (apart < 1 || token + (count - 1) * apart >= most) return RA__SM90_NO;
    if (!e->views) return RA__SM90_YES;
    while (*view < out->view_count &&
           (out->views[*view].first != first || out->views[*view].step != apart))
        ++*view;
    if (*view == RA__SM90_VIEWS) return RA__SM90_NO;
    if (*view == out->view_count)
        out->views[out->view_count++] = (struct ra__sm90_view){ (int32_t)first, (int32_t)apart };
    return RA__SM90_YES;
}

static void line_add(struct ra__sm90_line *line, int64_t token, int64_t pos)
{
    if (!line->known) *line = (struct ra__sm90_line){ true, false, token, pos, 0 };
    const int64_t tokens = token - line->token, positions = pos - line->pos;
    if (tokens == 0) {
        line->bent = line->bent || positions != 0;
        return;
    }
    if (line->step == 0) line->step = positions / tokens;
    line->bent = line->bent || line->step < 1 || positions != tokens * line->step;
}

/* The first and the last one say it for those between them. */
static void add_queries(struct expansion *e, const struct queries *q)
{
    const int64_t last = q->token + (q->count - 1) * q->token_step;
    line_add(&e->out->q_line, q->token, q->pos);
    line_add(&e->out->q_line, last, q->pos + (q->count - 1) * q->step);
    e->out->q_rows = (int32_t)ra__max(e->out->q_rows, last + 1);
}

static void add_keys(struct expansion *e, const struct ra__key_run *run)
{
    const int64_t last = run->token + (run->count - 1) * run->token_step;
    line_add(&e->out->k_line, run->token, run->pos);
    line_add(&e->out->k_line, last, run->pos + (run->count - 1) * run->pos_step);
    e->out->k_rows = (int32_t)ra__max(e->out->k_rows, last + 1);
}

/* ---- Bands ----------------------------------------------------------------------------------- */

enum ra__sm90_answer ra__sm90_put_run(struct ra__sm90_expanded *out, struct ra__sm90_run run)
{
    if (out->run_count == MOST_RUNS) return RA__SM90_NO;
    void *runs = ra__sm90_grow(out->runs, out->run_count, &out->run_room, sizeof *out->runs);
    if (!runs) return RA__SM90_NO_MEMORY;
    out->runs = runs;
    out->runs[out->run_count++] = run;
    return RA__SM90_YES;
}

/* key - query over all pairs of a run: the least and the most. */
static struct ra__range differences(const struct queries *q, const struct ra__key_run *run)
{
    const int64_t first = run->pos - q->pos;
    return (struct ra__range){ first - (q->count - 1) * q->step,
                               first + (run->count - 1) * run->pos_step };
}

static bool all_see_all(const struct queries *q, const struct ra__key_run *run)
{
    const struct ra__range apart = differences(q, run);
    return apart.lo >= -run->band.left && apart.hi <= run->band.right;
}

/* Adds the run, unless no query sees any of it. */
static enum ra__sm90_answer add_run(struct expansion *e, struct queries q, struct ra__key_run run)
{
    if (run.count == 1) run.pos_step = q.step; /* one of something has any step */
    if (q.count == 1) q.step = run.pos_step;
    const struct ra__range apart = differences(&q, &run);
    if (run.count == 0 || apart.hi < -run.band.left || apart.lo > run.band.right)
        return RA__SM90_YES;
    const bool low_open = apart.lo >= -run.band.left, high_open = apart.hi <= run.band.right;
    if (!(low_open && high_open) && q.step != run.pos_step) return RA__SM90_NO;
    const int64_t first = run.pos - q.pos, step = q.step;
    const int64_t lo = low_open ? -RA__SM90_FAR : ra__ceil_div(-run.band.left - first, step);
    const int64_t hi = high_open ? RA__SM90_FAR : ra__floor_div(run.band.right - first, step);
    int view;
    int64_t row;
    if (lo > hi) return RA__SM90_YES; /* the band is narrower than a step */
    enum ra__sm90_answer answer = view_of(e, run.token, run.token_step, run.count, &view, &row);
    if (answer != RA__SM90_YES) return answer;
    add_keys(e, &run);
    e->out->banded = e->out->banded || !low_open || !high_open;
    return ra__sm90_put_run(e->out,
                            (struct ra__sm90_run){ (int32_t)(view << RA__SM90_RUN_VIEW_SHIFT | row),
                                                   (int32_t)run.count, (int32_t)lo, (int32_t)hi });
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static struct queries queries_at(const struct ra__plan_row *row, int64_t repeat)
{
    return (struct queries){ row->q_token + repeat * row->q_token_advance, row->q_token_step,
                             row->q_pos + repeat * row->q_pos_advance, row->q_step, row->q_count };
}

static struct ra__key_run run_at(const struct expansion *e, int index, int64_t repeat)
{
    const struct ra__program *program = e->in->program;
    struct ra__key_run run = ra__key_run_at(&program->keys[index], &program->advances[index],
                                            repeat);
    if (run.count == 1) run.token_step = 1;
    return run;
}

enum ra__sm90_answer ra__sm90_put_family(struct ra__sm90_expanded *out,
                                         struct ra__sm90_family family)
{
    if (out->family_count == MOST_ROWS) return RA__SM90_NO;
    void *families = ra__sm90_grow(out->families, out->family_count, &out->family_room,
                                   sizeof *out->families);
    if (!families) return RA__SM90_NO_MEMORY;
    out->families = families;
    out->families[out->family_count++] = family;
    return RA__SM90_YES;
}

/* Do these queries follow those of the last family, with the same runs, seen in full? Chunks of a
 * zigzag shard do: together they fill tiles better. */
static bool continues(const struct ra__sm90_expanded *out, const struct ra__sm90_family *family)
{
    if (out->family_count == 0) return false;
    const struct ra__sm90_family *last = &out->families[out->family_count - 1];
    if (last->q_row + last->q_count != family->q_row || last->flags != family->flags ||
        last->head != family->head || last->head_step != family->head_step ||
        last->heads != family->heads || last->run_count != family->run_count)
        return false;
    for (int i = 0; i < family->run_count; i++) {
        const struct ra__sm90_run *a = &out->runs[last->first_run + i];
        const struct ra__sm90_run *b = &out->runs[family->first_run + i];
        if (a->row != b->row || a->count != b->count || !ra__sm90_is_open(a) ||
            !ra__sm90_is_open(b))
            return false;
    }
    return true;
}

/* Adds the queries whose runs are those from `first_run` on. */
static enum ra__sm90_answer put_family(struct expansion *e, const struct ra__plan_row *row,
                                       const struct queries *q, int first_run, int stair)
{
    int view;
    int64_t at;
    const enum ra__sm90_answer answer = view_of(e, q->token, q->token_step, q->count, &view, &at);
    if (answer != RA__SM90_YES) return answer;
    const struct ra__sm90_family family = {
        .q_row = (int32_t)at,
        .q_count = (int32_t)q->count,
        .first_run = first_run,
        .run_count = e->out->run_count - first_run,
        .flags = (row->first ? RA__SM90_FIRST : 0) | (row->last ? RA__SM90_LAST : 0) |
                 stair << RA__SM90_STAIR_SHIFT | view << RA__SM90_VIEW_SHIFT,
        .head = (int32_t)row->heads.start,
        .head_step = (int32_t)row->heads.step,
        .heads = (int32_t)row->heads.count,
    };
    if (!continues(e->out, &family)) return ra__sm90_put_family(e->out, family);
    e->out->families[e->out->family_count - 1].q_count += family.q_count;
    e->out->run_count = first_run;
    return RA__SM90_YES;
}

static enum ra__sm90_answer expand_one(struct expansion *e, const struct ra__plan_row *row,
                                       int64_t repeat)
{
    struct queries q = queries_at(row, repeat);
    const int first_run = e->out->run_count;
    const bool banded = e->out->banded;
    if (q.count == 1) q.token_step = 1;
    if (q.count == 0) return RA__SM90_YES;
    e->out->banded = false;
    for (int i = 0; i < row->key_count; i++) {
        const enum ra__sm90_answer answer = add_run(e, q, run_at(e, row->first_key + i, repeat));
        if (answer != RA__SM90_YES) return answer;
    }
    e->out->mixed = e->out->mixed || e->out->banded;
    e->out->banded = e->out->banded || banded;
    add_queries(e, &q);
    return put_family(e, row, &q, first_run, 0);
}

/* ---- Stairs ---------------------------------------------------------------------------------- */

/* Do the keys of a run stay, or move along with blocks of `count` queries that see all of them? */
static bool moves_along(const struct expansion *e, const struct ra__plan_row *row, int index)
{
    const struct ra__advance *advance = &e->in->program->advances[index];
    const int64_t last = row->repeat - 1;
    const struct queries q0 = queries_at(row, 0), q1 = queries_at(row, last);
    const struct ra__key_run k0 = run_at(e, index, 0), k1 = run_at(e, index, last);
    return (advance->token == row->q_count || advance->token == 0) && k0.token_step == 1 &&
           all_see_all(&q0, &k0) && all_see_all(&q1, &k1);
}

/* The stair of a family that is one row of queries, or -1. Differences of positions change linearly
 * from row to row, so that the first and the last row say it for all. */
static int stair_of(const struct expansion *e, const struct ra__plan_row *row)
{
    const int64_t count = row->q_count;
    if (!e->in->stairs || row->repeat < 2 || row->q_token_advance != count ||
        (count > 1 && row->q_token_step != 1) || count & (count - 1) || count > 1 << 20 ||
        e->in->tile_rows % count || count * row->repeat >= RA__SM90_FAR)
        return -1;
    const int stair = __builtin_ctzll((unsigned long long)count);
    if (e->out->stair && e->out->stair != stair) return -1;
    for (int i = 0; i < row->key_count; i++)
        if (!moves_along(e, row, row->first_key + i)) return -1;
    return stair;
}

static enum ra__sm90_answer expand_stairs(struct expansion *e, const struct ra__plan_row *row,
                                          int stair)
{
    const int64_t more = (row->repeat - 1) * row->q_count;
    struct queries first = queries_at(row, 0), last = queries_at(row, row->repeat - 1);
    const int first_run = e->out->run_count;
    enum ra__sm90_answer answer = RA__SM90_YES;
    first.token_step = last.token_step = 1;
    for (int i = row->first_key; i < row->first_key + row->key_count; i++) {
        const bool moves = e->in->program->advances[i].token != 0;
        const struct ra__key_run k0 = run_at(e, i, 0), k1 = run_at(e, i, row->repeat - 1);
        const int64_t count = k0.count + (moves ? more : 0);
        int view;
        int64_t at;
        if (k0.count == 0) continue;
        answer = view_of(e, k0.token, 1, count, &view, &at);
        if (answer != RA__SM90_YES) return answer;
        add_keys(e, &k0);
        add_keys(e, &k1);
        e->out->banded = e->out->banded || moves;
        e->out->mixed = e->out->mixed || (moves && stair == 0);
        at |= (int64_t)view << RA__SM90_RUN_VIEW_SHIFT;
        answer = ra__sm90_put_run(
            e->out, (struct ra__sm90_run){ (int32_t)at, (int32_t)count, moves ? 0 : -RA__SM90_FAR,
                                           moves ? (int32_t)k0.count - 1 : RA__SM90_FAR });
        if (answer != RA__SM90_YES) return answer;
    }
    add_queries(e, &first);
    add_queries(e, &last);
    first.count += more;
    if (stair > e->out->stair) e->out->stair = stair;
    return put_family(e, row, &first, first_run, stair);
}

/* ---- All rows of a step ---------------------------------------------------------------------- */

static bool needs_views(const struct expansion *e)
{
    const struct ra__program *program = e->in->program;
    const struct ra__step *step = e->in->step;
    for (int i = step->first_row; i < step->first_row + step->row_count; i++) {
        const struct ra__plan_row *row = &program->rows[i];
        if (row->q_count > 1 && row->q_token_step > 1) return true;
        for (int k = row->first_key; k < row->first_key + row->key_count; k++)
            if (program->keys[k].count > 1 && program->keys[k].token_step > 1) return true;
    }
    return false;
}

static enum ra__sm90_answer expand_family(struct expansion *e, const struct ra__plan_row *row)
{
    const int stair = stair_of(e, row);
    if (stair >= 0) return expand_stairs(e, row, stair);
    for (int64_t repeat = 0; repeat < row->repeat; repeat++) {
        const enum ra__sm90_answer answer = expand_one(e, row, repeat);
        if (answer != RA__SM90_YES) return answer;
    }
    return RA__SM90_YES;
}

enum ra__sm90_answer ra__sm90_expand(const struct ra__sm90_expand_input *in,
                                     struct ra__sm90_expanded *out)
{
    const struct ra__program *program = in->program;
    *out = (struct ra__sm90_expanded){ .all_heads = true };
    struct expansion e = { in, out, false };
    e.views = needs_views(&e);
    enum ra__sm90_answer answer = RA__SM90_YES;
    for (int i = 0; i < in->step->row_count && answer == RA__SM90_YES; i++) {
        const struct ra__plan_row *row = &program->rows[in->step->first_row + i];
        out->all_heads = out->all_heads && row->heads.count == program->work.shape.q_heads;
        answer = expand_family(&e, row);
    }
    out->mixed = out->mixed && out->stair > 0;
    if (answer != RA__SM90_YES) ra__sm90_expanded_clear(out);
    return answer;
}

void ra__sm90_expanded_clear(struct ra__sm90_expanded *expanded)
{
    free(expanded->families);
    free(expanded->runs);
    free(expanded->head_views);
    *expanded = (struct ra__sm90_expanded){ .families = NULL };
}

/* ---- Rows of all heads ----------------------------------------------------------------------- */

struct ra__sm90_family ra__sm90_heads_in(const struct ra__sm90_family *family,
                                         struct ra__range heads)
{
    struct ra__sm90_family out = *family;
    const int64_t step = ra__max(family->head_step, 1);
    const int64_t first = ra__max(ra__ceil_div(heads.lo - family->head, step), 0);
    const int64_t end = ra__min(ra__ceil_div(heads.hi - family->head, step), family->heads);
    out.head += (int32_t)(first * step);
    out.heads = (int32_t)ra__max(end - first, 0);
    return out;
}

enum ra__sm90_answer ra__sm90_list_rows(const struct ra__sm90_expanded *expanded,
                                        const struct ra__sm90_heads *heads,
                                        struct ra__sm90_row_list *out)
{
    const int group = heads->q_heads / heads->kv_heads;
    *out = (struct ra__sm90_row_list){ .rows = NULL };
    if ((int64_t)expanded->family_count * heads->q_heads * heads->batch > 16 * (int64_t)MOST_ROWS)
        return RA__SM90_NO;
    for (int i = 0; i < heads->batch * heads->q_heads; i++)
        for (int f = 0; f < expanded->family_count; f++) {
            const struct ra__sm90_family *family = &expanded->families[f];
            const int head = i % heads->q_heads;
            if (!ra__sm90_has_heads(family, head, 1)) continue;
            void *rows = ra__sm90_grow(out->rows, out->row_count, &out->row_room,
                                       sizeof *out->rows);
            if (rows) out->rows = rows;
            if (!rows || out->row_count == MOST_ROWS) {
                ra__sm90_row_list_clear(out);
                return rows ? RA__SM90_NO : RA__SM90_NO_MEMORY;
            }
            out->rows[out->row_count++] = (struct ra__sm90_rows){
                .batch = i / heads->q_heads,
                .head = (uint16_t)head,
                .kv_head = (uint16_t)(heads->one_head ? 0 : head / group),
                .q_row = family->q_row,
                .q_count = family->q_count,
                .first_run = family->first_run,
                .run_count = family->run_count,
                .flags = family->flags,
            };
        }
    return RA__SM90_YES;
}

void ra__sm90_row_list_clear(struct ra__sm90_row_list *list)
{
    free(list->rows);
    free(list->runs);
    *list = (struct ra__sm90_row_list){ .rows = NULL };
}
