/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - one walk over the memory of a plan. With a counting arena it answers how many bytes the
 * plan will take; with a real one the same walk takes them. What takes memory fills it in only
 * where the arena is real.
 *
 * Arrays in host memory come out of one block, whose size the counting walk found: they are freed
 * together, with the block. */
#ifndef RA__CORE_ARENA_H
#define RA__CORE_ARENA_H

#include "core/buffers.h"

struct ra__arena {
    bool counting;
    size_t bytes[RA__PURPOSES]; /* counted */
    size_t device;              /* of these, memory of the device */
    bool overflow;              /* counted: more than a size_t can hold */
    /* Real ones only. */
    struct ra__account *account; /* charged with everything taken */
    struct ra__buffers *pool;    /* memory of the device */
    char *block;                 /* for arrays */
    size_t used, room;           /* of the block */
    void *workspace;             /* NULL, or what is taken for it, instead of the pool's */
    int rank;                    /* whose plan it is, for error sentences */
};

/* An array in host memory, cleared. NULL from a counting arena. */
ra_status ra__arena_array(struct ra__arena *arena, int64_t count, size_t bytes, void **out);

/* Memory of the device, not cleared; NULL for 0 bytes and from a counting arena. It goes back to
 * the pool. SIZE_MAX bytes count as an overflow. */
ra_status ra__arena_buffer(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                           void **out);

/* The same for what stays there between runs of the plan. */
ra_status ra__arena_kept(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                         void **out);

/* The same in host memory; freed by ra__free(). */
ra_status ra__arena_host(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                         void **out);

#endif
