/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - which keys a query sees, by the formulas of the pattern, one pair at a time. */
#include "mask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/problem/places.h"
#include "scan.h"

/* ---- Rules ----------------------------------------------------------------------------------- */

/* A query and a key: original positions, and their indices in the order. */
struct pair {
    int64_t head, query, key;
    int64_t query_index, key_index;
};

static int count_full(const struct mask *mask, const struct pair *p)
{
    (void)mask;
    (void)p;
    return 1;
}

static int count_causal(const struct mask *mask, const struct pair *p)
{
    (void)mask;
    return p->key <= p->query;
}

static int count_window(const struct mask *mask, const struct pair *p)
{
    return p->key_index >= p->query_index - mask->args[0] &&
           p->key_index <= p->query_index + mask->args[1];
}

static void range_window(const struct mask *mask, int64_t query, int64_t *first, int64_t *end)
{
    *first = query - mask->args[0];
    *end = query + mask->args[1] + 1;
}

static int64_t most_window(const struct mask *mask) { return mask->args[0] + mask->args[1] + 1; }

static int count_prefix(const struct mask *mask, const struct pair *p)
{
    return p->key < mask->args[0] || p->key <= p->query;
}

static int read_dilated(struct mask *mask, const char **at)
{
    return dilation_open(&mask->dilation, at);
}

static int count_dilated(const struct mask *mask, const struct pair *p)
{
    return dilation_count(&mask->dilation, mask->heads, p->head, p->query_index, p->key_index);
}

static void range_dilated(const struct mask *mask, int64_t query, int64_t *first, int64_t *end)
{
    dilation_range(&mask->dilation, query, first, end);
}

static int64_t most_dilated(const struct mask *mask) { return dilation_most(&mask->dilation); }

static int read_blocks(struct mask *mask, const char **at)
{
    return blocks_open(&mask->blocks, at);
}

static int count_blocks(const struct mask *mask, const struct pair *p)
{
    return blocks_see(&mask->blocks, p->head, p->query_index, p->key_index);
}

/* What a pattern starts with, how many numbers follow (or what reads the rest), and how often a
 * query sees a key. Where a long sequence has few keys for a query: the range they are in, by
 * index, and the most that such a range has. */
static const struct mask_rule {
    const char *word;
    int args;
    int (*read)(struct mask *mask, const char **at);
    int (*count)(const struct mask *mask, const struct pair *pair);
    void (*range)(const struct mask *mask, int64_t query, int64_t *first, int64_t *end);
    int64_t (*most)(const struct mask *mask);
} rules[] = {
    { .word = "full", .count = count_full },
    { .word = "causal", .count = count_causal },
    { .word = "window:",
      .args = 2,
      .count = count_window,
      .range = range_window,
      .most = most_window },
    { .word = "prefix:", .args = 1, .count = count_prefix },
    { .word = "dilated:",
      .read = read_dilated,
      .count = count_dilated,
      .range = range_dilated,
      .most = most_dilated },
    { .word = "blocks:", .read = read_blocks, .count = count_blocks },
};

/* ---- Reading --------------------------------------------------------------------------------- */

/* "0,120,1248,4232" */
static int read_documents(struct mask *mask, const char **at)
{
    size_t count = scan_parts(*at);
    free(mask->bounds);
    mask->bounds = malloc(count * sizeof *mask->bounds);
    if (!mask->bounds) return fault("out of memory: %zu documents", count);
    for (size_t i = 0; i < count; i++) {
        mask->bounds[i] = scan_whole(at);
        scan_word(at, ",");
    }
    mask->bound_count = (int64_t)count;
    return EXIT_PASS;
}

static int read_rule(struct mask *mask, const char **at, bool *understood)
{
    int i = 0;
    while (i < COUNT(rules) && !scan_word(at, rules[i].word)) i++;
    *understood = i < COUNT(rules);
    if (!*understood) return EXIT_PASS;
    mask->rule = &rules[i];
    if (rules[i].read) return rules[i].read(mask, at);
    for (int a = 0; a < rules[i].args; a++)
        if (!a || scan_word(at, ",")) mask->args[a] = scan_whole(at);
    return EXIT_PASS;
}

