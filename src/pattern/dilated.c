/* SPDX-License-Identifier: Apache-2.0 */
/* dilated.c - LongNet's dilated attention. A branch (w, r) splits positions into segments of w;
 * head j selects every r-th position of a segment from an offset on, for queries and keys alike,
 * and selected queries see the selected keys of their segment. Branches add up to one multiset of
 * keys. The offset of head j is j mod r, as in the paper (cyclic), or the number of its block of
 * ceil(heads / r) heads, as in Microsoft's torchscale (block).
 *
 * Queries that the same branches select form rows: a run of queries is split branch by branch into
 * those that are selected and those that are not. With rates that divide one another, the usual
 * case, this gives as many rows as there are branches; any rates give the right rows. */
#include "core/hash.h"
#include "pattern/kinds.h"
#include "pattern/ratios.h"

enum option {
    DEDUP = 1,
    GROUPS = 2,
    OFFSETS_BLOCK = 4,
    OFFSETS_CYCLIC = 8 /* only what was said: it is the default */
};

struct dilated {
    struct ra__ratios branches; /* segment / rate */
    unsigned options;           /* enum option */
};

static const struct dilated *of(const ra_pattern *pattern) { return pattern->state; }

static bool grouped(const ra_pattern *pattern) { return of(pattern)->options & GROUPS; }

static bool in_blocks(const ra_pattern *pattern) { return of(pattern)->options & OFFSETS_BLOCK; }

/* Adjacent heads that have the same offset in a branch of this rate, with offsets by block. */
static int64_t block_of_heads(int q_heads, int64_t rate) { return ra__ceil_div(q_heads, rate); }

/* The offset of branch `index` in its segment, for the heads of a class. */
static int64_t offset_of(const struct ra__pattern_input *input, int index)
{
    int64_t rate = of(input->pattern)->branches.at[index].b;
    if (grouped(input->pattern)) return index % rate;
    if (in_blocks(input->pattern)) return input->heads.start / block_of_heads(input->q_heads, rate);
    return input->heads.start % rate;
}

/* What branch `index` selects of the segment that holds `position`. */
static ra_run selection(const struct ra__pattern_input *input, int index, int64_t position)
{
    struct ra__ratio branch = of(input->pattern)->branches.at[index];
    int64_t start = position - position % branch.a, offset = offset_of(input, index);
    int64_t length = ra__min(branch.a, input->k_len - start);
    int64_t count = offset < length ? (length - offset - 1) / branch.b + 1 : 0;
    return (ra_run){ start + offset, branch.b, count };
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static const struct ra__band everywhere = { RA__UNBOUNDED, RA__UNBOUNDED };

/* Adds the keys of `keys` that are in none of the tiles from `first` to `last` - 1. */
static ra_status add_new(struct ra__row_writer *writer, ra_run keys, int first, int last)
{
    if (keys.count == 0) return RA_OK;
    if (first == last) return ra__row_writer_add(writer, keys, everywhere);
    ra_run known = ra__row_writer_tiles(writer)[first].keys,
           shared = ra__run_intersect(keys, known);
    if (shared.count == 0) return add_new(writer, keys, first + 1, last);
    int64_t skipped, lo = shared.start, hi = ra__run_last(shared);
    int64_t period = shared.count > 1 ? shared.step / keys.step : 1;
    RA__TRY(add_new(writer, ra__run_clip(keys, keys.start, lo, &skipped), first + 1, last));
    for (int64_t i = 1; i < period; i++) { /* between two shared keys */
        ra_run gap = { lo + i * keys.step, shared.step, shared.count - 1 };
        RA__TRY(add_new(writer, gap, first + 1, last));
    }
    return add_new(writer, ra__run_clip(keys, hi + 1, RA__UNBOUNDED, &skipped), first + 1, last);
}

static ra_status add_keys(const struct ra__pattern_input *input, ra_run keys,
                          struct ra__row_writer *writer)
{
    bool once = of(input->pattern)->options & DEDUP;
    return add_new(writer, keys, 0, once ? ra__row_writer_count(writer) : 0);
}

/* ---- Queries --------------------------------------------------------------------------------- */

/* The branches of these heads: all, or with groups the one of their group. */
static int branch_count(const struct ra__pattern_input *input)
{
    return grouped(input->pattern) ? 1 : of(input->pattern)->branches.count;
}

/* The branch with the `place`-th smallest rate: splitting by those first leaves little to split. */
static int branch_at(const struct ra__pattern_input *input, int place)
{
    const struct ra__ratio *ratios = of(input->pattern)->branches.at;
    int found = input->head_class;
    for (int i = 0; i < of(input->pattern)->branches.count && !grouped(input->pattern); i++) {
        int before = 0;
        for (int k = 0; k < of(input->pattern)->branches.count; k++)
            before += ratios[k].b < ratios[i].b || (ratios[k].b == ratios[i].b && k < i);
        if (before == place) found = i;
    }
    return found;
}

/* Splits q by the branches from `place` on and writes the rows. The segments of q are the same for
 * all its queries, so a branch selects every period-th query of it. */
static ra_status split(const struct ra__pattern_input *input, ra_run q, int place,
                       struct ra__row_writer *writer)
{
    if (place == branch_count(input)) return ra__row_writer_put(writer, q);
    int index = branch_at(input, place);
    ra_run keys = selection(input, index, q.start), hit = ra__run_intersect(q, keys);
    if (hit.count == 0) return split(input, q, place + 1, writer);
    int before = ra__row_writer_count(writer);
    RA__TRY(add_keys(input, keys, writer));
    RA__TRY(split(input, hit, place + 1, writer));
    ra__row_writer_truncate(writer, before);
    if (hit.count == q.count) return RA_OK;
    int64_t rate = of(input->pattern)->branches.at[index].b,
            period = rate / ra__common_divisor(q.step, rate);
    int64_t selected = (hit.start - q.start) / q.step % period;
    int64_t step = period < q.count ? q.step * period : q.step;
    for (int64_t i = 0; i < period && i < q.count; i++) {
        ra_run rest = { q.start + i * q.step, step, (q.count - 1 - i) / period + 1 };
        if (i != selected) RA__TRY(split(input, rest, place + 1, writer));
    }
    return RA_OK;
}

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    return split(input, q, 0, writer);
}

