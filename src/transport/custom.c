/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c - a rank whose messages are sent by the caller's callbacks. Adds what every transport
 * provides: an abort that is noticed between slices of work, and sentences that name rank and
 * hop. */
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/memory.h"

struct link {
    ra_transport_callbacks calls;
    int rank, hop;
    double timeout;
    ra_message *wire; /* a round in the callbacks' format: sends, then receives */
    int capacity;
    atomic_bool aborted;
    pthread_mutex_t lock; /* guards reason */
    char reason[512];
};

ra_status ra__custom_open(int rank, double timeout, const ra_transport_callbacks *callbacks,
                          void **out)
{
    struct link *link = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *link);
    if (!link) return ra__fail(RA_ERR_MEMORY, "custom transport: %zu bytes", sizeof *link);
    link->calls = *callbacks;
    link->rank = rank;
    link->timeout = timeout;
    pthread_mutex_init(&link->lock, NULL);
    *out = link;
    return RA_OK;
}

static void custom_close(void *opaque)
{
    struct link *link = opaque;
    if (!link) return;
    if (link->calls.close) link->calls.close(link->calls.context);
    pthread_mutex_destroy(&link->lock);
    ra__free(link->wire);
    ra__free(link);
}

static void custom_abort(void *opaque, ra_status status, const char *reason)
{
    (void)status;
    struct link *link = opaque;
    pthread_mutex_lock(&link->lock);
    bool first = !atomic_load(&link->aborted);
    if (first) snprintf(link->reason, sizeof link->reason, "%s", reason);
    atomic_store(&link->aborted, true);
    pthread_mutex_unlock(&link->lock);
    if (first && link->calls.abort) link->calls.abort(link->calls.context, reason);
}

static ra_status tell_aborted(struct link *link)
{
    pthread_mutex_lock(&link->lock);
    ra_status status = ra__fail(RA_ERR_ABORTED, "rank %d, hop %d: the group was aborted: %s",
                                link->rank, link->hop, link->reason);
    pthread_mutex_unlock(&link->lock);
    return status;
}

/* The failure of a callback: rank and hop, then its own sentence. After an abort of this rank, the
 * abort is the cause. */
static ra_status tell(struct link *link, const char *verb, ra_status status)
{
    if (status == RA_OK) return RA_OK;
    if (atomic_load(&link->aborted)) return tell_aborted(link);
    char words[512];
    snprintf(words, sizeof words, "%s", ra_last_error());
    return ra__fail(status, "rank %d, hop %d: custom transport, %s: %s", link->rank, link->hop,
                    verb, words[0] ? words : ra_status_text(status));
}

static ra_status custom_poll(void *opaque)
{
    struct link *link = opaque;
    if (atomic_load_explicit(&link->aborted, memory_order_relaxed)) return tell_aborted(link);
    if (!link->calls.poll) return RA_OK;
    ra__set_error("%s", "");
    return tell(link, "poll", link->calls.poll(link->calls.context));
}

static ra_status custom_reserve(void *opaque, int messages)
{
    struct link *link = opaque;
    if (messages <= link->capacity) return RA_OK;
    ra_message *wire = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)messages, sizeof *wire);
    if (!wire) return ra__fail(RA_ERR_MEMORY, "custom transport: %d messages", messages);
    ra__free(link->wire);
    link->wire = wire;
    link->capacity = messages;
    return RA_OK;
}

static ra_message as_seen_outside(const struct ra__message *message)
{
    return (ra_message){ message->peer, message->tag, message->data, message->bytes };
}

static ra_status custom_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    link->hop = round->hop;
    RA__TRY(custom_poll(link));
    ra_message *sends = link->wire, *recvs = link->wire + round->send_count;
    for (int i = 0; i < round->send_count; i++) sends[i] = as_seen_outside(&round->sends[i]);
    for (int i = 0; i < round->recv_count; i++) recvs[i] = as_seen_outside(&round->recvs[i]);
    ra__set_error("%s", "");
    return tell(link, "post",
                link->calls.post(link->calls.context, sends, round->send_count, recvs,
                                 round->recv_count, &round->ticket));
}

static ra_status custom_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    ra__set_error("%s", "");
    return tell(link, "wait", link->calls.wait(link->calls.context, round->ticket, link->timeout));
}

const struct ra__transport ra__transport_custom = {
    .name = "custom",
    .summary = "the caller's callbacks send the bytes",
    .reserve = custom_reserve,
    .post = custom_post,
    .wait = custom_wait,
    .poll = custom_poll,
    .abort = custom_abort,
    .close = custom_close,
};
