/* SPDX-License-Identifier: Apache-2.0 */
/* local.c - ranks as threads of one process, with their own buffers and real copies.
 *
 * The ranks share a hub. A message waits there until its counterpart is posted; the rank that posts
 * second copies the bytes, outside the lock, so a block reaches a busy rank while it computes. The
 * heartbeat of a rank is a time that it stores; a peer whose heartbeat is older than the timeout is
 * lost. */
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/sum.h"

enum state { POSTED, COPYING, DONE };

struct seat {
    struct hub *hub;
    int rank;
    int hop;                           /* of the newest round, for error sentences */
    atomic_int_least64_t beat;         /* heartbeat, in nanoseconds */
    int waits_for;                     /* the rank this one waits for; -1 while it does not */
    double waits_since;                /* when the wait began, or when it last received something */
    struct ra__message *sends, *recvs; /* posted to, and by, this rank; oldest first */
    pthread_cond_t changed;            /* a message of this rank is done, or the group failed */
};

struct hub {
    pthread_mutex_t lock; /* guards everything but the heartbeats */
    int ranks, open;
    double timeout;
    bool checksum;
    ra_status failure;  /* RA_OK while all is well */
    atomic_bool failed; /* the same, to be read without the lock */
    int failed_rank;
    char reason[512];
    struct seat seats[];
};

static int64_t nanoseconds(void) { return (int64_t)(ra__now() * 1e9); }

static void hub_destroy(struct hub *hub)
{
    for (int i = 0; i < hub->ranks; i++) pthread_cond_destroy(&hub->seats[i].changed);
    pthread_mutex_destroy(&hub->lock);
    ra__free(hub);
}

static ra_status local_open(int ranks, const struct ra__link_options *options, void **links)
{
    size_t bytes = sizeof(struct hub) + (size_t)ranks * sizeof(struct seat);
    struct hub *hub = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
    if (!hub) return ra__fail(RA_ERR_MEMORY, "local transport: %zu bytes", bytes);
    pthread_mutex_init(&hub->lock, NULL);
    hub->ranks = hub->open = ranks;
    hub->timeout = options->timeout;
    hub->checksum = options->checksum;
    for (int i = 0; i < ranks; i++) {
        struct seat *seat = &hub->seats[i];
        seat->hub = hub;
        seat->rank = i;
        seat->waits_for = -1;
        atomic_store(&seat->beat, nanoseconds());
        ra__cond_init(&seat->changed);
        links[i] = seat;
    }
    return RA_OK;
}

static void local_close(void *link)
{
    if (!link) return;
    struct hub *hub = ((struct seat *)link)->hub;
    pthread_mutex_lock(&hub->lock);
    bool last = --hub->open == 0;
    pthread_mutex_unlock(&hub->lock);
    if (last) hub_destroy(hub);
}

/* Under the lock. The first failure is the one that is reported. */
static void fail_group(struct hub *hub, int rank, ra_status status, const char *reason)
{
    if (hub->failure != RA_OK) return;
    hub->failure = status;
    hub->failed_rank = rank;
    snprintf(hub->reason, sizeof hub->reason, "%s", reason);
    atomic_store(&hub->failed, true);
    for (int i = 0; i < hub->ranks; i++) pthread_cond_broadcast(&hub->seats[i].changed);
}

static void local_abort(void *link, ra_status status, const char *reason)
{
    struct seat *seat = link;
    pthread_mutex_lock(&seat->hub->lock);
    fail_group(seat->hub, seat->rank, status, reason);
    pthread_mutex_unlock(&seat->hub->lock);
}

/* Under the lock: the error of a rank after the group has failed. */
static ra_status tell_failure(const struct seat *seat)
{
    const struct hub *hub = seat->hub;
    if (hub->failure == RA_ERR_ABORTED)
        return ra__fail(RA_ERR_ABORTED, "rank %d, hop %d: the group was aborted by rank %d: %s",
                        seat->rank, seat->hop, hub->failed_rank, hub->reason);
    return ra__fail(RA_ERR_PEER, "rank %d, hop %d: rank %d failed: %s", seat->rank, seat->hop,
                    hub->failed_rank, hub->reason);
}