/* The nearest end of a segment. */
static int64_t next_boundary(const ra_pattern *pattern, int64_t position)
{
    int64_t next = RA__UNBOUNDED;
    for (int i = 0; i < of(pattern)->branches.count; i++) {
        int64_t segment = of(pattern)->branches.at[i].a;
        next = ra__min(next, position - position % segment + segment);
    }
    return next;
}

static int64_t period(const ra_pattern *pattern)
{
    int64_t all = 1;
    for (int i = 0; i < of(pattern)->branches.count; i++)
        all = ra__common_multiple(all, of(pattern)->branches.at[i].a);
    return all;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* Offsets by block: where the next block of heads after `head` begins in any branch. */
static int64_t next_block(const ra_pattern *pattern, int q_heads, int64_t head)
{
    int64_t next = q_heads;
    for (int i = 0; i < of(pattern)->branches.count; i++) {
        int64_t block = block_of_heads(q_heads, of(pattern)->branches.at[i].b);
        next = ra__min(next, head - head % block + block);
    }
    return next;
}

/* Heads have the same offsets in all branches if they agree modulo every rate. With offsets by
 * block every head is a class, which is empty unless a block begins there. */
static int head_classes(const ra_pattern *pattern, int q_heads)
{
    if (grouped(pattern)) return of(pattern)->branches.count;
    if (in_blocks(pattern)) return next_block(pattern, q_heads, 0) == q_heads ? 1 : q_heads;
    int64_t all = 1;
    for (int i = 0; i < of(pattern)->branches.count; i++)
        all = ra__common_multiple(all, of(pattern)->branches.at[i].b);
    return (int)ra__min(all, q_heads);
}

/* Groups are as equal as possible, the larger ones first. */
static ra_run head_class(const ra_pattern *pattern, int q_heads, int index)
{
    int classes = head_classes(pattern, q_heads);
    if (in_blocks(pattern)) {
        bool begins = index == 0 || next_block(pattern, q_heads, index - 1) == index;
        int64_t end = next_block(pattern, q_heads, index);
        return (ra_run){ index, 1, begins ? end - index : 0 };
    }
    if (!grouped(pattern)) return (ra_run){ index, classes, (q_heads - 1 - index) / classes + 1 };
    int size = q_heads / classes, larger = q_heads % classes;
    int start = index * size + (index < larger ? index : larger);
    return (ra_run){ start, 1, size + (index < larger) };
}

/* ---- Text ------------------------------------------------------------------------------------ */

static ra_status read(ra_pattern *pattern, struct ra__text args)
{
    struct dilated *dilated = pattern->state;
    return ra__ratios_read(&dilated->branches, pattern->kind, args, (struct ra__ratio){ 1, 1 });
}

/* 0 if it is not an option. */
static unsigned option_of(struct ra__text word)
{
    static const struct {
        const char *word;
        unsigned option;
    } options[] = { { "dedup", DEDUP },
                    { "groups", GROUPS },
                    { "offsets=cyclic", OFFSETS_CYCLIC },
                    { "offsets=block", OFFSETS_BLOCK } };
    for (int i = 0; i < RA__COUNT(options); i++)
        if (ra__text_is(word, options[i].word)) return options[i].option;
    return 0;
}

static ra_status add(ra_pattern *pattern, struct ra__text word, bool *known)
{
    struct dilated *dilated = pattern->state;
    unsigned options = dilated->options | option_of(word);
    if (options & OFFSETS_CYCLIC && options & OFFSETS_BLOCK)
        return ra__fail(RA_ERR_ARGUMENT, "pattern dilated: offsets= is given twice");
    if (options & GROUPS && options & OFFSETS_BLOCK)
        return ra__fail(RA_ERR_ARGUMENT, "pattern dilated: groups gives branch i the offset i mod "
                                         "R; offsets=block does not go with it");
    *known = option_of(word) != 0;
    dilated->options = options;
    return RA_OK;
}

static void write(const ra_pattern *pattern, struct ra__writer *w)
{
    ra__ratios_write(&of(pattern)->branches, ":", w);
    if (of(pattern)->options & DEDUP) ra__write(w, ";dedup");
    if (grouped(pattern)) ra__write(w, ";groups");
    if (in_blocks(pattern)) ra__write(w, ";offsets=block");
}

/* ---- State ----------------------------------------------------------------------------------- */

ra_status ra__dilated_add_branch(ra_pattern *pattern, ra_branch branch)
{
    struct dilated *dilated = pattern->state;
    return ra__ratios_add(&dilated->branches, (struct ra__ratio){ branch.segment, branch.rate });
}

static ra_status clone(struct ra__account *account, const void *from, void *to)
{
    const struct dilated *old = from;
    struct dilated *copy = to;
    copy->options = old->options;
    return ra__ratios_copy(account, &old->branches, &copy->branches);
}

static uint64_t hash(const void *state, uint64_t so_far)
{
    const struct dilated *dilated = state;
    unsigned options = dilated->options & ~(unsigned)OFFSETS_CYCLIC;
    return ra__ratios_hash(&dilated->branches, ra__hash(so_far, &options, sizeof options));
}

static void destroy(void *state)
{
    struct dilated *dilated = state;
    ra__ratios_free(&dilated->branches);
}

static int64_t most_keys(const ra_pattern *pattern)
{
    const struct ra__ratios *branches = &of(pattern)->branches;
    int64_t most = 0;
    for (int i = 0; i < branches->count; i++)
        most = ra__min(most, RA__UNBOUNDED / 4) +
               ra__min(ra__ceil_div(branches->at[i].a, branches->at[i].b), RA__UNBOUNDED / 4);
    return most;
}

const struct ra__pattern_kind ra__pattern_dilated = {
    .name = "dilated",
    .syntax = "dilated:W/R[,W/R...][;dedup][;groups][;offsets=cyclic|block]",
    .summary = "every R-th key of the query's segment of W, over all branches, as LongNet does",
    .samples = "dilated:8/1,16/2 dilated:5/2,12/3,64/7 dilated:8/1,16/2,32/4;dedup "
               "dilated:6/1,10/2,16/3,20/4,300/5;groups dilated:1000/3;causal "
               "dilated:12/2,20/3;offsets=block",
    .sparse = true,
    .state_bytes = sizeof(struct dilated),
    .clone = clone,
    .hash = hash,
    .destroy = destroy,
    .read = read,
    .add = add,
    .write = write,
    .head_classes = head_classes,
    .head_class = head_class,
    .next_boundary = next_boundary,
    .period = period,
    .most_keys = most_keys,
    .see = see,
};
