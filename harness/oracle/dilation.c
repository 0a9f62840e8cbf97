/* SPDX-License-Identifier: Apache-2.0 */
/* dilation.c - the dilated pattern for the oracle, by its formulas, one pair at a time. */
#include "dilation.h"

#include <stdlib.h>

#include "scan.h"

int dilation_open(struct dilation *d, const char **at)
{
    size_t count = scan_parts(*at);
    *d = (struct dilation){ .branches = calloc(count, sizeof *d->branches) };
    if (!d->branches) return fault("the oracle is out of memory: %zu branches", count);
    do {
        struct dilation_branch *branch = &d->branches[d->count++];
        branch->segment = scan_whole(at);
        if (scan_word(at, "/")) branch->rate = scan_whole(at);
        if (branch->segment < 1 || branch->rate < 1)
            return fault("the oracle does not understand branch %d", d->count);
    } while (scan_word(at, ","));
    return EXIT_PASS;
}

void dilation_close(struct dilation *d)
{
    free(d->branches);
    *d = (struct dilation){ .count = 0 };
}

/* Both in one segment, and both on the branch's grid inside it? */
static bool branch_sees(const struct dilation_branch *b, int64_t offset, int64_t query, int64_t key)
{
    int64_t start = query - query % b->segment;
    if (key < start || key >= start + b->segment) return false;
    int64_t from_query = query - start - offset, from_key = key - start - offset;
    return from_query >= 0 && from_key >= 0 && from_query % b->rate == 0 && from_key % b->rate == 0;
}

/* The group of a head: the first heads mod groups of them are one head larger. */
static int group_of(int64_t heads, int64_t groups, int64_t head)
{
    int64_t small = heads / groups, larger = heads % groups;
    if (head < larger * (small + 1)) return (int)(head / (small + 1));
    return (int)(larger + (head - larger * (small + 1)) / small);
}

/* Of a head in a branch: j mod r, or the number of its block of heads. */
static int64_t offset_of(const struct dilation *d, int64_t rate, int64_t heads, int64_t head)
{
    int64_t block = heads / rate + (heads % rate > 0);
    return d->block ? head / block : head % rate;
}

int dilation_count(const struct dilation *d, int64_t heads, int64_t head, int64_t query,
                   int64_t key)
{
    int count = 0;
    if (d->groups) {
        int own = group_of(heads, d->count, head);
        return branch_sees(&d->branches[own], own % d->branches[own].rate, query, key);
    }
    for (int i = 0; i < d->count; i++)
        count += branch_sees(&d->branches[i], offset_of(d, d->branches[i].rate, heads, head), query,
                             key);
    return d->dedup && count > 1 ? 1 : count;
}

void dilation_range(const struct dilation *d, int64_t query, int64_t *first, int64_t *end)
{
    *first = *end = query;
    for (int i = 0; i < d->count; i++) {
        int64_t segment = d->branches[i].segment, start = query - query % segment;
        if (start < *first) *first = start;
        if (start + segment > *end) *end = start + segment;
    }
}

/* Segments of the same query overlap: less than twice the longest. */
int64_t dilation_most(const struct dilation *d)
{
    int64_t longest = 1;
    for (int i = 0; i < d->count; i++)
        if (d->branches[i].segment > longest) longest = d->branches[i].segment;
    return 2 * longest;
}
