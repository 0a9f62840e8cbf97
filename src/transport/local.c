/* SPDX-License-Identifier: Apache-2.0 */
/* local.c - ranks as threads of one process, with their own buffers and real copies, but for what
 * they lend.
 *
 * The ranks share a hub. A message waits there until its counterpart is posted; the rank that posts
 * second copies the bytes, outside the lock, so a block reaches a busy rank while it computes. The
 * heartbeat of a rank is a time that it stores; a peer whose heartbeat is older than the timeout is
 * lost. */
#include "transport/transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/sum.h"

enum state { POSTED, COPYING, DONE };

struct endpoint {
    struct hub *hub;
    int rank;
    int hop;                           /* of the newest round, for error sentences */
    atomic_int_least64_t heartbeat;    /* the time of the last one, in nanoseconds */
    struct ra__reach reach;            /* copy is NULL: buffers are host memory */
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
    struct endpoint endpoints[];
};

static int64_t nanoseconds(void) { return (int64_t)(ra__now() * 1e9); }

static void hub_destroy(struct hub *hub)
{
    for (int i = 0; i < hub->ranks; i++) pthread_cond_destroy(&hub->endpoints[i].changed);
    pthread_mutex_destroy(&hub->lock);
    ra__free(hub);
}

static ra_status local_open(int ranks, const struct ra__link_options *options, void **links)
{
    size_t bytes = sizeof(struct hub) + (size_t)ranks * sizeof(struct endpoint);
    struct hub *hub = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
    if (!hub) return ra__fail(RA_ERR_MEMORY, "local transport: %zu bytes", bytes);
    pthread_mutex_init(&hub->lock, NULL);
    hub->ranks = hub->open = ranks;
    hub->timeout = options->timeout;
    hub->checksum = options->checksum;
    for (int i = 0; i < ranks; i++) {
        struct endpoint *endpoint = &hub->endpoints[i];
        endpoint->hub = hub;
        endpoint->rank = i;
        endpoint->waits_for = -1;
        atomic_store(&endpoint->heartbeat, nanoseconds());
        ra__cond_init(&endpoint->changed);
        links[i] = endpoint;
    }
    return RA_OK;
}

static bool local_extend(void *link, const struct ra__reach *reach)
{
    ((struct endpoint *)link)->reach = *reach;
    return true;
}

static void local_close(void *link)
{
    if (!link) return;
    struct hub *hub = ((struct endpoint *)link)->hub;
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
    for (int i = 0; i < hub->ranks; i++) pthread_cond_broadcast(&hub->endpoints[i].changed);
}

static void local_abort(void *link, ra_status status, const char *reason)
{
    struct endpoint *endpoint = link;
    pthread_mutex_lock(&endpoint->hub->lock);
    fail_group(endpoint->hub, endpoint->rank, status, reason);
    pthread_mutex_unlock(&endpoint->hub->lock);
}

/* Under the lock: the error of a rank after the group has failed. */
static ra_status tell_failure(const struct endpoint *endpoint)
{
    const struct hub *hub = endpoint->hub;
    if (hub->failure == RA_ERR_ABORTED)
        return ra__fail(RA_ERR_ABORTED, "rank %d, hop %d: the group was aborted by rank %d: %s",
                        endpoint->rank, endpoint->hop, hub->failed_rank, hub->reason);
    return ra__fail(RA_ERR_PEER, "rank %d, hop %d: rank %d failed: %s", endpoint->rank,
                    endpoint->hop, hub->failed_rank, hub->reason);
}

static ra_status local_poll(void *link)
{
    struct endpoint *endpoint = link;
    atomic_store_explicit(&endpoint->heartbeat, nanoseconds(), memory_order_relaxed);
    if (!atomic_load_explicit(&endpoint->hub->failed, memory_order_relaxed)) return RA_OK;
    pthread_mutex_lock(&endpoint->hub->lock);
    ra_status status = tell_failure(endpoint);
    pthread_mutex_unlock(&endpoint->hub->lock);
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
    return hub->checksum && !message->lends ? ra__sum(RA__SUM_START, message->data, message->bytes)
                                            : 0;
}

static ra_status copy_bytes(const struct endpoint *endpoint, const struct ra__message *send,
                            struct ra__message *recv)
{
    const struct ra__reach *reach = &endpoint->reach;
    if (send->lends) {
        recv->data = send->data;
        recv->holders = send->holders;
        recv->after = send->after;
    }
    if (send->lends || send->bytes == 0) return RA_OK;
    if (reach->copy) return reach->copy(reach->device, recv->data, send->data, send->bytes);
    memcpy(recv->data, send->data, send->bytes);
    return RA_OK;
}

