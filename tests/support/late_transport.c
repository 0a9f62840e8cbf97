/* SPDX-License-Identifier: Apache-2.0 */
/* late_transport.c - the transport of late.h: without tags, and rounds that start on a thread of
 * their own, late. */
#include "support/late_parts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message that waits for its other half: the oldest of its pair of ranks comes first. */
struct half {
    struct ra__message *message;
    struct link *link;
    struct half *next;
};

struct hub {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, open;
    bool failed;
    char reason[256];
    struct half **sends, **recvs; /* [from * ranks + to] */
};

struct link {
    struct hub *hub;
    int rank;
    pthread_t thread;
    struct ra__round *round; /* posted, not started yet */
    struct ra__event after[64];
    int after_count;
    int pending; /* messages of the round that are not done */
    bool stop;
    unsigned seed;
};

static void append_half(struct half **list, struct link *link, struct ra__message *message)
{
    struct half *half = malloc(sizeof *half);
    if (!half) abort();
    *half = (struct half){ message, link, NULL };
    while (*list) list = &(*list)->next;
    *list = half;
}

static struct half take_half(struct half **list)
{
    struct half *half = *list, copy = *half;
    *list = half->next;
    free(half);
    return copy;
}

/* Under the lock: whatever has met is copied. */
static void match(struct hub *hub, int pair)
{
    while (hub->sends[pair] && hub->recvs[pair] && !hub->failed) {
        struct half send = take_half(&hub->sends[pair]), recv = take_half(&hub->recvs[pair]);
        if (send.message->bytes != recv.message->bytes) {
            hub->failed = true;
            snprintf(hub->reason, sizeof hub->reason, "late: %zu bytes sent, %zu expected",
                     send.message->bytes, recv.message->bytes);
        } else memcpy(recv.message->data, send.message->data, send.message->bytes);
        send.link->pending--;
        recv.link->pending--;
    }
    pthread_cond_broadcast(&hub->changed);
}

static void await_events(struct link *link)
{
    for (int i = 0; i < link->after_count; i++) late_await(&link->after[i]);
}

static void start_round(struct link *link, struct ra__round *round)
{
    struct hub *hub = link->hub;
    for (int i = 0; i < round->recv_count; i++) {
        int pair = round->recvs[i].peer * hub->ranks + link->rank;
        append_half(&hub->recvs[pair], link, &round->recvs[i]);
        match(hub, pair);
    }
    for (int i = 0; i < round->send_count; i++) {
        int pair = link->rank * hub->ranks + round->sends[i].peer;
        append_half(&hub->sends[pair], link, &round->sends[i]);
        match(hub, pair);
    }
}

static void *link_main(void *argument)
{
    struct link *link = argument;
    struct hub *hub = link->hub;
    pthread_mutex_lock(&hub->lock);
    for (;;) {
        while (!link->round && !link->stop) pthread_cond_wait(&hub->changed, &hub->lock);
        if (link->stop) break;
        pthread_mutex_unlock(&hub->lock);
        await_events(link);
        late_delay(&link->seed);
        pthread_mutex_lock(&hub->lock);
        if (!link->round) continue;
        start_round(link, link->round);
        link->round = NULL;
    }
    pthread_mutex_unlock(&hub->lock);
    return NULL;
}

static ra_status link_open(int ranks, const struct ra__link_options *options, void **links)
{
    struct hub *hub = calloc(1, sizeof *hub);
    (void)options;
    if (!hub) abort();
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->changed, NULL);
    hub->ranks = hub->open = ranks;
    hub->sends = calloc((size_t)(ranks * ranks), sizeof *hub->sends);
    hub->recvs = calloc((size_t)(ranks * ranks), sizeof *hub->recvs);
    for (int i = 0; i < ranks; i++) {
        struct link *link = calloc(1, sizeof *link);
        if (!link) abort();
        *link = (struct link){ .hub = hub, .rank = i, .seed = (unsigned)i + 17u };
        if (pthread_create(&link->thread, NULL, link_main, link)) abort();
        links[i] = link;
    }
    return RA_OK;
}

static ra_status link_poll(void *opaque)
{
    struct link *link = opaque;
    pthread_mutex_lock(&link->hub->lock);
    ra_status status = link->hub->failed
                           ? ra__fail(RA_ERR_PEER, "rank %d: %s", link->rank, link->hub->reason)
                           : RA_OK;
    pthread_mutex_unlock(&link->hub->lock);
    return status;
}

static ra_status link_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    RA__TRY(link_poll(link));
    if (late_round_fails()) return ra__fail(RA_ERR_SYSTEM, "late: a round failed");
    if (round->after_count > RA__COUNT(link->after)) abort();
    pthread_mutex_lock(&link->hub->lock);
    if (round->after_count > 0)
        memcpy(link->after, round->after, (size_t)round->after_count * sizeof *round->after);
    link->after_count = round->after_count;
    link->pending = round->send_count + round->recv_count;
    link->round = round;
    pthread_cond_broadcast(&link->hub->changed);
    pthread_mutex_unlock(&link->hub->lock);
    return RA_OK;
}

static void withdraw(struct link *link)
{
    struct hub *hub = link->hub;
    link->round = NULL;
    for (int i = 0; i < 2 * hub->ranks * hub->ranks; i++) {
        struct half **list = i % 2 ? &hub->sends[i / 2] : &hub->recvs[i / 2];
        while (*list)
            if ((*list)->link == link) take_half(list);
            else list = &(*list)->next;
    }
}

static ra_status link_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    struct hub *hub = link->hub;
    (void)round;
    pthread_mutex_lock(&hub->lock);
    while (link->pending > 0 && !hub->failed) pthread_cond_wait(&hub->changed, &hub->lock);
    ra_status status = RA_OK;
    if (hub->failed) {
        withdraw(link);
        status = ra__fail(RA_ERR_PEER, "rank %d: %s", link->rank, hub->reason);
    }
    pthread_mutex_unlock(&hub->lock);
    return status;
}

static void link_abort(void *opaque, ra_status status, const char *reason)
{
    struct link *link = opaque;
    (void)status;
    pthread_mutex_lock(&link->hub->lock);
    if (!link->hub->failed) snprintf(link->hub->reason, sizeof link->hub->reason, "%s", reason);
    link->hub->failed = true;
    pthread_cond_broadcast(&link->hub->changed);
    pthread_mutex_unlock(&link->hub->lock);
}

static void link_close(void *opaque)
{
    struct link *link = opaque;
    if (!link) return;
    struct hub *hub = link->hub;
    pthread_mutex_lock(&hub->lock);
    link->stop = true;
    withdraw(link);
    const bool last = --hub->open == 0;
    pthread_cond_broadcast(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
    pthread_join(link->thread, NULL);
    free(link);
    if (!last) return;
    free(hub->sends);
    free(hub->recvs);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

const struct ra__transport late_transport = {
    .name = "late",
    .summary = "without tags, after events",
    .takes_events = true,
    .open = link_open,
    .post = link_post,
    .wait = link_wait,
    .poll = link_poll,
    .abort = link_abort,
    .close = link_close,
};
