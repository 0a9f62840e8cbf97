/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - the blocks pattern for the oracle, by the table of its terms, one pair at a time. */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "harness/files/npy.h"
#include "harness/base/philox.h"
#include "scan.h"

/* ---- Reading --------------------------------------------------------------------------------- */

int blocks_open(struct blocks *blocks, const char **at)
{
    *blocks = (struct blocks){ .size = scan_whole(at) };
    return blocks->size ? EXIT_PASS : fault("the oracle does not understand the block size");
}

void blocks_close(struct blocks *blocks)
{
    free(blocks->terms);
    free(blocks->bitmap);
    *blocks = (struct blocks){ .size = 0 };
}

static int add_term(struct blocks *blocks, enum block_rule rule, int64_t a, int64_t b)
{
    size_t count = (size_t)blocks->count + 1;
    struct block_term *terms = realloc(blocks->terms, count * sizeof *terms);
    if (!terms) return fault("the oracle is out of memory: %zu terms", count);
    terms[blocks->count++] = (struct block_term){ rule, a, b };
    blocks->terms = terms;
    return EXIT_PASS;
}

/* "4" or "2/3" */
static int read_pair(struct blocks *blocks, enum block_rule rule, const char **at)
{
    int64_t a = scan_whole(at), b = scan_word(at, "/") ? scan_whole(at) : 0;
    return add_term(blocks, rule, a, b);
}

static int read_bitmap(struct blocks *blocks, const char **at)
{
    struct npy npy;
    size_t length = strcspn(*at, ";");
    char *path = strndup(*at, length);
    if (!path) return fault("the oracle is out of memory: %zu bytes", length);
    *at += length;
    int status = npy_read_kind("bitmap", path, NPY_OF_MASK, &npy);
    free(path);
    if (status) return status;
    free(blocks->bitmap);
    blocks->bitmap = npy.data;
    blocks->bitmap_heads = npy.axes == 3 ? npy.shape[0] : 1;
    blocks->bitmap_side = npy.shape[npy.axes - 1];
    return add_term(blocks, BLOCK_BITMAP, 0, 0);
}

static int read_levels(struct blocks *blocks, const char **at)
{
    int status = EXIT_PASS;
    do status = read_pair(blocks, BLOCK_LEVEL, at);
    while (!status && scan_word(at, ","));
    return status;
}

int blocks_term(struct blocks *blocks, const char **at, bool *understood)
{
    static const struct {
        const char *word;
        enum block_rule rule;
    } pairs[] = { { "local=", BLOCK_LOCAL },
                  { "global=", BLOCK_GLOBAL },
                  { "strided=", BLOCK_STRIDED },
                  { "dilated=", BLOCK_DILATED } };
    *understood = true;
    for (int i = 0; i < COUNT(pairs); i++)
        if (scan_word(at, pairs[i].word)) return read_pair(blocks, pairs[i].rule, at);
    if (scan_word(at, "levels=")) return read_levels(blocks, at);
    if (scan_word(at, "bitmap=")) return read_bitmap(blocks, at);
    if (scan_word(at, "random=")) {
        blocks->density = scan_real(at);
        return add_term(blocks, BLOCK_RANDOM, 0, 0);
    }
    *understood = scan_word(at, "seed=");
    if (*understood) { /* all 64 bits of it, unlike scan_whole() */
        char *end;
        blocks->seed = strtoull(*at, &end, 10);
        *at = end;
    }
    return EXIT_PASS;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static bool random_sees(const struct blocks *blocks, int64_t head, int64_t i, int64_t j)
{
    const uint32_t counter[4] = { (uint32_t)j, (uint32_t)i, (uint32_t)head, UINT32_MAX };
    return (double)philox_word(blocks->seed, counter, 0) < blocks->density * 0x1p32;
}

static bool bitmap_sees(const struct blocks *blocks, int64_t head, int64_t i, int64_t j)
{
    int64_t plane = blocks->bitmap_heads == 1 ? 0 : head;
    return blocks->bitmap[(plane * blocks->bitmap_side + i) * blocks->bitmap_side + j];
}

static bool term_sees(const struct blocks *blocks, const struct block_term *t, int64_t head,
                      int64_t i, int64_t j)
{
    int64_t distance = i > j ? i - j : j - i;
    switch (t->rule) {
    case BLOCK_LOCAL: return distance <= t->a;
    case BLOCK_GLOBAL: return i < t->a || j < t->a;
    case BLOCK_STRIDED: return j % t->a == 0 || i == j;
    case BLOCK_DILATED: return distance % t->a == 0 && distance / t->a <= t->b;
    case BLOCK_LEVEL: return i == j || (i % t->a == 0 && distance <= t->b);
    case BLOCK_RANDOM: return i == j || random_sees(blocks, head, i, j);
    case BLOCK_BITMAP: return bitmap_sees(blocks, head, i, j);
    }
    return false;
}

bool blocks_see(const struct blocks *blocks, int64_t head, int64_t query, int64_t key)
{
    int64_t i = query / blocks->size, j = key / blocks->size;
    for (int t = 0; t < blocks->count; t++)
        if (term_sees(blocks, &blocks->terms[t], head, i, j)) return true;
    return false;
}
