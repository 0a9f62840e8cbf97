/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - building layouts from a rule or from the caller's runs. */
#include "plan/layout.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"

#define RA__PARTITION(name) extern const struct ra__partition ra__partition_##name;
#include "plan/partition.list"
#undef RA__PARTITION

static const struct ra__partition *const partitions[] = {
#define RA__PARTITION(name) &ra__partition_##name,
#include "plan/partition.list"
#undef RA__PARTITION
};

const struct ra__partition *ra__partition_at(int index)
{
    return index >= 0 && index < RA__COUNT(partitions) ? partitions[index] : NULL;
}

/* Joins `next` to `run` if both together are one run; a single position has any step. */
static bool join(ra_run *run, ra_run next)
{
    int64_t gap = next.start - ra__run_last(*run);
    if (run->count > 1 && run->step != gap) return false;
    if (next.count > 1 && next.step != gap) return false;
    *run = (ra_run){ run->start, gap, run->count + next.count };
    return true;
}

ra_status ra__layout_append(ra_layout *layout, int rank, ra_run run)
{
    if (run.count == 0) return RA_OK;
    int64_t used = layout->run_count;
    bool has_run = used > layout->first[rank];
    if (!has_run || !join(&layout->runs[used - 1].at, run)) {
        struct ra__shard_run *runs = ra__grow(NULL, layout->runs, (size_t)used,
                                              sizeof *layout->runs);
        if (!runs) return ra__fail(RA_ERR_MEMORY, "layout: %" PRId64 " runs", used + 1);
        layout->runs = runs;
        if (run.count == 1) run.step = 1;
        int64_t max_last = has_run ? runs[used - 1].max_last : 0;
        runs[used] = (struct ra__shard_run){ run, layout->count[rank], max_last };
        layout->run_count++;
    }
    struct ra__shard_run *last = &layout->runs[layout->run_count - 1];
    last->max_last = ra__max(last->max_last, ra__run_last(last->at));
    layout->count[rank] += run.count;
    layout->first[rank + 1] = layout->run_count;
    return RA_OK;
}

ra_status ra__layout_create_empty(int64_t length, int ranks, ra_layout **out)
{
    if (length < 0 || length > RA__UNBOUNDED || ranks < 1)
        return ra__fail(RA_ERR_ARGUMENT, "layout: %" PRId64 " positions over %d ranks", length,
                        ranks);
    ra_layout *layout = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *layout);
    if (!layout) return ra__fail(RA_ERR_MEMORY, "layout: %zu bytes", sizeof *layout);
    layout->length = length;
    layout->ranks = ranks;
    size_t n = (size_t)ranks;
    layout->first = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, n + 1, sizeof *layout->first);
    layout->count = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, n, sizeof *layout->count);
    if (!layout->first || !layout->count) {
        ra_layout_destroy(layout);
        return ra__fail(RA_ERR_MEMORY, "layout: %d ranks", ranks);
    }
    *out = layout;
    return RA_OK;
}

void ra_layout_destroy(ra_layout *layout)
{
    if (!layout) return;
    ra__free(layout->runs);
    ra__free(layout->first);
    ra__free(layout->count);
    ra__free(layout);
}

/* The rule inside positions [lo, hi), for one rank. */
static ra_status append_rule(ra_layout *layout, const struct ra__partition *rule, int rank,
                             int64_t lo, int64_t hi)
{
    ra_run runs[RA__RULE_RUNS];
    int count = rule->runs(hi - lo, layout->ranks, rank, runs);
    for (int i = 0; i < count; i++) {
        runs[i].start += lo;
        RA__TRY(ra__layout_append(layout, rank, runs[i]));
    }
    return RA_OK;
}

static ra_status fill_by_rule(ra_layout *layout, const struct ra__partition *rule,
                              const int64_t *bounds, int64_t count)
{
    for (int rank = 0; rank < layout->ranks; rank++) {
        layout->first[rank + 1] = layout->first[rank];
        for (int64_t i = 0; i + 1 < count; i++)
            RA__TRY(append_rule(layout, rule, rank, bounds[i], bounds[i + 1]));
    }
    return RA_OK;
}

