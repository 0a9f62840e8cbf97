/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - the messages of a round.
 *
 * A message is announced by a header (its tag, hop and bytes), followed at once by fragments, a few
 * at a time, each small enough for MPI's int counts. The receiver requests the first fragment after
 * it has compared the header with what it expects: a message longer than its receive is an error
 * that MPI may answer by ending the process. The comparison costs one poll between slices of work,
 * long before the message is needed.
 *
 * Headers and fragments of one tag arrive in the order in which they were sent, and match receives
 * in the order in which these were posted. So of two messages of a round with the same tag and
 * peer, the second starts its fragments after the first has started its last one, on both sides:
 * they overlap and cannot be confused. Nor is the second polled before the first, so polling a
 * round of hundreds of messages is cheap. */
#include "transport/mpi/link.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "core/clock.h"
#include "core/sum.h"

/* Often enough to keep a network busy, seldom enough to cost nothing: a poll takes about a
 * microsecond. */
#define LOOK_EVERY 50e-6

/* How long a failed rank waits for MPI to release its buffers. */
#define WITHDRAW_LIMIT 0.05

void mpi_nap(double since)
{
    /* Most waits are short; a longer wait leaves the core to others. */
    if (ra__now() - since < 200e-6) return;
    nanosleep(&(struct timespec){ 0, 50000 }, NULL);
}

bool mpi_withdraw(MPI_Request *request, double until)
{
    int done = *request == MPI_REQUEST_NULL;
    if (!done) MPI_Cancel(request);
    for (double since = ra__now(); !done; mpi_nap(since)) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done && ra__now() > until) return false;
    }
    return true;
}

bool mpi_holds(void *opaque) { return ((struct link *)opaque)->stuck; }

ra_status mpi_reserve(void *opaque, int messages)
{
    struct link *link = opaque;
    /* MPI may still access the flights */
    if (atomic_load(&link->failed)) return life_failure(link);
    if (messages <= link->capacity) return RA_OK;
    struct flight *flights = mpi_host->alloc((size_t)messages * sizeof *flights);
    if (!flights) return mpi_fail(RA_ERR_MEMORY, "mpi transport: %d messages", messages);
    mpi_host->free(link->flights);
    link->flights = flights;
    link->capacity = messages;
    return RA_OK;
}

/* ---- One message ----------------------------------------------------------------------------- */

static bool is_done(const struct flight *flight)
{
    return flight->has_word && flight->moved == flight->message->bytes;
}

/* The length of the fragment that starts at byte `at`. */
static size_t piece_bytes(const struct link *link, const struct ra__message *message, size_t at)
{
    size_t left = message->bytes - at;
    return left < link->piece_bytes ? left : link->piece_bytes;
}

static MPI_Request *piece_request(const struct link *link, struct flight *flight, size_t at)
{
    return &flight->pieces[at / link->piece_bytes % PIECES];
}

static ra_status start_piece(struct link *link, struct flight *flight)
{
    const struct ra__message *m = flight->message;
    int count = (int)piece_bytes(link, m, flight->started), tag = m->tag & TAG_BITS;
    char *data = (char *)m->data + flight->started;
    MPI_Request *request = piece_request(link, flight, flight->started);
    flight->started += (size_t)count;
    return mpi_check(link,
                     flight->is_send
                         ? MPI_Isend(data, count, MPI_BYTE, m->peer, tag, link->data, request)
                         : MPI_Irecv(data, count, MPI_BYTE, m->peer, tag, link->data, request),
                     flight->is_send ? "a send" : "a receive");
}

/* As many as may be under way at once. */
static ra_status start_pieces(struct link *link, struct flight *flight)
{
    while (flight->started < flight->message->bytes &&
           flight->started - flight->moved < PIECES * link->piece_bytes)
        RA__TRY(start_piece(link, flight));
    return RA_OK;
}

static ra_status start_word(struct link *link, struct flight *flight)
{
    const struct ra__message *m = flight->message;
    struct word *word = &flight->word;
    int tag = m->tag & TAG_BITS;
    return mpi_check(link,
                     flight->is_send ? MPI_Isend(word, sizeof *word, MPI_BYTE, m->peer, tag,
                                                 link->words, &flight->word_request)
                                     : MPI_Irecv(word, sizeof *word, MPI_BYTE, m->peer, tag,
                                                 link->words, &flight->word_request),
                     flight->is_send ? "a send" : "a receive");
}

