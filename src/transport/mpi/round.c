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
#define POLL_EVERY 50e-6

/* How long a failed rank waits for MPI to release its buffers. */
#define WITHDRAW_LIMIT 0.05

bool mpi_withdraw(MPI_Request *request, double until)
{
    int done = *request == MPI_REQUEST_NULL;
    if (!done) MPI_Cancel(request);
    for (double since = ra__now(); !done; ra__backoff(since)) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done && ra__now() > until) return false;
    }
    return true;
}

bool mpi_retains(void *opaque) { return ((struct link *)opaque)->retained; }

ra_status mpi_reserve(void *opaque, int messages)
{
    struct link *link = opaque;
    /* MPI may still access the flights */
    if (atomic_load(&link->failed)) return control_failure(link);
    if (messages <= link->capacity) return RA_OK;
    struct transfer *transfers = mpi_host->alloc((size_t)messages * sizeof *transfers);
    if (!transfers) return mpi_fail(RA_ERR_MEMORY, "mpi transport: %d messages", messages);
    mpi_host->free(link->transfers);
    link->transfers = transfers;
    link->capacity = messages;
    return RA_OK;
}

/* ---- One message ----------------------------------------------------------------------------- */

static bool is_done(const struct transfer *transfer)
{
    return transfer->has_header && transfer->moved == transfer->message->bytes;
}

/* The length of the fragment that starts at byte `at`. */
static size_t fragment_bytes(const struct link *link, const struct ra__message *message, size_t at)
{
    size_t left = message->bytes - at;
    return left < link->fragment_bytes ? left : link->fragment_bytes;
}

static MPI_Request *piece_request(const struct link *link, struct transfer *transfer, size_t at)
{
    return &transfer->fragments[at / link->fragment_bytes % FRAGMENTS];
}

static ra_status start_piece(struct link *link, struct transfer *transfer)
{
    const struct ra__message *m = transfer->message;
    int count = (int)fragment_bytes(link, m, transfer->started), tag = m->tag & TAG_BITS;
    char *data = (char *)m->data + transfer->started;
    MPI_Request *request = piece_request(link, transfer, transfer->started);
    transfer->started += (size_t)count;
    return mpi_check(link,
                     transfer->is_send
                         ? MPI_Isend(data, count, MPI_BYTE, m->peer, tag, link->data, request)
                         : MPI_Irecv(data, count, MPI_BYTE, m->peer, tag, link->data, request),
                     transfer->is_send ? "a send" : "a receive");
}

/* As many as may be under way at once. */
static ra_status start_pieces(struct link *link, struct transfer *transfer)
{
    while (transfer->started < transfer->message->bytes &&
           transfer->started - transfer->moved < FRAGMENTS * link->fragment_bytes)
        RA__TRY(start_piece(link, transfer));
    return RA_OK;
}

static ra_status start_word(struct link *link, struct transfer *transfer)
{
    const struct ra__message *m = transfer->message;
    struct header *header = &transfer->header;
    int tag = m->tag & TAG_BITS;
    return mpi_check(link,
                     transfer->is_send ? MPI_Isend(header, sizeof *header, MPI_BYTE, m->peer, tag,
                                                   link->control, &transfer->header_request)
                                       : MPI_Irecv(header, sizeof *header, MPI_BYTE, m->peer, tag,
                                                   link->control, &transfer->header_request),
                     transfer->is_send ? "a send" : "a receive");
}

/* Starts the fragments as soon as that is allowed. */
static ra_status begin(struct link *link, struct transfer *transfer)
{
    const struct transfer *same_tag = transfer->same_tag;
    bool its_turn = !same_tag || (same_tag->begun && same_tag->started == same_tag->message->bytes);
    if (transfer->begun || !its_turn || !(transfer->is_send || transfer->has_header)) return RA_OK;
    transfer->begun = true;
    return start_pieces(link, transfer);
}