static ra_status create_by_rule(const struct ra__partition *rule, const int64_t *bounds,
                                int64_t count, int ranks, ra_layout **out)
{
    ra_layout *layout;
    RA__TRY(ra__layout_create_empty(bounds[count - 1], ranks, &layout));
    ra_status status = fill_by_rule(layout, rule, bounds, count);
    if (status != RA_OK) {
        ra_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return RA_OK;
}

static const char *name_at(int index)
{
    return ra__partition_at(index) ? partitions[index]->name : NULL;
}

/* Splits "zigzag;perdoc" into its rule and its option. */
static ra_status parse_partition(const char *text, const struct ra__partition **rule,
                                 bool *per_document)
{
    const char *name = text ? text : partitions[0]->name;
    const char *option = strchr(name, ';');
    size_t length = option ? (size_t)(option - name) : strlen(name);
    if (option && strcmp(option, ";perdoc"))
        return ra__fail(RA_ERR_ARGUMENT, "partition: \"%.80s\" is not known; there is ;perdoc",
                        option);
    *per_document = option != NULL;
    for (int i = 0; i < RA__COUNT(partitions); i++) {
        *rule = partitions[i];
        if (strlen(partitions[i]->name) == length && !strncmp(partitions[i]->name, name, length))
            return RA_OK;
    }
    return ra__fail_unknown("partition", name, length, name_at);
}

ra_status ra__layout_create(const char *partition, int64_t length, int ranks,
                            const ra_pattern *pattern, ra_layout **out)
{
    const struct ra__partition *rule;
    bool per_document;
    RA__TRY(parse_partition(partition, &rule, &per_document));
    if (per_document && (!pattern || !pattern->bounds))
        return ra__fail(RA_ERR_ARGUMENT, "partition %s: the pattern has no documents", partition);
    if (!per_document) return create_by_rule(rule, (int64_t[]){ 0, length }, 2, ranks, out);
    RA__TRY(ra__pattern_check_documents(pattern, length, length));
    return create_by_rule(rule, pattern->bounds, pattern->bound_count, ranks, out);
}

ra_status ra__layout_create_parts(const char *partition, const int64_t *bounds, int64_t count,
                                  int ranks, ra_layout **out)
{
    const struct ra__partition *rule;
    bool per_document;
    RA__TRY(parse_partition(partition, &rule, &per_document));
    if (per_document)
        return ra__fail(RA_ERR_ARGUMENT,
                        "partition %s: each part is divided on its own already; leave out ;perdoc",
                        partition);
    return create_by_rule(rule, bounds, count, ranks, out);
}

/* Records in owner[] which rank owns each position: rank + 1, or 0 for none yet. */
static ra_status mark_owner(const ra_layout *layout, int rank, ra_run run, int32_t *owner)
{
    bool fits = run.start >= 0 && run.step >= 1 && run.count >= 0 && run.count <= layout->length &&
                run.start <= layout->length && run.step <= ra__max(layout->length, 1);
    /* Checked by division: count and step may each be as large as the length. */
    if (fits && run.count > 0)
        fits = run.count - 1 <= (layout->length - 1 - run.start) / run.step &&
               run.start < layout->length;
    if (!fits)
        return ra__fail(RA_ERR_ARGUMENT,
                        "layout: run %" PRId64 " step %" PRId64 " count %" PRId64
                        " of rank %d leaves the %" PRId64 " positions",
                        run.start, run.step, run.count, rank, layout->length);
    for (int64_t i = 0; i < run.count; i++) {
        int32_t *slot = &owner[run.start + i * run.step];
        if (*slot)
            return ra__fail(RA_ERR_ARGUMENT,
                            "layout: position %" PRId64 " is owned by rank %d and by rank %d",
                            run.start + i * run.step, *slot - 1, rank);
        *slot = rank + 1;
    }
    return RA_OK;
}

static ra_status fill_by_owner(ra_layout *layout, const int32_t *owner)
{
    for (int64_t i = 0; i < layout->length; i++)
        if (!owner[i])
            return ra__fail(RA_ERR_ARGUMENT, "layout: position %" PRId64 " is owned by nobody", i);
    for (int rank = 0; rank < layout->ranks; rank++) {
        layout->first[rank + 1] = layout->first[rank];
        for (int64_t i = 0; i < layout->length; i++)
            if (owner[i] == rank + 1) RA__TRY(ra__layout_append(layout, rank, (ra_run){ i, 1, 1 }));
    }
    return RA_OK;
}

ra_status ra__layout_create_custom(int64_t length, int ranks, const ra_run *runs,
                                   const int64_t *counts, ra_layout **out)
{
    ra_layout *layout;
    RA__TRY(ra__layout_create_empty(length, ranks, &layout));
    int32_t *owner = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)length, sizeof *owner);
    ra_status status = owner ? RA_OK
                             : ra__fail(RA_ERR_MEMORY, "layout: %" PRId64 " positions", length);
    for (int rank = 0; rank < ranks && status == RA_OK; rank++) {
        if (counts[rank] < 0)
            status = ra__fail(RA_ERR_ARGUMENT, "layout: rank %d has %" PRId64 " runs", rank,
                              counts[rank]);
        for (int64_t i = 0; i < counts[rank] && status == RA_OK; i++)
            status = mark_owner(layout, rank, *runs++, owner);
    }
    if (status == RA_OK) status = fill_by_owner(layout, owner);
    ra__free(owner);
    if (status != RA_OK) {
        ra_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return RA_OK;
}