/* Starts the fragments as soon as that is allowed. */
static ra_status begin(struct link *link, struct flight *flight)
{
    const struct flight *twin = flight->twin;
    bool its_turn = !twin || (twin->begun && twin->started == twin->message->bytes);
    if (flight->begun || !its_turn || !(flight->is_send || flight->has_word)) return RA_OK;
    flight->begun = true;
    return start_pieces(link, flight);
}

/* Between two ranks a round has few tags, so this search is short. */
static const struct flight *find_twin(const struct flight *flight)
{
    const struct flight *other = flight->earlier;
    while (other && (other->message->tag ^ flight->message->tag) & TAG_BITS) other = other->earlier;
    return other;
}

/* The checksum in the header: fragment by fragment, as the receiver computes it. A block takes
 * milliseconds, and even gigabytes less than the timeout. */
static uint64_t sum_of(const struct link *link, const struct ra__message *message)
{
    uint64_t sum = RA__SUM_START;
    for (size_t at = 0; link->checksum && at < message->bytes; at += link->piece_bytes)
        sum = ra__sum(sum, (const char *)message->data + at, piece_bytes(link, message, at));
    return sum;
}

static ra_status add(struct link *link, struct ra__message *message, bool is_send)
{
    struct flight *flight = &link->flights[link->flying++];
    uint64_t sum = is_send ? sum_of(link, message) : 0;
    *flight = (struct flight){ .message = message,
                               .is_send = is_send,
                               .word = { message->tag, message->hop, message->bytes, sum },
                               .sum = RA__SUM_START,
                               .word_request = MPI_REQUEST_NULL };
    for (int i = 0; i < PIECES; i++) flight->pieces[i] = MPI_REQUEST_NULL;
    const struct flight **newest = &link->peers[message->peer].newest[is_send];
    message->from = link->rank;
    flight->earlier = *newest;
    flight->twin = find_twin(flight);
    *newest = flight;
    RA__TRY(start_word(link, flight));
    return begin(link, flight);
}

/* Do sender and receiver expect the same message? */
static ra_status compare(struct link *link, const struct flight *flight)
{
    const struct ra__message *m = flight->message;
    const struct word *word = &flight->word;
    char reason[240];
    if (word->tag == m->tag && word->bytes == m->bytes) return RA_OK;
    if (word->bytes != m->bytes)
        snprintf(reason, sizeof reason, "hop %d: rank %d sends %zu bytes where rank %d expects %zu",
                 m->hop, m->peer, (size_t)word->bytes, link->rank, m->bytes);
    else
        snprintf(reason, sizeof reason,
                 "hop %d: rank %d sends a message of tag %#x where rank %d expects %#x; do all "
                 "ranks run the same plan?",
                 m->hop, m->peer, (unsigned)word->tag, link->rank, (unsigned)m->tag);
    life_fail(link, RA_ERR_MISMATCH, reason);
    return mpi_fail(RA_ERR_MISMATCH, "rank %d, %s", link->rank, reason);
}

static ra_status look_at_word(struct link *link, struct flight *flight)
{
    int done;
    if (flight->has_word || (flight->twin && !flight->twin->has_word)) return RA_OK;
    RA__TRY(mpi_check(link, MPI_Test(&flight->word_request, &done, MPI_STATUS_IGNORE), "a test"));
    if (!done) return RA_OK;
    link->waits_since = ra__now();
    /* otherwise an empty message would be done */
    if (!flight->is_send) RA__TRY(compare(link, flight));
    flight->has_word = true;
    return RA_OK;
}

/* Before a fragment counts as done: a corrupt message never does. */
static ra_status check_piece(struct link *link, struct flight *flight, size_t bytes)
{
    const struct ra__message *m = flight->message;
    char reason[200];
    if (flight->is_send || !link->checksum) return RA_OK;
    flight->sum = ra__sum(flight->sum, (const char *)m->data + flight->moved, bytes);
    if (flight->moved + bytes < m->bytes || flight->sum == flight->word.sum) return RA_OK;
    snprintf(reason, sizeof reason, RA__CORRUPT_TEXT, m->hop, m->bytes, m->peer, link->rank,
             flight->word.sum, flight->sum);
    life_fail(link, RA_ERR_CORRUPT, reason);
    return mpi_fail(RA_ERR_CORRUPT, "rank %d, %s", link->rank, reason);
}

