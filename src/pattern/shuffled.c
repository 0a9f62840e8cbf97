/* SPDX-License-Identifier: Apache-2.0 */
/* shuffled.c - positions in random order, the same for the same seed: for comparison, to see what
 * locality is worth. */
#include "core/philox.h"
#include "pattern/order.h"
#include "pattern/text.h"

/* The last word of the counter: dropout has its batch items there and random blocks 2^32 - 1. */
#define SHUFFLE 0xfffffffeu

/* Fisher-Yates; lengths below 2^31 make the remainder of a word even enough for a comparison. */
static ra_status fill(const char *args, int64_t length, int32_t *origin)
{
    uint64_t seed;
    if (!args || !ra__text_seed(ra__text_of(args), &seed))
        return ra__order_misread(&ra__order_shuffled, args);
    for (int64_t i = 0; i < length; i++) origin[i] = (int32_t)i;
    for (int64_t i = length - 1; i > 0; i--) {
        struct ra__philox random = ra__philox(seed, (uint32_t)i, 0, 0, SHUFFLE);
        int64_t other = (int64_t)random.word[0] % (i + 1);
        int32_t position = origin[i];
        origin[i] = origin[other];
        origin[other] = position;
    }
    return RA_OK;
}

const struct ra__order_kind ra__order_shuffled = {
    .name = "shuffled",
    .syntax = "shuffled:SEED",
    .summary = "positions at random, for comparison",
    .samples = "shuffled:7",
    .fill = fill,
};
