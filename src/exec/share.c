/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - see share.h. */
#include <string.h>

#include "exec/share.h"

/* The bytes of the others arrive one after the other; this rank's own go between them. */
static void put_together(const struct ra__rank *rank, const void *mine, const char *theirs,
                         char *all, size_t bytes)
{
    size_t before = (size_t)rank->rank * bytes, after = (size_t)(rank->ranks - 1) * bytes - before;
    memcpy(all, theirs, before);
    memmove(all + before, mine, bytes);
    memcpy(all + before + bytes, theirs + before, after);
}

/* Through memory of our own: after a failure it may have to stay, and the caller's could not. */
struct desk {
    struct ra__message *messages;
    char *mine, *theirs;
};

static ra_status share_at(const struct ra__rank *rank, const struct desk *desk, const void *mine,
                          void *all, size_t bytes)
{
    int others = rank->ranks - 1;
    if (!desk->messages || !desk->mine || !desk->theirs)
        return ra__fail(RA_ERR_MEMORY, "share: %d messages of %zu bytes", 2 * others, bytes);
    if (rank->transport->reserve) RA__TRY(rank->transport->reserve(rank->link, 2 * others));
    memcpy(desk->mine, mine, bytes);
    RA__TRY(ra__control_share(rank, desk->messages, ra__reserved_tag(RA__RESERVED_ALLGATHER),
                              desk->mine, desk->theirs, bytes));
    put_together(rank, mine, desk->theirs, all, bytes);
    return RA_OK;
}

ra_status ra__rank_share(const struct ra__rank *rank, const void *mine, void *all, size_t bytes)
{
    size_t others = (size_t)rank->ranks - 1;
    struct desk desk = { ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 2 * others + 1,
                                         sizeof *desk.messages),
                         ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes),
                         ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, others, bytes) };
    ra_status status = share_at(rank, &desk, mine, all, bytes);
    ra__free(desk.messages);
    if (status != RA_OK && ra__rank_retains(rank)) return status;
    ra__free(desk.mine);
    ra__free(desk.theirs);
    return status;
}