ra_status ra__layout_copy(const ra_layout *layout, ra_layout **out)
{
    ra_layout *copy;
    RA__TRY(ra__layout_create_empty(layout->length, layout->ranks, &copy));
    for (int rank = 0; rank < layout->ranks; rank++) {
        copy->first[rank + 1] = copy->first[rank];
        for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
            ra_status status = ra__layout_append(copy, rank, layout->runs[i].at);
            if (status == RA_OK) continue;
            ra_layout_destroy(copy);
            return status;
        }
    }
    *out = copy;
    return RA_OK;
}

/* The first of `rank`'s runs that contains position `from` or a later one; first[rank + 1] if
 * none. */
static int64_t find_run(const ra_layout *layout, int rank, int64_t from)
{
    int64_t low = layout->first[rank], high = layout->first[rank + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (layout->runs[middle].max_last < from) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool ra__layout_keys_of_run(const struct ra__shard_run *run, const struct ra__tile *tile,
                            struct ra__key_run *out)
{
    ra_run keys = ra__run_intersect(tile->keys, run->at);
    if (keys.count == 0) return false;
    *out = (struct ra__key_run){ .token = run->token + (keys.start - run->at.start) / run->at.step,
                                 .token_step = keys.count > 1 ? keys.step / run->at.step : 1,
                                 .pos = keys.start,
                                 .pos_step = keys.step,
                                 .count = keys.count,
                                 .band = tile->band };
    return true;
}

bool ra__layout_next_keys(const ra_layout *layout, int owner, const struct ra__tile *tile,
                          int64_t *cursor, struct ra__key_run *out)
{
    int64_t last = ra__run_last(tile->keys), end = layout->first[owner + 1];
    if (*cursor == 0) *cursor = find_run(layout, owner, tile->keys.start);
    while (*cursor < end && layout->runs[*cursor].at.start <= last)
        if (ra__layout_keys_of_run(&layout->runs[(*cursor)++], tile, out)) return true;
    return false;
}

int64_t ra__layout_run_at(const ra_layout *layout, int rank, int64_t token)
{
    int64_t low = layout->first[rank], high = layout->first[rank + 1];
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (layout->runs[middle].token <= token) low = middle;
        else high = middle;
    }
    return low;
}

void ra__layout_charge(struct ra__account *account, ra_layout *layout)
{
    void *parts[] = { layout, layout->runs, layout->first, layout->count };
    for (int i = 0; i < RA__COUNT(parts); i++) ra__charge(account, parts[i]);
}

uint64_t ra__layout_hash(const ra_layout *layout)
{
    uint64_t hash = ra__hash(RA__HASH_START, layout->first,
                             (size_t)(layout->ranks + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < layout->run_count; i++)
        hash = ra__hash(hash, &layout->runs[i].at, sizeof layout->runs[i].at);
    return hash;
}
