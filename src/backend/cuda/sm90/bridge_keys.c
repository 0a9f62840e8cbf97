/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_keys.c - backward: the rows of a step with sides changed, rows of keys and the queries
 * that see them. Keys are divided where a run begins or ends, so that those between two such edges
 * are seen by the same runs of queries from end to end. With views, a key is the number of its view
 * and its row there, so those of one view follow those of another. */
#include <stdlib.h>

#include "backend/cuda/sm90/bridge.h"

enum { MOST_RUNS = 1 << 24, MOST_ROWS = 1 << 22 };

/* A run of keys of a family. */
struct span {
    int32_t from, to;
    int family, run;
};

struct sweep {
    const struct ra__sm90_expanded *expanded;
    const struct ra__sm90_heads *heads;
    int padded_rows;
    const int32_t *view_starts;
    struct ra__sm90_row_list *out;
    struct span *spans; /* by their first key */
    int32_t *edges;     /* ascending, each once */
    int *active;        /* spans that hold the keys after an edge */
    int span_count, edge_count, active_count;
};

static int by_first_key(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return a->run - b->run;
}

static int by_number(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

static void find_spans(struct sweep *s, int kv_head)
{
    const struct ra__sm90_expanded *e = s->expanded;
    const int group = s->heads->q_heads / s->heads->kv_heads;
    int edges = 0;
    s->span_count = s->active_count = s->edge_count = 0;
    for (int f = 0; f < e->family_count; f++) {
        const struct ra__sm90_family *family = &e->families[f];
        if (!ra__sm90_has_heads(family, kv_head * group, group)) continue;
        for (int r = family->first_run; r < family->first_run + family->run_count; r++) {
            const struct ra__sm90_run *run = &e->runs[r];
            s->spans[s->span_count++] = (struct span){ run->row, run->row + run->count, f, r };
            s->edges[edges++] = run->row;
            s->edges[edges++] = run->row + run->count;
        }
    }
    if (s->span_count == 0) return;
    qsort(s->spans, (size_t)s->span_count, sizeof *s->spans, by_first_key);
    qsort(s->edges, (size_t)edges, sizeof *s->edges, by_number);
    for (int i = 0; i < edges; i++)
        if (i == 0 || s->edges[i] != s->edges[s->edge_count - 1])
            s->edges[s->edge_count++] = s->edges[i];
}

static enum ra__sm90_answer put_run(struct ra__sm90_row_list *out, struct ra__sm90_run run)
{
    void *runs = ra__sm90_grow(out->runs, out->run_count, &out->run_room, sizeof *out->runs);
    if (!runs) return RA__SM90_NO_MEMORY;
    out->runs = runs;
    if (out->run_count == MOST_RUNS) return RA__SM90_NO;
    out->runs[out->run_count++] = run;
    return RA__SM90_YES;
}

/* Query i sees key j of a run if lo + i <= j <= hi + i, so j - hi <= i <= j - lo. */
static enum ra__sm90_answer put_queries(struct sweep *s, int32_t first_key, int first_head)
{
    const struct ra__sm90_expanded *e = s->expanded;
    const int group = s->heads->q_heads / s->heads->kv_heads;
    for (int h = 0; h < group; h++)
        for (int i = 0; i < s->active_count; i++) {
            const struct span *span = &s->spans[s->active[i]];
            const struct ra__sm90_family *family = &e->families[span->family];
            const struct ra__sm90_run *run = &e->runs[span->run];
            const int32_t shift = first_key - run->row;
            if (!ra__sm90_has_heads(family, first_head + h, 1)) continue;
            const int view = ra__sm90_family_view(family);
            const int32_t start = s->view_starts ? s->view_starts[view] : 0;
            const struct ra__sm90_run queries = {
                .row = view << RA__SM90_RUN_VIEW_SHIFT |
                       (h * s->padded_rows + start + family->q_row),
                .count = family->q_count,
                .lo = run->hi >= RA__SM90_FAR ? -RA__SM90_FAR : shift - run->hi,
                .hi = run->lo <= -RA__SM90_FAR ? RA__SM90_FAR : shift - run->lo,
            };
            const enum ra__sm90_answer answer = put_run(s->out, queries);
            if (answer != RA__SM90_YES) return answer;
        }
    return RA__SM90_YES;
}

static enum ra__sm90_answer put_rows(struct ra__sm90_row_list *out, struct ra__sm90_rows rows)
{
    void *more = ra__sm90_grow(out->rows, out->row_count, &out->row_room, sizeof *out->rows);
    if (!more) return RA__SM90_NO_MEMORY;
    out->rows = more;
    if (out->row_count == MOST_ROWS) return RA__SM90_NO;
    out->rows[out->row_count++] = rows;
    return RA__SM90_YES;
}

/* The rows of one KV head, of batch item 0. */
static enum ra__sm90_answer sweep_head(struct sweep *s, int kv_head)
{
    const int group = s->heads->q_heads / s->heads->kv_heads;
    int next = 0;
    find_spans(s, kv_head);
    for (int i = 0; i + 1 < s->edge_count; i++) {
        const int32_t from = s->edges[i], to = s->edges[i + 1];
        int kept = 0;
        for (int k = 0; k < s->active_count; k++)
            if (s->spans[s->active[k]].to > from) s->active[kept++] = s->active[k];
        s->active_count = kept;
        while (next < s->span_count && s->spans[next].from == from)
            s->active[s->active_count++] = next++;
        if (s->active_count == 0) continue;
        const int first_run = s->out->run_count;
        enum ra__sm90_answer answer = put_queries(s, from, kv_head * group);
        if (answer != RA__SM90_YES) return answer;
        answer = put_rows(s->out, (struct ra__sm90_rows){
                                      .head = (uint16_t)(kv_head * group),
                                      .kv_head = (uint16_t)(s->heads->one_head ? 0 : kv_head),
                                      .q_row = from,
                                      .q_count = to - from,
                                      .first_run = first_run,
                                      .run_count = s->out->run_count - first_run,
                                      .flags = s->expanded->stair << RA__SM90_RUN_STAIR_SHIFT });
        if (answer != RA__SM90_YES) return answer;
    }
    return RA__SM90_YES;
}

/* `count` rows from `first` on once more, of other heads or of another batch item. */
static enum ra__sm90_answer repeat_rows(struct ra__sm90_row_list *out, int first, int count,
                                        int batch, int head, int kv_head)
{
    for (int i = 0; i < count; i++) {
        struct ra__sm90_rows rows = out->rows[first + i];
        rows.batch = batch;
        rows.head = (uint16_t)(rows.head + head);
        rows.kv_head = (uint16_t)(rows.kv_head + kv_head);
        const enum ra__sm90_answer answer = put_rows(out, rows);
        if (answer != RA__SM90_YES) return answer;
    }
    return RA__SM90_YES;
}

/* Where all rows have all heads, those of a KV head are those of the first one. */
static enum ra__sm90_answer sweep_all(struct sweep *s)
{
    const struct ra__sm90_heads *heads = s->heads;
    const int group = heads->q_heads / heads->kv_heads;
    const bool alike = s->expanded->all_heads && !heads->one_head;
    enum ra__sm90_answer answer = sweep_head(s, 0);
    const int of_head = s->out->row_count;
    for (int h = 1; h < heads->kv_heads && answer == RA__SM90_YES; h++)
        answer = alike ? repeat_rows(s->out, 0, of_head, 0, h * group, h) : sweep_head(s, h);
    const int of_item = s->out->row_count;
    for (int b = 1; b < heads->batch && answer == RA__SM90_YES; b++)
        answer = repeat_rows(s->out, 0, of_item, b, 0, 0);
    return answer;
}

enum ra__sm90_answer ra__sm90_list_keys(const struct ra__sm90_expanded *expanded,
                                        const struct ra__sm90_heads *heads, int padded_rows,
                                        const int32_t *view_starts, struct ra__sm90_row_list *out)
{
    *out = (struct ra__sm90_row_list){ .rows = NULL };
    struct sweep s = { .expanded = expanded,
                       .heads = heads,
                       .padded_rows = padded_rows,
                       .view_starts = view_starts,
                       .out = out };
    const size_t runs = (size_t)expanded->run_count + 1;
    s.spans = malloc(runs * sizeof *s.spans);
    s.edges = malloc(2 * runs * sizeof *s.edges);
    s.active = malloc(runs * sizeof *s.active);
    enum ra__sm90_answer answer = RA__SM90_NO_MEMORY;
    if (s.spans && s.edges && s.active) answer = sweep_all(&s);
    free(s.spans);
    free(s.edges);
    free(s.active);
    if (answer != RA__SM90_YES) ra__sm90_row_list_clear(out);
    return answer;
}