/* The first of the fragments under way; the others are not done earlier. */
static ra_status look_at_piece(struct link *link, struct flight *flight, int *done)
{
    size_t bytes = piece_bytes(link, flight->message, flight->moved);
    MPI_Request *request = piece_request(link, flight, flight->moved);
    RA__TRY(mpi_check(link, MPI_Test(request, done, MPI_STATUS_IGNORE), "a test"));
    if (!*done) return RA_OK;
    link->waits_since = ra__now(); /* a sender is alive, however slow */
    RA__TRY(check_piece(link, flight, bytes));
    flight->moved += bytes;
    return start_pieces(link, flight);
}

static ra_status look_at_pieces(struct link *link, struct flight *flight)
{
    int done = !flight->twin || is_done(flight->twin);
    while (done && flight->moved < flight->started) RA__TRY(look_at_piece(link, flight, &done));
    return RA_OK;
}

/* ---- A round --------------------------------------------------------------------------------- */

/* The first message that is not done; NULL if all are. */
static const struct ra__message *pending(struct link *link)
{
    while (link->undone < link->flying && is_done(&link->flights[link->undone])) link->undone++;
    return link->undone < link->flying ? link->flights[link->undone].message : NULL;
}

static void withdraw(struct link *link)
{
    double until = ra__now() + WITHDRAW_LIMIT;
    for (int i = 0; i < link->flying; i++) {
        struct flight *flight = &link->flights[i];
        bool back = mpi_withdraw(&flight->word_request, until);
        for (int n = 0; n < PIECES; n++) back &= mpi_withdraw(&flight->pieces[n], until);
        if (!back) link->stuck = true;
    }
    link->flying = 0;
}

/* Handles everything that has arrived. */
static ra_status look(struct link *link)
{
    for (int i = link->undone; i < link->flying; i++) {
        struct flight *flight = &link->flights[i];
        if (is_done(flight)) continue;
        RA__TRY(look_at_word(link, flight));
        RA__TRY(begin(link, flight));
        RA__TRY(look_at_pieces(link, flight));
    }
    return life_look(link);
}

/* The calling thread must be allowed to call MPI. */
static ra_status own_thread(struct link *link)
{
    pthread_t self = pthread_self();
    if (pthread_equal(self, atomic_load(&link->owner))) return RA_OK;
    if (link->funneled)
        return mpi_fail(RA_ERR_UNSUPPORTED,
                        "rank %d: MPI has MPI_THREAD_FUNNELED only, so the thread that made the "
                        "group must use it",
                        link->rank);
    atomic_store(&link->owner, self);
    return RA_OK;
}

ra_status mpi_poll(void *opaque)
{
    struct link *link = opaque;
    if (link->ranks == 1 && !atomic_load(&link->failed)) return RA_OK;
    if (!atomic_load(&link->failed) && ra__now() - link->last_look < LOOK_EVERY) return RA_OK;
    RA__TRY(own_thread(link));
    link->waits_for = -1;
    return look(link);
}

static ra_status add_all(struct link *link, struct ra__message *messages, int count, bool is_send)
{
    for (int i = 0; i < count; i++) link->peers[messages[i].peer].newest[is_send] = NULL;
    for (int i = 0; i < count; i++) RA__TRY(add(link, &messages[i], is_send));
    return RA_OK;
}

ra_status mpi_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    RA__TRY(own_thread(link));
    link->hop = round->hop;
    link->waits_for = -1;
    RA__TRY(look(link));
    RA__TRY(mpi_reserve(link, round->send_count + round->recv_count));
    link->undone = 0;
    ra_status status = add_all(link, round->recvs, round->recv_count, false);
    if (status == RA_OK) status = add_all(link, round->sends, round->send_count, true);
    if (status == RA_OK) status = look(link);
    if (status != RA_OK) withdraw(link);
    return status;
}

ra_status mpi_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    const struct ra__message *message, *newest = NULL;
    double since = ra__now();
    (void)round; /* one round is posted at a time, and its messages are all here */
    RA__TRY(own_thread(link));
    ra_status status = look(link);
    while (status == RA_OK && (message = pending(link))) {
        if (message != newest) link->waits_since = ra__now();
        newest = message;
        link->waits_for = message->peer;
        mpi_nap(since);
        status = look(link);
        if (status == RA_OK && pending(link) == message)
            status = life_check(link, message->peer, message->hop);
    }
    link->waits_for = -1;
    if (!pending(link)) status = RA_OK; /* what happened since then is reported by the next call */
    if (status == RA_OK) link->flying = 0;
    else withdraw(link);
    return status;
}
