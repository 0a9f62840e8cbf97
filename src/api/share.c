/* share.c - a few bytes from every rank to every other, and signs of life between calls. */
#include <string.h>

#include "api/handles.h"

/* Greetings of plans are hop 0, states hops 1 and 2; all have fingerprint 0. */
enum { TAG_HOP_SHARE = 3 };

/* The others' bytes arrive one behind the other; this rank's own go between them. */
static void put_between(const struct ra__rank *rank, const void *mine, char *all, size_t bytes)
{
    char *own = all + (size_t)rank->rank * bytes;
    memmove(own + bytes, own, (size_t)(rank->ranks - 1 - rank->rank) * bytes);
    memcpy(own, mine, bytes);
}

static ra_status share(const struct ra__rank *rank, const void *mine, void *all, size_t bytes)
{
    int others = rank->ranks - 1;
    struct ra__message *messages;
    if (rank->transport->reserve) RA__TRY(rank->transport->reserve(rank->link, 2 * others));
    messages = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 2 * (size_t)others + 1, sizeof *messages);
    if (!messages) return ra__fail(RA_ERR_MEMORY, "share: %d messages", 2 * others);
    ra_status status = ra__exec_share(rank, messages, ra__tag(TAG_HOP_SHARE, RA__TOPIC_HELLO), mine,
                                      all, bytes);
    ra__free(messages);
    if (status == RA_OK) put_between(rank, mine, all, bytes);
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
