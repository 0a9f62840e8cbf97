/* SPDX-License-Identifier: Apache-2.0 */
/* life.c - the control messages of a rank: heartbeat, failure, goodbye.
 *
 * Every rank sends a heartbeat to every other four times per timeout, from its polls while it works
 * and from its waits. A waiting rank is only as alive as the rank it waits for, so its heartbeat
 * names that rank and the age of that rank's heartbeat. All ranks that wait in a chain therefore
 * give up on the same rank at about the same time, and in a cycle of waiting ranks the ages grow
 * together.
 *
 * A working rank watches too: a peer that was in a call and stopped sending is lost, even if nobody
 * waits for it yet. A rank that leaves a call says so. A rank that was itself stopped does not
 * count the time it missed against the others. */
#include "transport/mpi/link.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"

enum { HEARTBEATS_PER_TIMEOUT = 4, CHECKS_PER_TIMEOUT = 16 };

/* ---- Telling --------------------------------------------------------------------------------- */

/* Has the last control message of its kind been sent? */
static bool has_left(struct sending *sending)
{
    int done = 1;
    if (sending->request != MPI_REQUEST_NULL) MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE);
    return done;
}

/* A peer that has not received the last message of the kind yet gets no new one, and false is
 * returned. */
static bool send_control(struct link *link, int to, const struct control_message *control_message)
{
    struct peer *peer = &link->peers[to];
    struct sending *sending = control_message->kind == CONTROL_HEARTBEAT ? &peer->heartbeat_message
                                                                         : &peer->other_message;
    size_t bytes = control_message->kind == CONTROL_FAILURE
                       ? sizeof *control_message
                       : offsetof(struct control_message, reason);
    if (to == link->rank) return true;
    if (!has_left(sending)) return false;
    sending->control_message = *control_message;
    if (MPI_Isend(&sending->control_message, (int)bytes, MPI_BYTE, to, TAG_CONTROL, link->control,
                  &sending->request) != MPI_SUCCESS)
        sending->request = MPI_REQUEST_NULL; /* a peer that cannot be reached will time out */
    return true;
}

/* True if every peer got one. */
static bool send_control_to_all(struct link *link, const struct control_message *control_message)
{
    bool all = true;
    for (int i = 0; i < link->ranks; i++) all = send_control(link, i, control_message) && all;
    return all;
}

/* Until all control messages are sent, or at most this long. */
static bool drain(struct link *link, double until)
{
    for (double since = ra__now();; ra__backoff(since)) {
        bool all = true;
        for (int i = 0; i < link->ranks; i++)
            all = has_left(&link->peers[i].heartbeat_message) &&
                  has_left(&link->peers[i].other_message) && all;
        if (all || ra__now() > until) return all;
    }
}

/* The latest heartbeat of the rank that this one waits for. */
static double heartbeat_awaited(const struct link *link)
{
    double heartbeat = link->peers[link->waits_for].heartbeat;
    double floor = link->waits_since > link->back ? link->waits_since : link->back;
    return heartbeat > floor ? heartbeat : floor;
}

static void send_heartbeat(struct link *link)
{
    double now = ra__now();
    if (now - link->last_heartbeat < link->timeout / HEARTBEATS_PER_TIMEOUT) return;
    link->last_heartbeat = now;
    struct control_message control_message = { .kind = CONTROL_HEARTBEAT, .waits_on = link->rank };
    if (link->waits_for >= 0) {
        const struct peer *peer = &link->peers[link->waits_for];
        control_message.waits_on = peer->waits_on;
        control_message.cycle = peer->cycle || peer->waits_on == link->rank;
        control_message.age = now - heartbeat_awaited(link);
    }
    send_control_to_all(link, &control_message);
    link->is_idle = false;
}

void control_idle(void *opaque)
{
    struct link *link = opaque;
    if (link->is_idle || atomic_load(&link->failed)) return;
    const struct control_message control_message = { .kind = CONTROL_IDLE };
    link->is_idle = send_control_to_all(link, &control_message);
    if (link->is_idle) return;
    /* Some peer has not received the last one yet. It gets the next. */
    drain(link, ra__now() + link->timeout / HEARTBEATS_PER_TIMEOUT);
    link->is_idle = send_control_to_all(link, &control_message);
}

