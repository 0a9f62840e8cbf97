/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_views.c - backward, rows with views: the tokens of a KV head divided into classes, so that
 * a query and a key are each in one of them. A key of a dilated pattern may be in several views
 * (every token, every second one, ...), but its dk and dv are summed in one place; and so is dq.
 *
 * A class is a view: first, first + step, ... The classes of a head are the coarsest ones of which
 * all its views are made: with steps 1, 2 and 4 from token 0 on, {0, 4, ...}, {2, 6, ...} and
 * {1, 3, ...}. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/bridge.h"

/* ---- Classes --------------------------------------------------------------------------------- */

struct classes {
    struct ra__sm90_view of[RA__SM90_VIEWS];
    int count;
};

static int64_t greatest_divisor(int64_t a, int64_t b) { return b ? greatest_divisor(b, a % b) : a; }

/* Divides the classes that are partly in the view. false: there are too many. */
static bool refine(struct classes *classes, struct ra__sm90_view view)
{
    struct classes finer = { .count = 0 };
    for (int i = 0; i < classes->count; i++) {
        const struct ra__sm90_view of = classes->of[i];
        const int64_t divisor = greatest_divisor(of.step, view.step);
        const bool disjoint = (of.first - view.first) % divisor != 0;
        const int64_t pieces = disjoint ? 1 : view.step / divisor;
        if (finer.count + pieces > RA__SM90_VIEWS) return false;
        for (int32_t n = 0; n < pieces; n++)
            finer.of[finer.count++] = (struct ra__sm90_view){ of.first + n * of.step,
                                                              of.step * (int32_t)pieces };
    }
    *classes = finer;
    return true;
}

/* Which views the rows of some heads have, as bits. */
static unsigned views_of(const struct ra__sm90_expanded *rows, struct ra__range heads)
{
    unsigned bits = 0;
    for (int f = 0; f < rows->family_count; f++) {
        const struct ra__sm90_family *family = &rows->families[f];
        if (ra__sm90_heads_in(family, heads).heads == 0) continue;
        bits |= 1u << ra__sm90_family_view(family);
        for (int r = family->first_run; r < family->first_run + family->run_count; r++)
            bits |= 1u << ra__sm90_run_view(&rows->runs[r]);
    }
    return bits;
}

/* Views with small steps first: those with larger ones then divide less. */
static bool find_classes(const struct ra__sm90_expanded *rows, struct ra__range heads,
                         struct classes *out)
{
    unsigned left = views_of(rows, heads);
    *out = (struct classes){ { { 0, 1 } }, 1 };
    while (left) {
        int next = -1;
        for (int i = 0; i < rows->view_count; i++)
            if (left >> i & 1 && (next < 0 || rows->views[i].step < rows->views[next].step))
                next = i;
        if (!refine(out, rows->views[next])) return false;
        left &= ~(1u << next);
    }
    return true;
}

/* The number of a class among the views of `out`; -1: there are too many. */
static int number_of(struct ra__sm90_expanded *out, struct ra__sm90_view class)
{
    for (int i = 0; i < out->view_count; i++)
        if (!memcmp(&out->views[i], &class, sizeof class)) return i;
    if (out->view_count == RA__SM90_VIEWS) return -1;
    out->views[out->view_count] = class;
    return out->view_count++;
}

/* ---- Rows of classes ------------------------------------------------------------------------- */

/* Tokens of a view, `count` from a row on, that are in a class: from the skip-th on every apart-th
 * one, as rows of the class. */
struct members {
    int32_t row, count, skip, apart;
};

static struct members members_of(struct ra__sm90_view view, int32_t row, int32_t count,
                                 struct ra__sm90_view class)
{
    const int32_t token = view.first + row * view.step, apart = class.step / view.step;
    for (int32_t skip = 0; skip < apart && skip < count; skip++) {
        const int32_t from = token + skip * view.step - class.first;
        if (from % class.step == 0)
            return (struct members){ from / class.step, (count - skip - 1) / apart + 1, skip,
                                     apart };
    }
    return (struct members){ .count = 0 };
}

/* Adds the keys of a run that are in a class, for queries that are in one. */
static enum ra__sm90_answer put_members(struct ra__sm90_expanded *out,
                                        const struct ra__sm90_run *run, const struct members *q,
                                        const struct members *k, int number)
{
    const bool low_open = run->lo <= -RA__SM90_FAR, high_open = run->hi >= RA__SM90_FAR;
    const int32_t apart = k->count > 1 ? k->apart : q->apart, shift = q->skip - k->skip;
    struct ra__sm90_run some = { number << RA__SM90_RUN_VIEW_SHIFT | k->row, k->count, run->lo,
                                 run->hi };
    if (!(low_open && high_open) && q->count > 1 && apart != q->apart) return RA__SM90_NO;
    if (!low_open) some.lo = (int32_t)ra__ceil_div(run->lo + shift, apart);
    if (!high_open) some.hi = (int32_t)ra__floor_div(run->hi + shift, apart);
    if (some.lo > some.hi) return RA__SM90_YES;
    out->banded = out->banded || !low_open || !high_open;
    return ra__sm90_put_run(out, some);
}