/* Between two ranks a round has few tags, so this search is short. */
static const struct transfer *find_twin(const struct transfer *transfer)
{
    const struct transfer *other = transfer->previous;
    while (other && (other->message->tag ^ transfer->message->tag) & TAG_BITS)
        other = other->previous;
    return other;
}

/* The checksum in the header: fragment by fragment, as the receiver computes it. A block takes
 * milliseconds, and even gigabytes less than the timeout. */
static uint64_t sum_of(const struct link *link, const struct ra__message *message)
{
    uint64_t sum = RA__SUM_START;
    for (size_t at = 0; link->checksum && at < message->bytes; at += link->fragment_bytes)
        sum = ra__sum(sum, (const char *)message->data + at, fragment_bytes(link, message, at));
    return sum;
}

static ra_status add(struct link *link, struct ra__message *message, bool is_send)
{
    struct transfer *transfer = &link->transfers[link->transfer_count++];
    uint64_t sum = is_send ? sum_of(link, message) : 0;
    *transfer = (struct transfer){ .message = message,
                                   .is_send = is_send,
                                   .header = { message->tag, message->hop, message->bytes, sum },
                                   .sum = RA__SUM_START,
                                   .header_request = MPI_REQUEST_NULL };
    for (int i = 0; i < FRAGMENTS; i++) transfer->fragments[i] = MPI_REQUEST_NULL;
    const struct transfer **newest = &link->peers[message->peer].newest[is_send];
    message->from = link->rank;
    transfer->previous = *newest;
    transfer->same_tag = find_twin(transfer);
    *newest = transfer;
    RA__TRY(start_word(link, transfer));
    return begin(link, transfer);
}

/* Do sender and receiver expect the same message? */
static ra_status compare(struct link *link, const struct transfer *transfer)
{
    const struct ra__message *m = transfer->message;
    const struct header *header = &transfer->header;
    char reason[240];
    if (header->tag == m->tag && header->bytes == m->bytes) return RA_OK;
    if (header->bytes != m->bytes)
        snprintf(reason, sizeof reason, "hop %d: rank %d sends %zu bytes where rank %d expects %zu",
                 m->hop, m->peer, (size_t)header->bytes, link->rank, m->bytes);
    else
        snprintf(reason, sizeof reason,
                 "hop %d: rank %d sends a message of tag %#x where rank %d expects %#x; do all "
                 "ranks run the same plan?",
                 m->hop, m->peer, (unsigned)header->tag, link->rank, (unsigned)m->tag);
    control_fail(link, RA_ERR_MISMATCH, reason);
    return mpi_fail(RA_ERR_MISMATCH, "rank %d, %s", link->rank, reason);
}

static ra_status poll_header(struct link *link, struct transfer *transfer)
{
    int done;
    if (transfer->has_header || (transfer->same_tag && !transfer->same_tag->has_header))
        return RA_OK;
    RA__TRY(
        mpi_check(link, MPI_Test(&transfer->header_request, &done, MPI_STATUS_IGNORE), "a test"));
    if (!done) return RA_OK;
    link->waits_since = ra__now();
    /* otherwise an empty message would be done */
    if (!transfer->is_send) RA__TRY(compare(link, transfer));
    transfer->has_header = true;
    return RA_OK;
}

/* Before a fragment counts as done: a corrupt message never does. */
static ra_status check_piece(struct link *link, struct transfer *transfer, size_t bytes)
{
    const struct ra__message *m = transfer->message;
    char reason[200];
    if (transfer->is_send || !link->checksum) return RA_OK;
    transfer->sum = ra__sum(transfer->sum, (const char *)m->data + transfer->moved, bytes);
    if (transfer->moved + bytes < m->bytes || transfer->sum == transfer->header.sum) return RA_OK;
    snprintf(reason, sizeof reason, RA__CORRUPT_TEXT, m->hop, m->bytes, m->peer, link->rank,
             transfer->header.sum, transfer->sum);
    control_fail(link, RA_ERR_CORRUPT, reason);
    return mpi_fail(RA_ERR_CORRUPT, "rank %d, %s", link->rank, reason);
}