static ra_status lost(struct link *link, int rank, int hop)
{
    char reason[200];
    snprintf(reason, sizeof reason, "hop %d: no heartbeat from rank %d for %.3g seconds", hop, rank,
             link->timeout);
    control_fail(link, RA_ERR_TIMEOUT, reason);
    return mpi_fail(RA_ERR_TIMEOUT, "rank %d, %s", link->rank, reason);
}

/* Fails if a rank that was in a call has stopped sending heartbeats. */
static ra_status check_peers(struct link *link)
{
    double now = ra__now();
    if (now - link->last_check < link->timeout / CHECKS_PER_TIMEOUT) return RA_OK;
    link->last_check = now;
    for (int i = 0; i < link->ranks; i++) {
        const struct peer *peer = &link->peers[i];
        double received = peer->received > link->back ? peer->received : link->back;
        if (peer->active && now - received > link->timeout) return lost(link, i, link->hop);
    }
    return RA_OK;
}

/* ---- Hearing --------------------------------------------------------------------------------- */

static ra_status listen(struct link *link)
{
    return mpi_check(link,
                     MPI_Irecv(&link->received, sizeof link->received, MPI_BYTE, MPI_ANY_SOURCE,
                               TAG_CONTROL, link->control, &link->listening),
                     "a receive");
}

ra_status control_open(struct link *link)
{
    for (int i = 0; i < link->ranks; i++) {
        link->peers[i].heartbeat_message.request = link->peers[i].other_message.request =
            MPI_REQUEST_NULL;
        link->peers[i].waits_on = i;
    }
    link->listening = MPI_REQUEST_NULL;
    link->last_heartbeat = link->last_poll = ra__now();
    link->is_idle = true;
    link->waits_for = -1;
    return listen(link);
}

static void set_failure(struct link *link, int rank, ra_status status, const char *reason)
{
    pthread_mutex_lock(&link->lock);
    if (link->failure == RA_OK) {
        link->failure = status;
        link->failed_rank = rank;
        snprintf(link->reason, sizeof link->reason, "%s", reason);
        atomic_store(&link->failed, true);
    }
    pthread_mutex_unlock(&link->lock);
}

static void hear(struct link *link, int from)
{
    struct peer *peer = &link->peers[from];
    struct control_message *control_message = &link->received;
    peer->received = ra__now();
    peer->active = control_message->kind == CONTROL_HEARTBEAT;
    switch (control_message->kind) {
    case CONTROL_HEARTBEAT:
        peer->heartbeat = ra__now() - control_message->age;
        peer->waits_on = control_message->waits_on;
        peer->cycle = control_message->cycle != 0;
        break;
    case CONTROL_FAILURE:
        control_message->reason[sizeof control_message->reason - 1] = '\0';
        set_failure(link, from, (ra_status)control_message->status, control_message->reason);
        break;
    case CONTROL_GOODBYE: peer->left = true; break;
    default: break;
    }
}

/* Reports a failure of this rank to the others, also one that another of its threads requested. */
static void send_failure(struct link *link)
{
    if (link->reported || !atomic_load(&link->failed)) return;
    link->reported = true;
    struct control_message control_message = { .kind = CONTROL_FAILURE,
                                               .status = (int32_t)link->failure };
    snprintf(control_message.reason, sizeof control_message.reason, "%.*s",
             (int)sizeof control_message.reason - 1, link->reason);
    if (link->failed_rank != link->rank) return; /* they hear it from that rank */
    double limit = link->timeout / 2 < 0.5 ? link->timeout / 2 : 0.5;
    drain(link, ra__now() + limit); /* heartbeats that are still under way */
    send_control_to_all(link, &control_message);
    drain(link, ra__now() + limit);
}