static ra_status local_poll(void *link)
{
    struct seat *seat = link;
    atomic_store_explicit(&seat->beat, nanoseconds(), memory_order_relaxed);
    if (!atomic_load_explicit(&seat->hub->failed, memory_order_relaxed)) return RA_OK;
    pthread_mutex_lock(&seat->hub->lock);
    ra_status status = tell_failure(seat);
    pthread_mutex_unlock(&seat->hub->lock);
    return status;
}

static void append(struct ra__message **list, struct ra__message *message)
{
    while (*list) list = &(*list)->next;
    message->next = NULL;
    *list = message;
}

/* Takes the oldest message posted by `from` with this peer and tag off the list; NULL if none. */
static struct ra__message *take(struct ra__message **list, int from, int peer, int tag)
{
    for (; *list; list = &(*list)->next) {
        struct ra__message *message = *list;
        if (message->from != from || message->peer != peer || message->tag != tag) continue;
        *list = message->next;
        return message;
    }
    return NULL;
}

static uint64_t sum_of(const struct hub *hub, const struct ra__message *message)
{
    return hub->checksum ? ra__sum(RA__SUM_START, message->data, message->bytes) : 0;
}

/* Under the lock, which is released while the bytes are copied. */
static ra_status deliver(struct seat *seat, struct ra__message *send, struct ra__message *recv)
{
    struct hub *hub = seat->hub;
    char reason[200];
    if (send->bytes != recv->bytes) {
        send->state = recv->state = DONE;
        snprintf(reason, sizeof reason, "hop %d: rank %d sends %zu bytes where rank %d expects %zu",
                 send->hop, send->from, send->bytes, recv->from, recv->bytes);
        fail_group(hub, seat->rank, RA_ERR_MISMATCH, reason);
        return ra__fail(RA_ERR_MISMATCH, "rank %d, %s", seat->rank, reason);
    }
    send->state = recv->state = COPYING;
    pthread_mutex_unlock(&hub->lock);
    memcpy(recv->data, send->data, send->bytes);
    recv->sum = sum_of(hub, recv);
    pthread_mutex_lock(&hub->lock);
    send->state = recv->state = DONE;
    pthread_cond_broadcast(&hub->seats[send->from].changed);
    pthread_cond_broadcast(&hub->seats[recv->from].changed);
    if (send->sum == recv->sum) return RA_OK;
    snprintf(reason, sizeof reason, RA__CORRUPT_TEXT, recv->hop, recv->bytes, send->from,
             recv->from, send->sum, recv->sum);
    fail_group(hub, seat->rank, RA_ERR_CORRUPT, reason);
    return ra__fail(RA_ERR_CORRUPT, "rank %d, %s", seat->rank, reason);
}

/* Under the lock: posts one message, or delivers it if its counterpart is posted. */
static ra_status post_one(struct seat *seat, struct ra__message *message, bool is_send)
{
    struct seat *receiver = is_send ? &seat->hub->seats[message->peer] : seat;
    message->from = seat->rank;
    message->state = POSTED;
    struct ra__message *other = take(is_send ? &receiver->recvs : &receiver->sends, message->peer,
                                     seat->rank, message->tag);
    if (other) return deliver(seat, is_send ? message : other, is_send ? other : message);
    append(is_send ? &receiver->sends : &receiver->recvs, message);
    return RA_OK;
}

/* Under the lock: withdraws what is still waiting, and lets running copies finish. */
static void withdraw(struct seat *seat, struct ra__round *round)
{
    for (int i = 0; i < round->send_count; i++) {
        struct ra__message *send = &round->sends[i];
        struct ra__message **list = &seat->hub->seats[send->peer].sends;
        while (*list && *list != send) list = &(*list)->next;
        if (*list) *list = send->next;
        while (send->state == COPYING) pthread_cond_wait(&seat->changed, &seat->hub->lock);
    }
    for (int i = 0; i < round->recv_count; i++) {
        struct ra__message *recv = &round->recvs[i];
        struct ra__message **list = &seat->recvs;
        while (*list && *list != recv) list = &(*list)->next;
        if (*list) *list = recv->next;
        while (recv->state == COPYING) pthread_cond_wait(&seat->changed, &seat->hub->lock);
    }
}

