/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - a transport with a clock: messages are copied when they are sent, and can be received
 * when a link of the given speed would have delivered them. */
#include "link.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/machine.h"

struct letter {
    struct letter *next;
    int from, to, tag;
    size_t bytes;
    double arrives;
    char data[];
};

struct hub {
    struct link_setup setup;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct letter *letters; /* in the order they were sent */
    int open;               /* ranks that are not closed */
    bool aborted;
    char reason[160];
};

/* One rank's end; its `context`. */
struct end {
    struct hub *hub;
    int rank;
    double free_at; /* when its sending side is idle again */
    ra_message *due;
    int due_count;
};

/* ---- Letters, under the lock ----------------------------------------------------------------- */

static bool send_letter(struct end *end, const ra_message *message)
{
    const struct link_setup *setup = &end->hub->setup;
    struct letter *letter = malloc(sizeof *letter + message->bytes), **last = &end->hub->letters;
    if (!letter) return false;
    end->free_at = fmax(end->free_at, machine_seconds()) +
                   (double)message->bytes / setup->bandwidth;
    *letter = (struct letter){ .from = end->rank,
                               .to = message->peer,
                               .tag = message->tag,
                               .bytes = message->bytes,
                               .arrives = end->free_at + setup->latency };
    if (message->bytes) memcpy(letter->data, message->data, message->bytes);
    while (*last) last = &(*last)->next;
    *last = letter;
    return true;
}

/* Takes the letter if it has arrived; otherwise *when is the time to look again, unless somebody
 * sends something before. */
static bool take_letter(struct end *end, const ra_message *message, double *when)
{
    for (struct letter **at = &end->hub->letters; *at; at = &(*at)->next) {
        struct letter *letter = *at;
        if (letter->to != end->rank || letter->from != message->peer || letter->tag != message->tag)
            continue;
        if (letter->arrives > machine_seconds()) {
            *when = fmin(*when, letter->arrives);
            return false;
        }
        if (letter->bytes) memcpy(message->data, letter->data, letter->bytes);
        *at = letter->next;
        free(letter);
        return true;
    }
    return false;
}

static ra_status await_letter(struct end *end, const ra_message *message, double until)
{
    struct hub *hub = end->hub;
    for (;;) {
        double when = until;
        if (hub->aborted) return ra_transport_error(RA_ERR_PEER, hub->reason);
        if (take_letter(end, message, &when)) return RA_OK;
        if (machine_seconds() >= until)
            return ra_transport_error(RA_ERR_TIMEOUT, "link: nothing came");
        struct timespec time = { .tv_sec = (time_t)when };
        time.tv_nsec = (long)((when - (double)time.tv_sec) * 1e9);
        pthread_cond_timedwait(&hub->changed, &hub->lock, &time);
    }
}

/* ---- The callbacks --------------------------------------------------------------------------- */

static ra_status link_wait(void *context, void *ticket, double timeout)
{
    struct end *end = ticket;
    ra_status status = RA_OK;
    (void)context;
    pthread_mutex_lock(&end->hub->lock);
    for (int i = 0; i < end->due_count && status == RA_OK; i++)
        status = await_letter(end, &end->due[i], machine_seconds() + timeout);
    end->due_count = 0;
    pthread_mutex_unlock(&end->hub->lock);
    return status;
}

static ra_status link_post(void *context, const ra_message *sends, int send_count,
                           const ra_message *recvs, int recv_count, void **ticket)
{
    struct end *end = *ticket = context;
    bool sent = true;
    free(end->due);
    end->due_count = 0;
    end->due = malloc((size_t)(recv_count + 1) * sizeof *recvs);
    if (!end->due) return ra_transport_error(RA_ERR_MEMORY, "link: out of memory");
    if (recv_count) memcpy(end->due, recvs, (size_t)recv_count * sizeof *recvs);
    end->due_count = recv_count;
    pthread_mutex_lock(&end->hub->lock);
    for (int i = 0; i < send_count && sent; i++) sent = send_letter(end, &sends[i]);
    pthread_cond_broadcast(&end->hub->changed);
    pthread_mutex_unlock(&end->hub->lock);
    if (!sent) return ra_transport_error(RA_ERR_MEMORY, "link: out of memory");
    return end->hub->setup.blocking ? link_wait(context, *ticket, 60.0) : RA_OK;
}

static void link_abort(void *context, const char *reason)
{
    struct hub *hub = ((struct end *)context)->hub;
    pthread_mutex_lock(&hub->lock);
    if (!hub->aborted) snprintf(hub->reason, sizeof hub->reason, "%s", reason);
    hub->aborted = true;
    pthread_cond_broadcast(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
}

static ra_status link_poll(void *context)
{
    struct hub *hub = ((struct end *)context)->hub;
    pthread_mutex_lock(&hub->lock);
    bool aborted = hub->aborted;
    pthread_mutex_unlock(&hub->lock);
    return aborted ? ra_transport_error(RA_ERR_PEER, hub->reason) : RA_OK;
}

static void destroy_hub(struct hub *hub)
{
    for (struct letter *letter = hub->letters, *next; letter; letter = next) {
        next = letter->next;
        free(letter);
    }
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

static void link_close(void *context)
{
    struct end *end = context;
    struct hub *hub = end->hub;
    pthread_mutex_lock(&hub->lock);
    bool last = --hub->open == 0;
    pthread_mutex_unlock(&hub->lock);
    free(end->due);
    free(end);
    if (last) destroy_hub(hub);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static struct hub *create_hub(const struct link_setup *setup)
{
    struct hub *hub = calloc(1, sizeof *hub);
    pthread_condattr_t monotonic;
    if (!hub) return NULL;
    hub->setup = *setup;
    pthread_mutex_init(&hub->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return hub;
}

static ra_status create_rank(struct hub *hub, int ranks, int rank, const ra_group_options *options,
                             ra_group **group)
{
    struct end *end = calloc(1, sizeof *end);
    ra_transport_callbacks calls = ra_transport_callbacks_default();
    if (!end) return ra_transport_error(RA_ERR_MEMORY, "link: out of memory");
    *end = (struct end){ .hub = hub, .rank = rank };
    calls.context = end;
    calls.post = link_post;
    calls.wait = link_wait;
    calls.poll = link_poll;
    calls.abort = link_abort;
    calls.close = link_close;
    ra_status status = ra_group_create_custom(ranks, rank, &calls, options, group);
    if (status != RA_OK) free(end);
    else hub->open++;
    return status;
}

ra_status link_groups(const struct link_setup *setup, int ranks, const ra_group_options *options,
                      ra_group **groups)
{
    struct hub *hub = create_hub(setup);
    ra_status status = hub ? RA_OK : ra_transport_error(RA_ERR_MEMORY, "link: out of memory");
    int made = 0;
    for (; made < ranks && status == RA_OK; made++)
        status = create_rank(hub, ranks, made, options, &groups[made]);
    if (status == RA_OK || !hub) return status;
    hub->open++; /* so that it outlives the ranks */
    for (int rank = 0; rank < made - 1; rank++) ra_group_destroy(groups[rank]);
    destroy_hub(hub);
    return status;
}