/* Under the lock, which is released while the bytes are copied. */
static ra_status deliver(struct endpoint *endpoint, struct ra__message *send,
                         struct ra__message *recv)
{
    struct hub *hub = endpoint->hub;
    char reason[200];
    if (send->bytes != recv->bytes) {
        send->state = recv->state = DONE;
        snprintf(reason, sizeof reason, "hop %d: rank %d sends %zu bytes where rank %d expects %zu",
                 send->hop, send->from, send->bytes, recv->from, recv->bytes);
        fail_group(hub, endpoint->rank, RA_ERR_MISMATCH, reason);
        return ra__fail(RA_ERR_MISMATCH, "rank %d, %s", endpoint->rank, reason);
    }
    send->state = recv->state = COPYING;
    if (send->lends) atomic_fetch_add(send->holders, 1);
    pthread_mutex_unlock(&hub->lock);
    const ra_status copied = copy_bytes(endpoint, send, recv);
    recv->sum = sum_of(hub, recv);
    pthread_mutex_lock(&hub->lock);
    send->state = recv->state = DONE;
    pthread_cond_broadcast(&hub->endpoints[send->from].changed);
    pthread_cond_broadcast(&hub->endpoints[recv->from].changed);
    if (copied != RA_OK) {
        fail_group(hub, endpoint->rank, copied, ra_last_error());
        return copied;
    }
    if (send->sum == recv->sum) return RA_OK;
    snprintf(reason, sizeof reason, RA__CORRUPT_TEXT, recv->hop, recv->bytes, send->from,
             recv->from, send->sum, recv->sum);
    fail_group(hub, endpoint->rank, RA_ERR_CORRUPT, reason);
    return ra__fail(RA_ERR_CORRUPT, "rank %d, %s", endpoint->rank, reason);
}

/* Under the lock: posts one message, or delivers it if its counterpart is posted. */
static ra_status post_one(struct endpoint *endpoint, struct ra__message *message, bool is_send)
{
    struct endpoint *receiver = is_send ? &endpoint->hub->endpoints[message->peer] : endpoint;
    message->from = endpoint->rank;
    message->state = POSTED;
    struct ra__message *other = take(is_send ? &receiver->recvs : &receiver->sends, message->peer,
                                     endpoint->rank, message->tag);
    if (other) return deliver(endpoint, is_send ? message : other, is_send ? other : message);
    append(is_send ? &receiver->sends : &receiver->recvs, message);
    return RA_OK;
}

/* Under the lock: withdraws what is still waiting, and lets running copies finish. */
static void withdraw(struct endpoint *endpoint, struct ra__round *round)
{
    for (int i = 0; i < round->send_count; i++) {
        struct ra__message *send = &round->sends[i];
        struct ra__message **list = &endpoint->hub->endpoints[send->peer].sends;
        while (*list && *list != send) list = &(*list)->next;
        if (*list) *list = send->next;
        while (send->state == COPYING) pthread_cond_wait(&endpoint->changed, &endpoint->hub->lock);
    }
    for (int i = 0; i < round->recv_count; i++) {
        struct ra__message *recv = &round->recvs[i];
        struct ra__message **list = &endpoint->recvs;
        while (*list && *list != recv) list = &(*list)->next;
        if (*list) *list = recv->next;
        while (recv->state == COPYING) pthread_cond_wait(&endpoint->changed, &endpoint->hub->lock);
    }
}

