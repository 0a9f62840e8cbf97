/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h - the blocks pattern for the oracle, by the table of its terms, one pair at a time. */
#ifndef HARNESS_BLOCKS_H
#define HARNESS_BLOCKS_H

#include "harness/base/complain.h"

enum block_rule {
    BLOCK_LOCAL,
    BLOCK_GLOBAL,
    BLOCK_STRIDED,
    BLOCK_DILATED,
    BLOCK_LEVEL,
    BLOCK_RANDOM,
    BLOCK_BITMAP
};

struct blocks {
    int64_t size;
    struct block_term {
        enum block_rule rule;
        int64_t a, b;
    } * terms; /* owned; a level each */
    int count;
    double density; /* of random */
    uint64_t seed;
    unsigned char *bitmap; /* owned; [bitmap_heads, bitmap_side, bitmap_side] */
    int64_t bitmap_heads, bitmap_side;
};

/* Reads the block size and moves past it. */
int blocks_open(struct blocks *blocks, const char **at);
void blocks_close(struct blocks *blocks);

/* Reads one term ("local=4") if the text starts with one: sets *understood. */
int blocks_term(struct blocks *blocks, const char **at, bool *understood);

/* Does query `query` of `head` see `key`? Both are indices. */
bool blocks_see(const struct blocks *blocks, int64_t head, int64_t query, int64_t key);

#endif
