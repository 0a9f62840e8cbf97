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

enum { SIGNS_PER_TIMEOUT = 4, CHECKS_PER_TIMEOUT = 16 };

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
static bool tell(struct link *link, int to, const struct note *note)
{
    struct peer *peer = &link->peers[to];
    struct sending *sending = note->kind == NOTE_LIFE ? &peer->life_note : &peer->other_note;
    size_t bytes = note->kind == NOTE_FAILURE ? sizeof *note : offsetof(struct note, reason);
    if (to == link->rank) return true;
    if (!has_left(sending)) return false;
    sending->note = *note;
    if (MPI_Isend(&sending->note, (int)bytes, MPI_BYTE, to, TAG_NOTE, link->words,
                  &sending->request) != MPI_SUCCESS)
        sending->request = MPI_REQUEST_NULL; /* a peer that cannot be reached will time out */
    return true;
}

/* True if every peer got one. */
static bool tell_all(struct link *link, const struct note *note)
{
    bool all = true;
    for (int i = 0; i < link->ranks; i++) all = tell(link, i, note) && all;
    return all;
}

/* Until all control messages are sent, or at most this long. */
static bool drain(struct link *link, double until)
{
    for (double since = ra__now();; mpi_nap(since)) {
        bool all = true;
        for (int i = 0; i < link->ranks; i++)
            all = has_left(&link->peers[i].life_note) && has_left(&link->peers[i].other_note) &&
                  all;
        if (all || ra__now() > until) return all;
    }
}

/* The latest heartbeat of the rank that this one waits for. */
static double life_awaited(const struct link *link)
{
    double life = link->peers[link->waits_for].life;
    double floor = link->waits_since > link->back ? link->waits_since : link->back;
    return life > floor ? life : floor;
}

static void show_life(struct link *link)
{
    double now = ra__now();
    if (now - link->last_shown < link->timeout / SIGNS_PER_TIMEOUT) return;
    link->last_shown = now;
    struct note note = { .kind = NOTE_LIFE, .culprit = link->rank };
    if (link->waits_for >= 0) {
        const struct peer *peer = &link->peers[link->waits_for];
        note.culprit = peer->culprit;
        note.circle = peer->circle || peer->culprit == link->rank;
        note.age = now - life_awaited(link);
    }
    tell_all(link, &note);
    link->resting = false;
}

void life_rest(void *opaque)
{
    struct link *link = opaque;
    if (link->resting || atomic_load(&link->failed)) return;
    const struct note note = { .kind = NOTE_REST };
    link->resting = tell_all(link, &note);
    if (link->resting) return;
    /* Some peer has not received the last one yet. It gets the next. */
    drain(link, ra__now() + link->timeout / SIGNS_PER_TIMEOUT);
    link->resting = tell_all(link, &note);
}

static ra_status lost(struct link *link, int rank, int hop)
{
    char reason[200];
    snprintf(reason, sizeof reason, "hop %d: no heartbeat from rank %d for %.3g seconds", hop, rank,
             link->timeout);
    life_fail(link, RA_ERR_TIMEOUT, reason);
    return mpi_fail(RA_ERR_TIMEOUT, "rank %d, %s", link->rank, reason);
}

/* Fails if a rank that was in a call has stopped sending heartbeats. */
static ra_status look_out(struct link *link)
{
    double now = ra__now();
    if (now - link->last_check < link->timeout / CHECKS_PER_TIMEOUT) return RA_OK;
    link->last_check = now;
    for (int i = 0; i < link->ranks; i++) {
        const struct peer *peer = &link->peers[i];
        double heard = peer->heard > link->back ? peer->heard : link->back;
        if (peer->active && now - heard > link->timeout) return lost(link, i, link->hop);
    }
    return RA_OK;
}

/* ---- Hearing --------------------------------------------------------------------------------- */

static ra_status listen(struct link *link)
{
    return mpi_check(link,
                     MPI_Irecv(&link->heard, sizeof link->heard, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTE,
                               link->words, &link->listening),
                     "a receive");
}