/* What follows a ';'. */
static int read_option(struct mask *mask, const char **at, bool *understood)
{
    *understood = true;
    if (scan_word(at, "docs=")) return read_documents(mask, at);
    if (scan_word(at, "causal")) mask->causal = true;
    else if (scan_word(at, "dedup")) mask->dilation.dedup = true;
    else if (scan_word(at, "groups")) mask->dilation.groups = true;
    else if (scan_word(at, "offsets=block")) mask->dilation.block = true;
    else if (scan_word(at, "offsets=cyclic")) mask->dilation.block = false;
    else return blocks_term(&mask->blocks, at, understood);
    return EXIT_PASS;
}

/* One head, sequential order. */
static int read_pattern(struct mask *mask, const char *pattern)
{
    const char *at = pattern ? pattern : "full";
    bool understood;
    *mask = (struct mask){ .heads = 1 };
    int status = read_rule(mask, &at, &understood);
    while (!status && understood && *at) {
        understood = scan_word(&at, ";");
        if (understood) status = read_option(mask, &at, &understood);
    }
    if (!status && !understood)
        status = fault("the oracle does not understand the pattern %.80s", pattern);
    if (status) mask_close(mask);
    return status;
}

int mask_open(struct mask *mask, const struct mask_setup *setup)
{
    int64_t *positions;
    int status = read_pattern(mask, setup->pattern);
    if (status) return status;
    mask->heads = setup->heads;
    status = places_open(setup->order, setup->length, &positions);
    if (!status && positions) {
        mask->indices = places_invert(positions, setup->length);
        if (!mask->indices)
            status = fault("the oracle is out of memory: %" PRId64 " positions", setup->length);
        free(positions);
    }
    if (status) mask_close(mask);
    return status;
}

void mask_close(struct mask *mask)
{
    dilation_close(&mask->dilation);
    blocks_close(&mask->blocks);
    free(mask->bounds);
    free(mask->indices);
    *mask = (struct mask){ .rule = NULL };
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* The document of a position, as [*first, *end); everything where there are no documents. */
static void find_document(const struct mask *mask, int64_t position, int64_t *first, int64_t *end)
{
    *first = -SCAN_FAR;
    *end = SCAN_FAR;
    if (!mask->bounds) return;
    int64_t low = 0, high = mask->bound_count - 1; /* bounds[low] <= position < bounds[high] */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (mask->bounds[middle] <= position) low = middle;
        else high = middle;
    }
    *first = mask->bounds[low];
    *end = mask->bounds[high];
}

static bool same_document(const struct mask *mask, int64_t position, int64_t key)
{
    int64_t first, end;
    if (!mask->bounds) return true;
    find_document(mask, position, &first, &end);
    return key >= first && key < end;
}

void mask_range(const struct mask *mask, int64_t position, int64_t *first, int64_t *end)
{
    int64_t from, to;
    find_document(mask, position, first, end);
    if (!mask->rule->range || mask->indices) return; /* keys of an order are anywhere */
    mask->rule->range(mask, position, &from, &to);
    if (from > *first) *first = from;
    if (to < *end) *end = to;
}

int64_t mask_most(const struct mask *mask, int64_t length)
{
    if (!mask->rule->most || mask->indices) return length;
    const int64_t most = mask->rule->most(mask);
    return most < length ? most : length;
}

int mask_count(const struct mask *mask, int64_t head, int64_t position, int64_t key)
{
    struct pair pair = { head, position, key, position, key };
    if (mask->causal && key > position) return 0;
    if (!same_document(mask, position, key)) return 0;
    if (mask->indices) {
        pair.query_index = mask->indices[position];
        pair.key_index = mask->indices[key];
    }
    return mask->rule->count(mask, &pair);
}
