/* mask.c - who sees whom, by the formulas of the pattern, one pair at a time. */
#include "mask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "places.h"
#include "scan.h"

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
    static const struct {
        const char *word;
        enum mask_rule rule;
    } rules[] = { { "full", MASK_FULL },        { "causal", MASK_CAUSAL },
                  { "window:", MASK_WINDOW },   { "prefix:", MASK_PREFIX },
                  { "dilated:", MASK_DILATED }, { "blocks:", MASK_BLOCKS } };
    int i = 0;
    while (i < COUNT(rules) && !scan_word(at, rules[i].word)) i++;
    *understood = i < COUNT(rules);
    if (!*understood) return EXIT_PASS;
    mask->rule = rules[i].rule;
    if (mask->rule == MASK_DILATED) return dilation_open(&mask->dilation, at);
    if (mask->rule == MASK_BLOCKS) return blocks_open(&mask->blocks, at);
    if (mask->rule == MASK_PREFIX) mask->prefix = scan_whole(at);
    if (mask->rule == MASK_WINDOW) {
        mask->left = scan_whole(at);
        if (scan_word(at, ",")) mask->right = scan_whole(at);
    }
    return EXIT_PASS;
}

/* What stands behind a ';'. */
static int read_option(struct mask *mask, const char **at, bool *understood)
{
    *understood = true;
    if (scan_word(at, "docs=")) return read_documents(mask, at);
    if (scan_word(at, "causal")) mask->causal = true;
    else if (scan_word(at, "dedup")) mask->dilation.dedup = true;
    else if (scan_word(at, "groups")) mask->dilation.groups = true;
    else return blocks_term(&mask->blocks, at, understood);
    return EXIT_PASS;
}

int mask_open(struct mask *mask, const char *pattern)
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

int mask_open_for(struct mask *mask, const struct mask_setup *setup)
{
    int64_t *positions;
    int status = mask_open(mask, setup->pattern);
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
    *mask = (struct mask){ .rule = MASK_FULL };
}

/* ---- Asking ---------------------------------------------------------------------------------- */

void mask_document(const struct mask *mask, int64_t position, int64_t *first, int64_t *end)
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
    mask_document(mask, position, &first, &end);
    return key >= first && key < end;
}

int mask_count(const struct mask *mask, int64_t head, int64_t position, int64_t key)
{
    if (mask->causal && key > position) return 0;
    if (!same_document(mask, position, key)) return 0;
    int64_t query_index = mask->indices ? mask->indices[position] : position;
    int64_t key_index = mask->indices ? mask->indices[key] : key;
    switch (mask->rule) {
    case MASK_FULL: return 1;
    case MASK_CAUSAL: return key <= position;
    case MASK_PREFIX: return key < mask->prefix || key <= position;
    case MASK_WINDOW:
        return key_index >= query_index - mask->left && key_index <= query_index + mask->right;
    case MASK_DILATED:
        return dilation_count(&mask->dilation, mask->heads, head, query_index, key_index);
    case MASK_BLOCKS: return blocks_see(&mask->blocks, head, query_index, key_index);
    }
    return 0;
}

bool mask_sees(const struct mask *mask, int64_t position, int64_t key)
{
    return mask_count(mask, 0, position, key) > 0;
}
