/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - a checksum of the bytes of a message: 64 bits, to detect what a network, a driver or a
 * stray write changed. Not secure against deliberate changes.
 *
 * Four accumulators take one word each in rotation. Every step of an accumulator is invertible, and
 * so are the steps that combine them: a change within one word always changes the sum, and any
 * other change is missed about once in 2^64 times. Two multiplications with a rotation between
 * them: after one alone, the highest bit of a word could be cancelled by a single bit of the next.
 * The accumulators are independent, so the speed is nearly that of memory. */
#ifndef RA__CORE_SUM_H
#define RA__CORE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RA__SUM_START UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t ra__sum_step(uint64_t lane, uint64_t word)
{
    lane += word * UINT64_C(0xd6e8feb86659fd93); /* both odd: they have inverses */
    return (lane << 29 | lane >> 35) * UINT64_C(0xa0761d6478bd642f);
}

/* Continues from the sum of the bytes before. The sum depends on where a message is split, not on
 * its address. */
static inline uint64_t ra__sum(uint64_t sum, const void *data, size_t bytes)
{
    enum { LANES = 4, WORD = sizeof(uint64_t) };
    const unsigned char *at = data;
    uint64_t lanes[LANES], words[LANES] = { 0 };
    for (int i = 0; i < LANES; i++) lanes[i] = ra__sum_step(sum, (uint64_t)i);
    size_t left = bytes;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < LANES; i++) lanes[i] = ra__sum_step(lanes[i], words[i]);
    }
    for (int i = 0; i < LANES; i++) words[i] = 0;
    if (left) memcpy(words, at, left);
    sum = ra__sum_step(sum, bytes);
    for (int i = 0; i < LANES; i++) sum = ra__sum_step(sum, ra__sum_step(lanes[i], words[i]));
    return sum;
}

#endif
