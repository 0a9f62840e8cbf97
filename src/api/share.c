/* share.c - a few bytes from every rank to every other, and signs of life between calls. */
#include <string.h>

#include "api/handles.h"

/* Greetings of plans are hop 0, states hops 1 and 2; all have fingerprint 0. */
enum { TAG_HOP_SHARE = 3 };

/* The others' bytes arrive one behind the other; this rank's own go between them. */
static void put_together(const struct ra__rank *rank, const void *mine, const char *theirs,
                         char *all, size_t bytes)
{
    size_t before = (size_t)rank->rank * bytes, behind = (size_t)(rank->ranks - 1) * bytes - before;
    memcpy(all, theirs, before);
    memmove(all + before, mine, bytes);
    memcpy(all + before + bytes, theirs + before, behind);
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
    RA__TRY(ra__exec_share(rank, desk->messages, ra__tag(TAG_HOP_SHARE, RA__TOPIC_HELLO),
                           desk->mine, desk->theirs, bytes));
    put_together(rank, mine, desk->theirs, all, bytes);
    return RA_OK;
}

static ra_status share(const struct ra__rank *rank, const void *mine, void *all, size_t bytes)
{
    size_t others = (size_t)rank->ranks - 1;
    struct desk desk = { ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 2 * others + 1,
                                         sizeof *desk.messages),
                         ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes),
                         ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, others, bytes) };
    ra_status status = share_at(rank, &desk, mine, all, bytes);
    ra__free(desk.messages);
    if (status != RA_OK && ra__rank_holds(rank)) return status;
    ra__free(desk.mine);
    ra__free(desk.theirs);
    return status;
}

ra_status ra_group_share(ra_group *group, const void *mine, void *all, size_t bytes)
{
    if (!group || !mine || !all) return ra__fail(RA_ERR_ARGUMENT, "share: NULL argument");
    ra_status status = share(&group->rank, mine, all, bytes);
    if (status == RA_OK) ra__rank_rest(&group->rank);
    return ra__tell_others(group, status);
}

ra_status ra_group_poll(ra_group *group)
{
    if (!group) return ra__fail(RA_ERR_ARGUMENT, "group: NULL argument");
    ra_status status = group->rank.transport->poll(group->rank.link);
    if (status == RA_OK) ra__rank_rest(&group->rank);
    return status;
}
