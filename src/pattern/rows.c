/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - the rows of a pattern: the tiles of its kind, with the modifiers applied. */
#include <inttypes.h>

#include "pattern/pattern.h"

/* Tiles as the kind adds them, and as they are passed on. A few tiles need no memory: folding keys
 * into a state then allocates nothing. */
enum { FEW = 48 };
struct list {
    struct ra__sight *at;
    int count, room;
    struct ra__sight few[FEW];
};

struct ra__scene {
    const struct ra__look *look;
    struct ra__row_sink sink;
    int64_t lo, hi; /* keys of the document, or all */
    struct list added, clipped;
    int ordinal; /* of the next row */
};

static void list_open(struct list *list)
{
    list->at = list->few;
    list->count = 0;
    list->room = FEW;
}

static void list_close(struct list *list)
{
    if (list->at != list->few) ra__free(list->at);
}

static ra_status list_add(struct list *list, struct ra__sight sight)
{
    if (list->count == list->room) {
        int room = 2 * list->room;
        struct ra__sight *larger = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)room,
                                                   sizeof *larger);
        if (!larger) return ra__fail(RA_ERR_MEMORY, "pattern: %d key runs of a row", room);
        for (int i = 0; i < list->count; i++) larger[i] = list->at[i];
        list_close(list);
        list->at = larger;
        list->room = room;
    }
    list->at[list->count++] = sight;
    return RA_OK;
}

ra_status ra__scene_add(struct ra__scene *scene, ra_run keys, struct ra__band band)
{
    if (keys.count == 0) return RA_OK;
    return list_add(&scene->added, (struct ra__sight){ keys, band, false });
}

ra_status ra__scene_add_whole(struct ra__scene *scene, ra_run keys, struct ra__band band)
{
    if (keys.count == 0) return RA_OK;
    return list_add(&scene->added, (struct ra__sight){ keys, band, true });
}

int ra__scene_count(const struct ra__scene *scene) { return scene->added.count; }
const struct ra__sight *ra__scene_sights(const struct ra__scene *scene) { return scene->added.at; }
void ra__scene_back(struct ra__scene *scene, int count) { scene->added.count = count; }

ra_status ra__scene_put(struct ra__scene *scene, ra_run q)
{
    const struct ra__look *look = scene->look;
    bool causal = look->pattern->causal && !look->ordered;
    scene->clipped.count = 0;
    for (int i = 0; i < scene->added.count; i++) {
        struct ra__sight sight = scene->added.at[i];
        if (causal) sight.band.right = ra__min(sight.band.right, 0);
        int64_t from = scene->lo, to = scene->hi, skipped;
        if (!sight.whole) {
            from = ra__max(from, q.start - sight.band.left);
            to = ra__min(to, ra__run_last(q) + sight.band.right + 1);
        }
        sight.keys = ra__run_clip(sight.keys, from, to, &skipped);
        if (sight.keys.count > 0) RA__TRY(list_add(&scene->clipped, sight));
    }
    struct ra__row row = { .q = q,
                           .heads = look->heads,
                           .sights = scene->clipped.at,
                           .sight_count = scene->clipped.count,
                           .ordinal = scene->ordinal++ };
    return scene->sink.put(scene->sink.context, &row);
}

/* The document of `position`: the last one that starts at or before it, so that empty ones are
 * skipped. */
static int64_t document_of(const ra_pattern *pattern, int64_t position)
{
    int64_t low = 0, high = pattern->bound_count - 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (pattern->bounds[middle] <= position) low = middle;
        else high = middle;
    }
    return low;
}

/* Queries between two boundaries of the kind; documents split them further. */
static ra_status see_between(struct ra__scene *scene, ra_run q)
{
    const ra_pattern *pattern = scene->look->pattern;
    bool documents = pattern->bounds && !scene->look->ordered;
    scene->lo = 0;
    scene->hi = scene->look->k_len;
    scene->ordinal = 0;
    for (int64_t done = 0; done < q.count;) {
        ra_run part = { q.start + done * q.step, q.step, q.count - done };
        if (documents) {
            int64_t d = document_of(pattern, part.start), skipped;
            scene->lo = pattern->bounds[d];
            scene->hi = pattern->bounds[d + 1];
            part = ra__run_clip(part, scene->lo, scene->hi, &skipped);
        }
        scene->added.count = 0;
        RA__TRY(pattern->kind->see(scene->look, part, scene));
        done += part.count;
    }
    return RA_OK;
}

/* One interval of the period after the other, and each of them in all periods before the next: rows
 * that differ by a constant advance follow each other. */
static ra_status see_stretches(struct ra__scene *scene, ra_run q)
{
    const ra_pattern *pattern = scene->look->pattern;
    const struct ra__pattern_kind *kind = pattern->kind;
    if (!kind->cut) return see_between(scene, q);
    int64_t end = ra__run_last(q) + 1, skipped;
    int64_t period = kind->period ? kind->period(pattern) : 0;
    if (period == 0) period = RA__FAR;
    int64_t base = q.start - q.start % period, stop = ra__min(base + period, end);
    if (end <= base + period) base = q.start; /* one period: start where the queries do */
    for (int64_t at = base, next; at < stop; at = next) {
        next = ra__min(kind->cut(pattern, at), base + period);
        for (int64_t shift = 0; at + shift < end; shift += period) {
            ra_run part = ra__run_clip(q, at + shift, next + shift, &skipped);
            if (part.count > 0) RA__TRY(see_between(scene, part));
        }
    }
    return RA_OK;
}

int ra__pattern_classes(const ra_pattern *pattern, int q_heads)
{
    return pattern->kind->head_classes ? pattern->kind->head_classes(pattern, q_heads) : 1;
}

ra_status ra__pattern_rows(const struct ra__rows *rows, ra_run q, struct ra__row_sink sink)
{
    const struct ra__pattern_kind *kind = rows->pattern->kind;
    struct ra__look look = { .pattern = rows->pattern,
                             .k_len = rows->k_len,
                             .q_heads = rows->q_heads,
                             .heads = { 0, 1, rows->q_heads },
                             .ordered = rows->ordered };
    struct ra__scene scene;
    scene.look = &look;
    scene.sink = sink;
    list_open(&scene.added);
    list_open(&scene.clipped);
    int classes = ra__pattern_classes(rows->pattern, rows->q_heads);
    ra_status status = RA_OK;
    for (int i = 0; i < classes && status == RA_OK && q.count > 0; i++) {
        look.head_class = i;
        if (kind->head_class) look.heads = kind->head_class(rows->pattern, rows->q_heads, i);
        if (look.heads.count > 0) status = see_stretches(&scene, q);
    }
    list_close(&scene.added);
    list_close(&scene.clipped);
    return status;
}

bool ra__pattern_reaches_all(const ra_pattern *pattern)
{
    return !pattern->causal && !pattern->bounds && !pattern->kind->reach;
}

void ra__pattern_reach(const ra_pattern *pattern, int64_t k_len, int64_t p, int64_t *from,
                       int64_t *to)
{
    *from = 0;
    *to = k_len;
    if (pattern->bounds) {
        int64_t d = document_of(pattern, p);
        *from = pattern->bounds[d];
        *to = pattern->bounds[d + 1];
    }
    if (pattern->kind->reach) *to = ra__min(*to, pattern->kind->reach(pattern, p));
    if (pattern->causal) *to = ra__min(*to, p + 1);
    *to = ra__max(*to, *from);
}