/* The first of the fragments under way; the others are not done earlier. */
static ra_status poll_fragment(struct link *link, struct transfer *transfer, int *done)
{
    size_t bytes = fragment_bytes(link, transfer->message, transfer->moved);
    MPI_Request *request = piece_request(link, transfer, transfer->moved);
    RA__TRY(mpi_check(link, MPI_Test(request, done, MPI_STATUS_IGNORE), "a test"));
    if (!*done) return RA_OK;
    link->waits_since = ra__now(); /* a sender is alive, however slow */
    RA__TRY(check_piece(link, transfer, bytes));
    transfer->moved += bytes;
    return start_pieces(link, transfer);
}

static ra_status poll_fragments(struct link *link, struct transfer *transfer)
{
    int done = !transfer->same_tag || is_done(transfer->same_tag);
    while (done && transfer->moved < transfer->started)
        RA__TRY(poll_fragment(link, transfer, &done));
    return RA_OK;
}

/* ---- A round --------------------------------------------------------------------------------- */

/* The first message that is not done; NULL if all are. */
static const struct ra__message *pending(struct link *link)
{
    while (link->undone < link->transfer_count && is_done(&link->transfers[link->undone]))
        link->undone++;
    return link->undone < link->transfer_count ? link->transfers[link->undone].message : NULL;
}

static void withdraw(struct link *link)
{
    double until = ra__now() + WITHDRAW_LIMIT;
    for (int i = 0; i < link->transfer_count; i++) {
        struct transfer *transfer = &link->transfers[i];
        bool back = mpi_withdraw(&transfer->header_request, until);
        for (int n = 0; n < FRAGMENTS; n++) back &= mpi_withdraw(&transfer->fragments[n], until);
        if (!back) link->retained = true;
    }
    link->transfer_count = 0;
}

/* Handles everything that has arrived. */
static ra_status look(struct link *link)
{
    for (int i = link->undone; i < link->transfer_count; i++) {
        struct transfer *transfer = &link->transfers[i];
        if (is_done(transfer)) continue;
        RA__TRY(poll_header(link, transfer));
        RA__TRY(begin(link, transfer));
        RA__TRY(poll_fragments(link, transfer));
    }
    return control_poll(link);
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
    if (!atomic_load(&link->failed) && ra__now() - link->last_poll < POLL_EVERY) return RA_OK;
    RA__TRY(own_thread(link));
    link->waits_for = -1;
    const int before = mpi_enter_device(link);
    ra_status status = look(link);
    mpi_leave_device(link, before);
    return status;
}

static ra_status add_all(struct link *link, struct ra__message *messages, int count, bool is_send)
{
    for (int i = 0; i < count; i++) link->peers[messages[i].peer].newest[is_send] = NULL;
    for (int i = 0; i < count; i++) RA__TRY(add(link, &messages[i], is_send));
    return RA_OK;
}

static ra_status post(struct link *link, struct ra__round *round)
{
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

ra_status mpi_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    RA__TRY(own_thread(link));
    const int before = mpi_enter_device(link);
    ra_status status = post(link, round);
    mpi_leave_device(link, before);
    return status;
}

static ra_status await(struct link *link)
{
    const struct ra__message *message, *newest = NULL;
    double since = ra__now();
    ra_status status = look(link);
    while (status == RA_OK && (message = pending(link))) {
        if (message != newest) link->waits_since = ra__now();
        newest = message;
        link->waits_for = message->peer;
        ra__backoff(since);
        status = look(link);
        if (status == RA_OK && pending(link) == message)
            status = control_check(link, message->peer, message->hop);
    }
    link->waits_for = -1;
    if (!pending(link)) status = RA_OK; /* what happened since then is reported by the next call */
    if (status == RA_OK) link->transfer_count = 0;
    else withdraw(link);
    return status;
}

ra_status mpi_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    (void)round; /* one round is posted at a time, and its messages are all here */
    RA__TRY(own_thread(link));
    const int before = mpi_enter_device(link);
    ra_status status = await(link);
    mpi_leave_device(link, before);
    return status;
}