static ra_status local_post(void *link, struct ra__round *round)
{
    struct endpoint *endpoint = link;
    RA__TRY(local_poll(link));
    for (int i = 0; i < round->send_count; i++)
        round->sends[i].sum = sum_of(endpoint->hub, &round->sends[i]);
    pthread_mutex_lock(&endpoint->hub->lock);
    endpoint->hop = round->hop;
    /* Marked done until posted, so that a failure in between can withdraw the whole round. */
    for (int i = 0; i < round->send_count; i++) round->sends[i].state = DONE;
    for (int i = 0; i < round->recv_count; i++) round->recvs[i].state = DONE;
    ra_status status = RA_OK;
    for (int i = 0; i < round->recv_count && status == RA_OK; i++)
        status = post_one(endpoint, &round->recvs[i], false);
    for (int i = 0; i < round->send_count && status == RA_OK; i++)
        status = post_one(endpoint, &round->sends[i], true);
    if (status != RA_OK) withdraw(endpoint, round);
    pthread_mutex_unlock(&endpoint->hub->lock);
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

/* Under the lock: sleeps until something changes, at most a tenth of the timeout. Waking up takes
 * as long as a short step of a GPU; a rank whose buffers are there has nothing else to do, and asks
 * again and again for a while first. */
static void nap(struct endpoint *endpoint)
{
    if (endpoint->reach.copy && ra__now() - endpoint->waits_since < RA__SHORT_WAIT) {
        pthread_mutex_unlock(&endpoint->hub->lock);
        sched_yield();
        pthread_mutex_lock(&endpoint->hub->lock);
        return;
    }
    double timeout = endpoint->hub->timeout;
    struct timespec at = ra__deadline(timeout < 1.0 ? timeout / 10 : 0.1);
    pthread_cond_timedwait(&endpoint->changed, &endpoint->hub->lock, &at);
    atomic_store_explicit(&endpoint->heartbeat, nanoseconds(), memory_order_relaxed);
}

/* Under the lock: the last heartbeat of *rank. For a rank that waits, that of the rank it waits for
 * counts, and *rank becomes that one; in a cycle of waiting ranks the newest wait counts, and
 * *cycle is set. */
static double last_life(const struct hub *hub, int *rank, bool *cycle)
{
    double newest = 0;
    for (int steps = 0; steps < hub->ranks; steps++) {
        const struct endpoint *endpoint = &hub->endpoints[*rank];
        if (endpoint->waits_for < 0) {
            double heartbeat = 1e-9 * (double)atomic_load_explicit(&endpoint->heartbeat,
                                                                   memory_order_relaxed);
            return heartbeat > newest ? heartbeat : newest;
        }
        if (endpoint->waits_since > newest) newest = endpoint->waits_since;
        *rank = endpoint->waits_for;
    }
    *cycle = true;
    return newest;
}

/* Under the lock: fails if no rank that could end this wait has sent a heartbeat within the
 * timeout. */
static ra_status check_alive(struct endpoint *endpoint, const struct ra__message *message)
{
    struct hub *hub = endpoint->hub;
    int rank = message->peer;
    bool cycle = false;
    double life = last_life(hub, &rank, &cycle);
    if (ra__now() - (life > endpoint->waits_since ? life : endpoint->waits_since) < hub->timeout)
        return RA_OK;
    char reason[200];
    if (cycle)
        snprintf(
            reason, sizeof reason,
            "hop %d: ranks %d and %d have waited for one another for %.3g seconds; do all ranks "
            "run the same plan?",
            message->hop, endpoint->rank, message->peer, hub->timeout);
    else
        snprintf(reason, sizeof reason, "hop %d: no heartbeat from rank %d for %.3g seconds",
                 message->hop, rank, hub->timeout);
    fail_group(hub, endpoint->rank, RA_ERR_TIMEOUT, reason);
    return ra__fail(RA_ERR_TIMEOUT, "rank %d, %s", endpoint->rank, reason);
}

static ra_status local_wait(void *link, struct ra__round *round)
{
    struct endpoint *endpoint = link;
    const struct ra__message *message, *newest = NULL;
    ra_status status = RA_OK;
    pthread_mutex_lock(&endpoint->hub->lock);
    while (status == RA_OK && endpoint->hub->failure == RA_OK && (message = pending(round))) {
        if (message != newest) endpoint->waits_since = ra__now();
        newest = message;
        endpoint->waits_for = message->peer;
        status = check_alive(endpoint, message);
        if (status == RA_OK) nap(endpoint);
    }
    endpoint->waits_for = -1;
    if (status == RA_OK && endpoint->hub->failure != RA_OK) status = tell_failure(endpoint);
    if (status != RA_OK) withdraw(endpoint, round);
    pthread_mutex_unlock(&endpoint->hub->lock);
    return status;
}

const struct ra__transport ra__transport_local = {
    .name = "local",
    .summary = "ranks are threads of this process",
    .open = local_open,
    .extend = local_extend,
    .takes_loans = true,
    .post = local_post,
    .wait = local_wait,
    .poll = local_poll,
    .abort = local_abort,
    .close = local_close,
};