ra_status life_open(struct link *link)
{
    for (int i = 0; i < link->ranks; i++) {
        link->peers[i].life_note.request = link->peers[i].other_note.request = MPI_REQUEST_NULL;
        link->peers[i].culprit = i;
    }
    link->listening = MPI_REQUEST_NULL;
    link->last_shown = link->last_look = ra__now();
    link->resting = true;
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
    struct note *note = &link->heard;
    peer->heard = ra__now();
    peer->active = note->kind == NOTE_LIFE;
    switch (note->kind) {
    case NOTE_LIFE:
        peer->life = ra__now() - note->age;
        peer->culprit = note->culprit;
        peer->circle = note->circle != 0;
        break;
    case NOTE_FAILURE:
        note->reason[sizeof note->reason - 1] = '\0';
        set_failure(link, from, (ra_status)note->status, note->reason);
        break;
    case NOTE_FAREWELL: peer->left = true; break;
    default: break;
    }
}

/* Reports a failure of this rank to the others, also one that another of its threads requested. */
static void tell_failure(struct link *link)
{
    if (link->told || !atomic_load(&link->failed)) return;
    link->told = true;
    struct note note = { .kind = NOTE_FAILURE, .status = (int32_t)link->failure };
    snprintf(note.reason, sizeof note.reason, "%.*s", (int)sizeof note.reason - 1, link->reason);
    if (link->failed_rank != link->rank) return; /* they hear it from that rank */
    double limit = link->timeout / 2 < 0.5 ? link->timeout / 2 : 0.5;
    drain(link, ra__now() + limit); /* heartbeats that are still under way */
    tell_all(link, &note);
    drain(link, ra__now() + limit);
}

ra_status life_look(struct link *link)
{
    double now = ra__now();
    if (now - link->last_look > link->timeout / SIGNS_PER_TIMEOUT) link->back = now;
    link->last_look = now;
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
        tell_failure(link);
        return life_failure(link);
    }
    show_life(link);
    return look_out(link);
}

/* ---- Failing --------------------------------------------------------------------------------- */

ra_status life_failure(struct link *link)
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

void life_fail(struct link *link, ra_status status, const char *reason)
{
    set_failure(link, link->rank, status, reason);
    if (pthread_equal(pthread_self(), atomic_load(&link->owner))) tell_failure(link);
}

void life_abort(void *opaque, ra_status status, const char *reason)
{
    life_fail(opaque, status, reason);
}

ra_status life_check(struct link *link, int rank, int hop)
{
    const struct peer *peer = &link->peers[rank];
    bool circle = peer->circle || peer->culprit == link->rank;
    if (ra__now() - life_awaited(link) < link->timeout) return RA_OK;
    if (!peer->left && !circle) return lost(link, peer->culprit, hop);
    char reason[200];
    if (peer->left)
        snprintf(reason, sizeof reason, "hop %d: rank %d has left the group", hop, rank);
    else
        snprintf(
            reason, sizeof reason,
            "hop %d: ranks %d and %d have waited for one another for %.3g seconds; do all ranks "
            "run the same plan?",
            hop, link->rank, rank, link->timeout);
    life_fail(link, RA_ERR_TIMEOUT, reason);
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

bool life_farewell(struct link *link)
{
    int peer;
    const struct note note = { .kind = NOTE_FAREWELL };
    if (!drain(link, ra__now() + link->timeout)) return false;
    tell_all(link, &note);
    link->last_shown = 1e300; /* nothing follows a goodbye */
    link->waits_since = ra__now();
    for (double since = link->waits_since; (peer = still_there(link)) >= 0; mpi_nap(since)) {
        link->waits_for = peer;
        if (life_look(link) != RA_OK) return false;
        if (still_there(link) == peer && ra__now() - life_awaited(link) > link->timeout)
            return false;
    }
    return drain(link, ra__now() + link->timeout);
}

void life_close(struct link *link)
{
    double until = ra__now() + 0.05;
    if (!mpi_withdraw(&link->listening, until)) link->stuck = true;
    for (int i = 0; i < link->ranks; i++) {
        struct peer *peer = &link->peers[i];
        bool life = mpi_withdraw(&peer->life_note.request, until);
        bool other = mpi_withdraw(&peer->other_note.request, until);
        if (!life || !other) link->stuck = true;
    }
}
