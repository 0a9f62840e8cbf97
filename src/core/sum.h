/* sum.h - a checksum of the bytes of a message: 64 bits, to find what a wire, a driver or a stray
 * write changed. Not for hostile input.
 *
 * Four lanes take a word each in turn, and each step of a lane can be undone, as can the steps that
 * bring the lanes together: a change within one word, however small, always changes the sum, and
 * any other one stays unseen about once in 2^64 times. Two products with a turn of bits between
 * them: one alone leaves the highest bit of a word where a single bit of the next could undo it.
 * The lanes do not wait for one another, so memory is nearly all that limits it. */
#ifndef RA__CORE_SUM_H
#define RA__CORE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RA__SUM_START UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t ra__sum_step(uint64_t lane, uint64_t word)
{
    lane += word * UINT64_C(0xd6e8feb86659fd93); /* odd, both: they have inverses */
    return (lane << 29 | lane >> 35) * UINT64_C(0xa0761d6478bd642f);
}

/* Goes on from the sum of what lies before. Where a message is cut counts, its address does not. */
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
