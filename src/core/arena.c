/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - see arena.h. */
#include "core/arena.h"

#include <string.h>

enum { ALIGNMENT = 64 }; /* threads write to different arrays */

static void count(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes)
{
    size_t *sum = &arena->bytes[purpose];
    if (bytes == SIZE_MAX || __builtin_add_overflow(*sum, bytes, sum)) arena->overflow = true;
}

ra_status ra__arena_array(struct ra__arena *arena, int64_t number, size_t bytes, void **out)
{
    const bool fits = ra__size_mul(&bytes, number) && bytes <= SIZE_MAX - ALIGNMENT;
    const size_t room = fits ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : SIZE_MAX;
    *out = NULL;
    if (arena->counting) {
        count(arena, RA__FOR_BOOKKEEPING, room);
        return RA_OK;
    }
    if (room > arena->room - arena->used) /* never: the two walks are the same */
        return ra__fail(RA_ERR_MEMORY, "plan: %zu bytes were not counted", room);
    *out = memset(arena->block + arena->used, 0, bytes);
    arena->used += room;
    return RA_OK;
}

static ra_status refuse(const struct ra__arena *arena, size_t bytes)
{
    return ra__fail(RA_ERR_MEMORY,
                    "plan: rank %d could not get %zu bytes; plans of more ranks, or of the "
                    "strategy stream, need less",
                    arena->rank, bytes);
}

/* Is there nothing to take? A counting arena only counts. */
static bool is_counted(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes, void **out)
{
    *out = NULL;
    if (arena->counting) count(arena, purpose, bytes);
    return arena->counting || bytes == 0;
}

/* The same for memory of the device. */
static bool is_counted_there(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                             void **out)
{
    if (arena->counting && __builtin_add_overflow(arena->device, bytes, &arena->device))
        arena->overflow = true;
    return is_counted(arena, purpose, bytes, out);
}

ra_status ra__arena_buffer(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                           void **out)
{
    if (is_counted_there(arena, purpose, bytes, out)) return RA_OK;
    *out = purpose == RA__FOR_WORKSPACE && arena->workspace
               ? arena->workspace
               : ra__buffers_take(arena->pool, arena->account, purpose, bytes);
    return *out ? RA_OK : refuse(arena, bytes);
}

ra_status ra__arena_kept(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                         void **out)
{
    if (is_counted_there(arena, purpose, bytes, out)) return RA_OK;
    *out = ra__buffers_take_own(arena->pool, arena->account, purpose, bytes);
    return *out ? RA_OK : refuse(arena, bytes);
}

ra_status ra__arena_host(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                         void **out)
{
    if (is_counted(arena, purpose, bytes, out)) return RA_OK;
    *out = ra__alloc(arena->account, purpose, bytes);
    return *out ? RA_OK : refuse(arena, bytes);
}
