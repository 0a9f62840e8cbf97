/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.h - the most a machine can do, one unit at a time: multiply-adds of an instruction set,
 * exponentials, bytes read. Kernels are compared with these and are never faster.
 *
 * A folder here is an instruction set with the compiler flags it needs, as in
 * src/backend/cpu/kernel; each file ends in `const struct ceiling` entries that ceiling.list names.
 * They know nothing of attention, clocks and threads. */
#ifndef BENCH_CEILINGS_CEILING_H
#define BENCH_CEILINGS_CEILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ceiling {
    const char *name;
    const char *summary;
    const char *unit;     /* of a thousand million per second: "GFLOP/s", "Gexp/s", "GB/s" */
    const char *needs;    /* the CPU features it needs, human-readable */
    bool (*usable)(void); /* NULL: the compiler does not support it */
    size_t bytes; /* a thread reads, again and again; 0 = none, CEILING_MEMORY = all there are */

    /* Keeps the unit busy on this thread for some rounds, from one with data of its own to read,
     * and returns how much it did. `data` is aligned to 64, `bytes` a multiple of CEILING_LINE. */
    double (*work)(int64_t rounds, const unsigned char *data, size_t bytes);
};

#define CEILING_MEMORY SIZE_MAX
enum { CEILING_LINE = 1024 };

/* The entries of ceiling.list; NULL after the last. */
const struct ceiling *ceiling_at(int index);
const struct ceiling *ceiling_find(const char *name); /* NULL if there is none */

/* NULL if it works here, or why it does not, as a sentence; good until the next call. */
const char *ceiling_absent(const struct ceiling *ceiling);

/* For numbers that must not be optimised away. */
void ceiling_use(const void *numbers);

/* What this CPU has and the system lets us use (cpu.c). */
bool ceiling_has_avx2(void);
bool ceiling_has_avx512(void);
bool ceiling_has_avx512bf16(void);
bool ceiling_has_amx(void);

#endif