ra_status control_poll(struct link *link)
{
    double now = ra__now();
    if (now - link->last_poll > link->timeout / HEARTBEATS_PER_TIMEOUT) link->back = now;
    link->last_poll = now;
    for (int arrived = 1; arrived && link->listening != MPI_REQUEST_NULL;) {
        MPI_Status status;
        ra_status result = mpi_check(link, MPI_Test(&link->listening, &arrived, &status),
                                     "a test for notes");
        if (result != RA_OK) return result;
        if (!arrived) break;
        hear(link, status.MPI_SOURCE);
        result = listen(link);
        if (result != RA_OK) return result;
    }
    if (atomic_load(&link->failed)) {
        send_failure(link);
        return control_failure(link);
    }
    send_heartbeat(link);
    return check_peers(link);
}

/* ---- Failing --------------------------------------------------------------------------------- */

ra_status control_failure(struct link *link)
{
    pthread_mutex_lock(&link->lock);
    ra_status status = link->failure;
    if (status == RA_ERR_ABORTED)
        mpi_host->set_error("rank %d, hop %d: the group was aborted by rank %d: %s", link->rank,
                            link->hop, link->failed_rank, link->reason);
    else if (link->failed_rank == link->rank) /* detected here */
        mpi_host->set_error("rank %d, %s", link->rank, link->reason);
    else
        status = mpi_fail(RA_ERR_PEER, "rank %d, hop %d: rank %d failed: %s", link->rank, link->hop,
                          link->failed_rank, link->reason);
    pthread_mutex_unlock(&link->lock);
    return status;
}

void control_fail(struct link *link, ra_status status, const char *reason)
{
    set_failure(link, link->rank, status, reason);
    if (pthread_equal(pthread_self(), atomic_load(&link->owner))) send_failure(link);
}

void control_abort(void *opaque, ra_status status, const char *reason)
{
    control_fail(opaque, status, reason);
}

ra_status control_check(struct link *link, int rank, int hop)
{
    const struct peer *peer = &link->peers[rank];
    bool cycle = peer->cycle || peer->waits_on == link->rank;
    if (ra__now() - heartbeat_awaited(link) < link->timeout) return RA_OK;
    if (!peer->left && !cycle) return lost(link, peer->waits_on, hop);
    char reason[200];
    if (peer->left)
        snprintf(reason, sizeof reason, "hop %d: rank %d has left the group", hop, rank);
    else
        snprintf(
            reason, sizeof reason,
            "hop %d: ranks %d and %d have waited for one another for %.3g seconds; do all ranks "
            "run the same plan?",
            hop, link->rank, rank, link->timeout);
    control_fail(link, RA_ERR_TIMEOUT, reason);
    return mpi_fail(RA_ERR_TIMEOUT, "rank %d, %s", link->rank, reason);
}

/* ---- Leaving --------------------------------------------------------------------------------- */

/* A rank that has not left yet; -1 if all have. */
static int still_there(const struct link *link)
{
    for (int i = 0; i < link->ranks; i++)
        if (i != link->rank && !link->peers[i].left) return i;
    return -1;
}

bool control_goodbye(struct link *link)
{
    int peer;
    const struct control_message control_message = { .kind = CONTROL_GOODBYE };
    if (!drain(link, ra__now() + link->timeout)) return false;
    send_control_to_all(link, &control_message);
    link->last_heartbeat = 1e300; /* nothing follows a goodbye */
    link->waits_since = ra__now();
    for (double since = link->waits_since; (peer = still_there(link)) >= 0; ra__backoff(since)) {
        link->waits_for = peer;
        if (control_poll(link) != RA_OK) return false;
        if (still_there(link) == peer && ra__now() - heartbeat_awaited(link) > link->timeout)
            return false;
    }
    return drain(link, ra__now() + link->timeout);
}

void control_close(struct link *link)
{
    double until = ra__now() + 0.05;
    if (!mpi_withdraw(&link->listening, until)) link->retained = true;
    for (int i = 0; i < link->ranks; i++) {
        struct peer *peer = &link->peers[i];
        bool heartbeat = mpi_withdraw(&peer->heartbeat_message.request, until);
        bool other = mpi_withdraw(&peer->other_message.request, until);
        if (!heartbeat || !other) link->retained = true;
    }
}
