/* SPDX-License-Identifier: Apache-2.0 */
/* philox.c - Philox4x32-10 for the oracle: ten rounds of two 32 x 32 bit products, whose high
 * halves are mixed with the other words and with a key that advances every round. */
#include "philox.h"

enum { ROUNDS = 10 };

/* The multipliers of words 0 and 2, and the increments of the two halves of the key. */
static const uint64_t multiplier[2] = { 0xD2511F53u, 0xCD9E8D57u };
static const uint32_t growth[2] = { 0x9E3779B9u, 0xBB67AE85u };

uint32_t philox_word(uint64_t key, const uint32_t counter[4], int word)
{
    uint32_t x[4] = { counter[0], counter[1], counter[2], counter[3] };
    uint32_t half[2] = { (uint32_t)(key & 0xffffffffu), (uint32_t)(key >> 32) };
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t first = multiplier[0] * x[0], second = multiplier[1] * x[2];
        const uint32_t next[4] = { (uint32_t)(second >> 32) ^ x[1] ^ half[0], (uint32_t)second,
                                   (uint32_t)(first >> 32) ^ x[3] ^ half[1], (uint32_t)first };
        for (int i = 0; i < 4; i++) x[i] = next[i];
        for (int i = 0; i < 2; i++) half[i] += growth[i];
    }
    return x[word];
}
