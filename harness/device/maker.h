/* SPDX-License-Identifier: Apache-2.0 */
/* maker.h - what the command does on a device beside attention: synthetic rows made and digests
 * taken in its memory, and its ceilings. The table that a module exports,
 * libringattn_cuda_maker.so for the device cuda. It is beside the plug-in of the device and is
 * found by it. */
#ifndef HARNESS_MAKER_H
#define HARNESS_MAKER_H

#include <stddef.h>

#include "harness/data/recipe.h"

#define MAKER_SYMBOL "ringattn_maker"

enum { MAKER_VERSION = 2 };

/* A value's type; the numbers are those of ra_dtype, which ondevice.c checks. */
enum maker_dtype { MAKER_F32, MAKER_BF16, MAKER_F16 };

/* The most a device can do, one unit at a time; bench/ceilings/ceiling.h has those of CPUs. */
struct maker_ceiling {
    const char *name;
    const char *summary;
    const char *unit; /* of a thousand million per second: "GFLOP/s", "Gexp/s", "GB/s" */
};

/* Functions return NULL, or why they failed. Those with a queue return when their work is on it,
 * the others when it is complete. */
struct maker {
    int version;
    /* The rows of positions first to first + count - 1 of a batch item, packed. */
    const char *(*make)(const struct recipe *recipe, enum maker_dtype dtype, int64_t batch,
                        int64_t first, int64_t count, void *to, void *queue);
    /* Adds the digest of `count` numbers, the first of them number `index` of their tensor. */
    const char *(*add_digest)(enum maker_dtype dtype, const void *from, int64_t index,
                              int64_t count, uint64_t *sum, void *queue);
    /* To the host, when everything on the queue is done. A NULL queue: no work is left. */
    const char *(*fetch)(void *to, const void *from, size_t bytes, void *queue);
    const char *(*put)(void *to, const void *from, size_t bytes); /* from the host */
    const char *(*use)(int number);                    /* makes a device that of this thread */
    const char *(*alloc)(size_t bytes, void **memory); /* on it; cleared */
    void (*free)(void *memory);                        /* accepts NULL */
    /* The ceilings of this thread's device; NULL after the last. */
    const struct maker_ceiling *(*ceiling_at)(int index);
    /* Keeps its unit busy for some hundredths of a second and says how much it did. `bytes` are to
     * be read, where it reads; 0 = enough to be in no cache. */
    const char *(*sample)(int ceiling, size_t bytes, double *rate);
};

/* The maker of a device, e.g. "cuda:0"; NULL if it has none. And the number of that device. */
const struct maker *maker_open(const char *device);
int maker_number(const char *device);

#endif