static ra_status local_post(void *link, struct ra__round *round)
{
    struct seat *seat = link;
    RA__TRY(local_poll(link));
    for (int i = 0; i < round->send_count; i++)
        round->sends[i].sum = sum_of(seat->hub, &round->sends[i]);
    pthread_mutex_lock(&seat->hub->lock);
    seat->hop = round->hop;
    /* Marked done until posted, so that a failure in between can withdraw the whole round. */
    for (int i = 0; i < round->send_count; i++) round->sends[i].state = DONE;
    for (int i = 0; i < round->recv_count; i++) round->recvs[i].state = DONE;
    ra_status status = RA_OK;
    for (int i = 0; i < round->recv_count && status == RA_OK; i++)
        status = post_one(seat, &round->recvs[i], false);
    for (int i = 0; i < round->send_count && status == RA_OK; i++)
        status = post_one(seat, &round->sends[i], true);
    if (status != RA_OK) withdraw(seat, round);
    pthread_mutex_unlock(&seat->hub->lock);
    return status;
}

/* A message of the round that is not done; NULL if all are. */
static const struct ra__message *pending(const struct ra__round *round)
{
    for (int i = 0; i < round->recv_count; i++)
        if (round->recvs[i].state != DONE) return &round->recvs[i];
    for (int i = 0; i < round->send_count; i++)
        if (round->sends[i].state != DONE) return &round->sends[i];
    return NULL;
}

/* Under the lock: sleeps until something changes, at most a tenth of the timeout. */
static void nap(struct seat *seat)
{
    double timeout = seat->hub->timeout;
    struct timespec at = ra__deadline(timeout < 1.0 ? timeout / 10 : 0.1);
    pthread_cond_timedwait(&seat->changed, &seat->hub->lock, &at);
    atomic_store_explicit(&seat->beat, nanoseconds(), memory_order_relaxed);
}

/* Under the lock: the last heartbeat of *rank. For a rank that waits, that of the rank it waits for
 * counts, and *rank becomes that one; in a cycle of waiting ranks the newest wait counts, and
 * *circle is set. */
static double last_life(const struct hub *hub, int *rank, bool *circle)
{
    double newest = 0;
    for (int steps = 0; steps < hub->ranks; steps++) {
        const struct seat *seat = &hub->seats[*rank];
        if (seat->waits_for < 0) {
            double beat = 1e-9 * (double)atomic_load_explicit(&seat->beat, memory_order_relaxed);
            return beat > newest ? beat : newest;
        }
        if (seat->waits_since > newest) newest = seat->waits_since;
        *rank = seat->waits_for;
    }
    *circle = true;
    return newest;
}

/* Under the lock: fails if no rank that could end this wait has sent a heartbeat within the
 * timeout. */
static ra_status check_alive(struct seat *seat, const struct ra__message *message)
{
    struct hub *hub = seat->hub;
    int rank = message->peer;
    bool circle = false;
    double life = last_life(hub, &rank, &circle);
    if (ra__now() - (life > seat->waits_since ? life : seat->waits_since) < hub->timeout)
        return RA_OK;
    char reason[200];
    if (circle)
        snprintf(
            reason, sizeof reason,
            "hop %d: ranks %d and %d have waited for one another for %.3g seconds; do all ranks "
            "run the same plan?",
            message->hop, seat->rank, message->peer, hub->timeout);
    else
        snprintf(reason, sizeof reason, "hop %d: no heartbeat from rank %d for %.3g seconds",
                 message->hop, rank, hub->timeout);
    fail_group(hub, seat->rank, RA_ERR_TIMEOUT, reason);
    return ra__fail(RA_ERR_TIMEOUT, "rank %d, %s", seat->rank, reason);
}

static ra_status local_wait(void *link, struct ra__round *round)
{
    struct seat *seat = link;
    const struct ra__message *message, *newest = NULL;
    ra_status status = RA_OK;
    pthread_mutex_lock(&seat->hub->lock);
    while (status == RA_OK && seat->hub->failure == RA_OK && (message = pending(round))) {
        if (message != newest) seat->waits_since = ra__now();
        newest = message;
        seat->waits_for = message->peer;
        status = check_alive(seat, message);
        if (status == RA_OK) nap(seat);
    }
    seat->waits_for = -1;
    if (status == RA_OK && seat->hub->failure != RA_OK) status = tell_failure(seat);
    if (status != RA_OK) withdraw(seat, round);
    pthread_mutex_unlock(&seat->hub->lock);
    return status;
}

const struct ra__transport ra__transport_local = {
    .name = "local",
    .summary = "ranks are threads of this process",
    .open = local_open,
    .post = local_post,
    .wait = local_wait,
    .poll = local_poll,
    .abort = local_abort,
    .close = local_close,
};
