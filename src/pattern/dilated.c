/* dilated.c - LongNet's dilated attention. A branch (w, r) cuts positions into segments of w; head
 * j selects every r-th position of a segment from offset j mod r on, for queries and keys alike,
 * and selected queries see the selected keys of their segment. Branches add up to one multiset of
 * keys.
 *
 * Queries that the same branches select form rows: a run of queries is split branch after branch
 * into those it selects and those it passes over. With rates that divide one another, the usual
 * case, this gives as many rows as there are branches; any rates give the right rows. */
#include "pattern/pattern.h"

#include <inttypes.h>

static bool grouped(const ra_pattern *pattern) { return pattern->terms & RA__OPTION_GROUPS; }

/* Where in its segment branch `index` starts to select, for the heads of a class. */
static int64_t offset_of(const struct ra__look *look, int index)
{
    int64_t whose = grouped(look->pattern) ? index : look->heads.start;
    return whose % look->pattern->ratios[index].b;
}

/* What branch `index` selects of the segment that holds `position`. */
static ra_run selection(const struct ra__look *look, int index, int64_t position)
{
    struct ra__ratio branch = look->pattern->ratios[index];
    int64_t start = position - position % branch.a, offset = offset_of(look, index);
    int64_t length = ra__min(branch.a, look->k_len - start);
    int64_t count = offset < length ? (length - offset - 1) / branch.b + 1 : 0;
    return (ra_run){ start + offset, branch.b, count };
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static const struct ra__band everywhere = { RA__FAR, RA__FAR };

/* Adds the keys of `keys` that none of the sights from `first` to `last` - 1 holds. */
static ra_status add_new(struct ra__scene *scene, ra_run keys, int first, int last)
{
    if (keys.count == 0) return RA_OK;
    if (first == last) return ra__scene_add(scene, keys, everywhere);
    ra_run known = ra__scene_sights(scene)[first].keys, shared = ra__run_intersect(keys, known);
    if (shared.count == 0) return add_new(scene, keys, first + 1, last);
    int64_t skipped, lo = shared.start, hi = ra__run_last(shared);
    int64_t period = shared.count > 1 ? shared.step / keys.step : 1;
    RA__TRY(add_new(scene, ra__run_clip(keys, keys.start, lo, &skipped), first + 1, last));
    for (int64_t i = 1; i < period; i++) { /* between two shared keys */
        ra_run gap = { lo + i * keys.step, shared.step, shared.count - 1 };
        RA__TRY(add_new(scene, gap, first + 1, last));
    }
    return add_new(scene, ra__run_clip(keys, hi + 1, RA__FAR, &skipped), first + 1, last);
}

static ra_status add_keys(const struct ra__look *look, ra_run keys, struct ra__scene *scene)
{
    bool once = look->pattern->terms & RA__OPTION_DEDUP;
    return add_new(scene, keys, 0, once ? ra__scene_count(scene) : 0);
}

/* ---- Queries --------------------------------------------------------------------------------- */

/* Branches that count for these heads: all, or with groups the one of their group. */
static int branch_count(const struct ra__look *look)
{
    return grouped(look->pattern) ? 1 : look->pattern->ratio_count;
}

/* The branch with the `place`-th smallest rate: splitting by those first leaves little to split. */
static int branch_at(const struct ra__look *look, int place)
{
    const struct ra__ratio *ratios = look->pattern->ratios;
    int found = look->head_class;
    for (int i = 0; i < look->pattern->ratio_count && !grouped(look->pattern); i++) {
        int before = 0;
        for (int k = 0; k < look->pattern->ratio_count; k++)
            before += ratios[k].b < ratios[i].b || (ratios[k].b == ratios[i].b && k < i);
        if (before == place) found = i;
    }
    return found;
}

/* Splits q by the branches from `place` on and puts the rows. The segments of q are the same for
 * all its queries, so what a branch selects of it is every period-th query. */
static ra_status split(const struct ra__look *look, ra_run q, int place, struct ra__scene *scene)
{
    if (place == branch_count(look)) return ra__scene_put(scene, q);
    int index = branch_at(look, place);
    ra_run keys = selection(look, index, q.start), hit = ra__run_intersect(q, keys);
    if (hit.count == 0) return split(look, q, place + 1, scene);
    int before = ra__scene_count(scene);
    RA__TRY(add_keys(look, keys, scene));
    RA__TRY(split(look, hit, place + 1, scene));
    ra__scene_back(scene, before);
    if (hit.count == q.count) return RA_OK;
    int64_t rate = look->pattern->ratios[index].b, period = rate / ra__common_divisor(q.step, rate);
    int64_t selected = (hit.start - q.start) / q.step % period;
    int64_t step = period < q.count ? q.step * period : q.step;
    for (int64_t i = 0; i < period && i < q.count; i++) {
        ra_run rest = { q.start + i * q.step, step, (q.count - 1 - i) / period + 1 };
        if (i != selected) RA__TRY(split(look, rest, place + 1, scene));
    }
    return RA_OK;
}

static ra_status see(const struct ra__look *look, ra_run q, struct ra__scene *scene)
{
    return split(look, q, 0, scene);
}

/* The nearest end of a segment. */
static int64_t cut(const ra_pattern *pattern, int64_t position)
{
    int64_t next = RA__FAR;
    for (int i = 0; i < pattern->ratio_count; i++) {
        int64_t segment = pattern->ratios[i].a;
        next = ra__min(next, position - position % segment + segment);
    }
    return next;
}

static int64_t period(const ra_pattern *pattern)
{
    int64_t all = 1;
    for (int i = 0; i < pattern->ratio_count; i++)
        all = ra__common_multiple(all, pattern->ratios[i].a);
    return all;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* Heads have the same offsets in all branches where they agree modulo every rate. */
static int head_classes(const ra_pattern *pattern, int q_heads)
{
    if (grouped(pattern)) return pattern->ratio_count;
    int64_t all = 1;
    for (int i = 0; i < pattern->ratio_count; i++)
        all = ra__common_multiple(all, pattern->ratios[i].b);
    return (int)ra__min(all, q_heads);
}

/* Groups are as equal as can be, the larger ones first. */
static ra_run head_class(const ra_pattern *pattern, int q_heads, int index)
{
    int classes = head_classes(pattern, q_heads);
    if (!grouped(pattern)) return (ra_run){ index, classes, (q_heads - 1 - index) / classes + 1 };
    int size = q_heads / classes, larger = q_heads % classes;
    int start = index * size + (index < larger ? index : larger);
    return (ra_run){ start, 1, size + (index < larger) };
}

/* ---- Text ------------------------------------------------------------------------------------ */

static ra_status read(ra_pattern *pattern, struct ra__text args)
{
    return ra__pattern_read_ratios(pattern, args, 1, 1);
}

static ra_status add(ra_pattern *pattern, struct ra__text word, bool *known)
{
    if (ra__text_is(word, "dedup")) pattern->terms |= RA__OPTION_DEDUP;
    else if (ra__text_is(word, "groups")) pattern->terms |= RA__OPTION_GROUPS;
    else return RA_OK;
    *known = true;
    return RA_OK;
}

static void write(const ra_pattern *pattern, struct ra__writer *w)
{
    for (int i = 0; i < pattern->ratio_count; i++)
        ra__write(w, "%c%" PRId64 "/%" PRId64, i ? ',' : ':', pattern->ratios[i].a,
                  pattern->ratios[i].b);
    if (pattern->terms & RA__OPTION_DEDUP) ra__write(w, ";dedup");
    if (pattern->terms & RA__OPTION_GROUPS) ra__write(w, ";groups");
}

const struct ra__pattern_kind ra__pattern_dilated = {
    .name = "dilated",
    .syntax = "dilated:W/R[,W/R...][;dedup][;groups]",
    .summary = "every R-th key of the query's segment of W, over all branches, as LongNet does",
    .samples = "dilated:8/1,16/2 dilated:5/2,12/3,64/7 dilated:8/1,16/2,32/4;dedup "
               "dilated:6/1,10/2,16/3,20/4,300/5;groups dilated:1000/3;causal",
    .sparse = true,
    .read = read,
    .add = add,
    .write = write,
    .head_classes = head_classes,
    .head_class = head_class,
    .cut = cut,
    .period = period,
    .see = see,
};