/* A family by the classes of its heads. */
static enum ra__sm90_answer put_family(const struct ra__sm90_expanded *rows,
                                       struct ra__sm90_family family, const struct classes *classes,
                                       const int *numbers, struct ra__sm90_expanded *out)
{
    const struct ra__sm90_view view = rows->views[ra__sm90_family_view(&family)];
    const struct ra__sm90_family all = family;
    for (int c = 0; c < classes->count; c++) {
        const struct members q = members_of(view, all.q_row, all.q_count, classes->of[c]);
        if (q.count == 0) continue;
        family.first_run = out->run_count;
        for (int n = 0; n < all.run_count * classes->count; n++) {
            const struct ra__sm90_run *run = &rows->runs[all.first_run + n / classes->count];
            const int class = n % classes->count;
            const struct members k = members_of(rows->views[ra__sm90_run_view(run)],
                                                run->row & RA__SM90_VIEW_ROWS, run->count,
                                                classes->of[class]);
            if (k.count == 0) continue;
            const enum ra__sm90_answer answer = put_members(out, run, &q, &k, numbers[class]);
            if (answer != RA__SM90_YES) return answer;
        }
        family.run_count = out->run_count - family.first_run;
        if (family.run_count == 0) continue;
        family.q_row = q.row;
        family.q_count = q.count;
        family.flags = all.flags % (1 << RA__SM90_VIEW_SHIFT);
        family.flags |= numbers[c] << RA__SM90_VIEW_SHIFT;
        const enum ra__sm90_answer answer = ra__sm90_put_family(out, family);
        if (answer != RA__SM90_YES) return answer;
    }
    return RA__SM90_YES;
}

/* Rows of some heads, which are those of KV heads [kv.lo, kv.hi). */
static enum ra__sm90_answer classify(const struct ra__sm90_expanded *rows, struct ra__range heads,
                                     struct ra__range kv, struct ra__sm90_expanded *out)
{
    struct classes classes;
    int numbers[RA__SM90_VIEWS];
    uint8_t bits = 0;
    if (!find_classes(rows, heads, &classes)) return RA__SM90_NO;
    for (int c = 0; c < classes.count; c++) {
        numbers[c] = number_of(out, classes.of[c]);
        if (numbers[c] < 0) return RA__SM90_NO;
        bits = (uint8_t)(bits | 1u << numbers[c]);
    }
    for (int64_t h = kv.lo; h < kv.hi; h++) out->head_views[h] = bits;
    for (int f = 0; f < rows->family_count; f++) {
        const struct ra__sm90_family family = ra__sm90_heads_in(&rows->families[f], heads);
        if (family.heads == 0) continue;
        const enum ra__sm90_answer answer = put_family(rows, family, &classes, numbers, out);
        if (answer != RA__SM90_YES) return answer;
    }
    return RA__SM90_YES;
}

enum ra__sm90_answer ra__sm90_classify(const struct ra__sm90_expanded *rows,
                                       const struct ra__sm90_heads *heads,
                                       struct ra__sm90_expanded *out)
{
    const int group = heads->q_heads / heads->kv_heads;
    const int step = rows->all_heads ? heads->kv_heads : 1; /* KV heads at a time */
    enum ra__sm90_answer answer = RA__SM90_YES;
    *out = (struct ra__sm90_expanded){ .q_rows = rows->q_rows,
                                       .k_rows = rows->k_rows,
                                       .q_line = rows->q_line,
                                       .k_line = rows->k_line,
                                       .all_heads = rows->all_heads,
                                       .head_count = heads->kv_heads };
    out->head_views = calloc((size_t)heads->kv_heads, 1);
    if (!out->head_views) answer = RA__SM90_NO_MEMORY;
    for (int h = 0; h < heads->kv_heads && answer == RA__SM90_YES; h += step)
        answer = classify(rows, (struct ra__range){ h * group, (h + step) * group },
                          (struct ra__range){ h, h + step }, out);
    if (answer != RA__SM90_YES) ra__sm90_expanded_clear(out);
    return answer;
}

/* ---- Where the queries of a class are -------------------------------------------------------- */

static int32_t padded(const struct ra__sm90_expanded *rows, int class, int block)
{
    const struct ra__sm90_view view = rows->views[class];
    const int32_t count = rows->q_rows <= view.first
                              ? 0
                              : (rows->q_rows - view.first + view.step - 1) / view.step;
    return (count + block - 1) / block * block;
}

static bool are_together(const struct ra__sm90_expanded *rows, int a, int b)
{
    for (int h = 0; h < rows->head_count; h++)
        if (rows->head_views[h] >> a & 1 && rows->head_views[h] >> b & 1) return true;
    return false;
}

/* After the classes before it that some head has as well. */
int ra__sm90_place_classes(const struct ra__sm90_expanded *rows, int block, int32_t *starts)
{
    int32_t end = 0;
    for (int c = 0; c < rows->view_count; c++) {
        starts[c] = 0;
        for (int before = 0; before < c; before++)
            if (are_together(rows, before, c))
                starts[c] = (int32_t)ra__max(starts[c],
                                             starts[before] + padded(rows, before, block));
        end = (int32_t)ra__max(end, starts[c] + padded(rows, c, block));
    }
    return end;
}

void ra__sm90_fill_blocks(const struct ra__sm90_expanded *rows, const int32_t *starts, int block,
                          int kv_head, uint8_t *block_views, int count)
{
    memset(block_views, RA__SM90_NO_VIEW, (size_t)count);
    for (int c = 0; c < rows->view_count; c++)
        if (rows->head_views[kv_head] >> c & 1)
            memset(block_views + starts[c] / block, c, (size_t)(padded(rows, c, block) / block));
}
