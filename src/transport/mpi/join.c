/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - how a process becomes a rank: MPI is initialised, communicators are made, and ranks
 * learn which of them share cores. And how it leaves. */
#include "transport/mpi/link.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/version.h"
#include "ringattn_mpi.h"

static bool began_mpi;   /* we initialised MPI, so we finalise it */
static bool had_failure; /* a rank may be gone, and MPI_Finalize would wait for it */

ra_status mpi_check(const struct link *link, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return RA_OK;
    MPI_Error_string(code, text, &length);
    if (!link) return mpi_fail(RA_ERR_SYSTEM, "mpi transport: %s failed: %s", what, text);
    return mpi_fail(RA_ERR_SYSTEM, "rank %d, hop %d: %s failed: %s", link->rank, link->hop, what,
                    text);
}

/* ---- MPI itself ------------------------------------------------------------------------------ */

static void end_mpi(void)
{
    int ended = 0;
    MPI_Finalized(&ended);
    if (began_mpi && !ended && !had_failure) MPI_Finalize();
}

static ra_status begin_mpi(int *level)
{
    int begun = 0, ended = 0, is_main = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (ended) return mpi_fail(RA_ERR_SYSTEM, "mpi transport: MPI has been finalised already");
    if (begun) {
        MPI_Query_thread(level);
    } else {
        RA__TRY(mpi_check(NULL, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, level),
                          "MPI_Init_thread"));
        began_mpi = true;
        atexit(end_mpi);
        /* Some MPI libraries report errors of requests to the handler of MPI_COMM_WORLD, whatever
         * communicator they belong to. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    if (*level < MPI_THREAD_FUNNELED)
        return mpi_fail(RA_ERR_UNSUPPORTED,
                        "mpi transport: MPI was initialised for MPI_THREAD_SINGLE; a rank has "
                        "threads of its own and needs MPI_THREAD_FUNNELED (MPI_Init_thread)");
    MPI_Is_thread_main(&is_main);
    if (*level == MPI_THREAD_FUNNELED && !is_main)
        return mpi_fail(RA_ERR_UNSUPPORTED,
                        "mpi transport: with MPI_THREAD_FUNNELED the thread that initialised MPI "
                        "makes the group");
    return RA_OK;
}

/* Before any MPI function is called: in a program of another MPI the symbols would be of that
 * MPI. */
static ra_status find_comm(const ra_mpi_where *where, MPI_Comm *comm)
{
    *comm = MPI_COMM_WORLD;
    if (!where) return RA_OK;
    if (where->size != sizeof *where || !where->family || strcmp(where->family, RA_MPI_FAMILY))
        return mpi_fail(RA_ERR_UNSUPPORTED,
                        "mpi transport: the program was built with %.40s, the plug-in with %s",
                        where->size == sizeof *where && where->family ? where->family
                                                                      : "another MPI",
                        RA_MPI_FAMILY);
    *comm = where->comm;
    return *comm == MPI_COMM_NULL ? mpi_fail(RA_ERR_ARGUMENT, "mpi transport: MPI_COMM_NULL")
                                  : RA_OK;
}

/* Waits for a collective operation; there are no heartbeats yet, so a rank that does not arrive is
 * lost. */
static ra_status wait_for_all(struct link *link, MPI_Request *request, const char *what)
{
    int done = 0;
    for (double since = ra__now(); !done; ra__backoff(since)) {
        RA__TRY(mpi_check(link, MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
        if (!done && ra__now() - since > link->timeout)
            return mpi_fail(RA_ERR_TIMEOUT,
                            "rank %d, hop 0: not all %d ranks came to %s within %.3g seconds",
                            link->rank, link->ranks, what, link->timeout);
    }
    return RA_OK;
}

/* Two communicators of our own: messages are not confused with those of the program, nor headers
 * with fragments. */
static ra_status make_comms(struct link *link, MPI_Comm comm)
{
    MPI_Comm *const made[] = { &link->data, &link->control };
    for (int i = 0; i < RA__COUNT(made); i++) {
        MPI_Request request;
        RA__TRY(mpi_check(link, MPI_Comm_idup(comm, made[i], &request), "MPI_Comm_idup"));
        RA__TRY(wait_for_all(link, &request, "join the group"));
        MPI_Comm_set_errhandler(*made[i], MPI_ERRORS_RETURN);
    }
    return RA_OK;
}

/* Called by all ranks: MPI may wait for them. */
static void free_comms(struct link *link)
{
    MPI_Comm_free(&link->data);
    MPI_Comm_free(&link->control);
}

/* ---- Who is who ------------------------------------------------------------------------------ */

enum { FLAG_CHECKSUM = 1, FLAG_CUDA = 2 };

/* What ranks exchange first; the same size in every version. */
struct card {
    char version[32];
    char host[96];
    uint64_t fragment_bytes, flags;
    cpu_set_t cores;
};

static struct card my_card(const struct link *link)
{
    struct card card;
    memset(&card, 0, sizeof card);
    card.fragment_bytes = link->fragment_bytes;
    card.flags = (link->checksum ? FLAG_CHECKSUM : 0) | (link->takes_cuda ? FLAG_CUDA : 0);
    snprintf(card.version, sizeof card.version, "%s", RA__VERSION);
    gethostname(card.host, sizeof card.host - 1);
    if (sched_getaffinity(0, sizeof card.cores, &card.cores)) CPU_ZERO(&card.cores);
    return card;
}

static bool share_cores(const struct card *a, const struct card *b)
{
    cpu_set_t both;
    CPU_AND(&both, &a->cores, &b->cores);
    return !strcmp(a->host, b->host) && CPU_COUNT(&both) > 0;
}

static bool has_checksum(const struct card *card) { return card->flags & FLAG_CHECKSUM; }

/* Ranks that choose a strategy by its cost must price the same copies, so that messages leave from
 * memory of GPUs on all of them or on none. */
static ra_status read_cards(struct link *link, const struct card *cards, struct ra__place *place)
{
    const struct card *mine = &cards[link->rank];
    *place = (struct ra__place){ link->rank, link->ranks, 1, 0 };
    for (int i = 0; i < link->ranks; i++) {
        if (memcmp(cards[i].version, mine->version, sizeof mine->version))
            return mpi_fail(RA_ERR_MISMATCH,
                            "rank %d, hop 0: rank %d has another library version (%.20s here, "
                            "%.20s there)",
                            link->rank, i, mine->version, cards[i].version);
        if (cards[i].fragment_bytes != mine->fragment_bytes)
            return mpi_fail(RA_ERR_MISMATCH,
                            "rank %d, hop 0: rank %d has another RINGATTN_MPI_PIECE (%zu here, %zu "
                            "there)",
                            link->rank, i, (size_t)mine->fragment_bytes,
                            (size_t)cards[i].fragment_bytes);
        if (has_checksum(&cards[i]) != has_checksum(mine))
            return mpi_fail(
                RA_ERR_MISMATCH,
                "rank %d, hop 0: rank %d was given another checksum (%s here, %s there)",
                link->rank, i, link->checksum ? "on" : "off", link->checksum ? "off" : "on");
        if (!(cards[i].flags & FLAG_CUDA)) link->takes_cuda = false;
        if (i == link->rank || !share_cores(mine, &cards[i])) continue;
        place->sharers++;
        place->turn += i < link->rank;
    }
    return RA_OK;
}

static ra_status show_cards(struct link *link, struct card *cards)
{
    MPI_Request request;
    struct card *mine = cards + link->ranks;
    *mine = my_card(link);
    RA__TRY(mpi_check(link,
                      MPI_Iallgather(mine, sizeof *mine, MPI_BYTE, cards, sizeof *mine, MPI_BYTE,
                                     link->control, &request),
                      "MPI_Iallgather"));
    return wait_for_all(link, &request, "join the group");
}

/* Memory comes first: a rank without memory fails alone, and communicators are freed by all or by
 * none. */
static ra_status meet(struct link *link, MPI_Comm comm, struct ra__place *place)
{
    struct card *cards = mpi_host->alloc(((size_t)link->ranks + 1) * sizeof *cards);
    if (!cards) return mpi_fail(RA_ERR_MEMORY, "mpi transport: %d ranks", link->ranks);
    ra_status status = make_comms(link, comm);
    if (status == RA_OK) status = show_cards(link, cards);
    if (status == RA_ERR_TIMEOUT) return status; /* MPI may still read and write the cards */
    if (status == RA_OK) status = read_cards(link, cards, place);
    mpi_host->free(cards);
    return status;
}

/* ---- Joining and leaving --------------------------------------------------------------------- */

/* Small enough that a fragment arrives well within any timeout, also over slow links: an arriving
 * fragment counts as a heartbeat, and control messages queue after the fragments under way. So do
 * the internal messages of MPI: two ranks that send to each other share the link in units of what
 * is under way. Of 64 KiB to 1 MiB, one to 16 at a time, four of 128 KiB are fastest over TCP with
 * 100 Mbit/s and 1 Gbit/s, and fast enough over shared memory. RINGATTN_MPI_PIECE makes them
 * smaller, for tests. */
static ra_status find_piece_bytes(size_t *bytes)
{
    const char *text = getenv("RINGATTN_MPI_PIECE");
    *bytes = (size_t)1 << 17;
    if (!text || !*text) return RA_OK;
    char *end;
    long long number = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number < 1 || number > INT_MAX)
        return mpi_fail(RA_ERR_ARGUMENT, "RINGATTN_MPI_PIECE is \"%.40s\", but must be 1 to %d",
                        text, INT_MAX);
    *bytes = (size_t)number;
    return RA_OK;
}

static ra_status make_link(MPI_Comm comm, const struct ra__link_options *options, bool funneled,
                           struct link **out)
{
    int is_inter = 0;
    size_t fragment_bytes;
    bool takes_cuda;
    RA__TRY(find_piece_bytes(&fragment_bytes));
    RA__TRY(mpi_takes_cuda(&takes_cuda));
    RA__TRY(mpi_check(NULL, MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter"));
    if (is_inter)
        return mpi_fail(RA_ERR_ARGUMENT, "mpi transport: an intercommunicator has two groups");
    struct link *link = mpi_host->alloc(sizeof *link);
    if (!link) return mpi_fail(RA_ERR_MEMORY, "mpi transport: %zu bytes", sizeof *link);
    MPI_Comm_rank(comm, &link->rank);
    MPI_Comm_size(comm, &link->ranks);
    link->data = link->control = MPI_COMM_NULL;
    link->timeout = options->timeout;
    link->checksum = options->checksum;
    link->takes_cuda = takes_cuda;
    link->fragment_bytes = fragment_bytes;
    link->funneled = funneled;
    atomic_store(&link->owner, pthread_self());
    pthread_mutex_init(&link->lock, NULL);
    link->peers = mpi_host->alloc((size_t)link->ranks * sizeof *link->peers);
    *out = link;
    if (link->peers) return RA_OK;
    return mpi_fail(RA_ERR_MEMORY, "mpi transport: %d ranks", link->ranks);
}

/* Memory that MPI may still access is kept. */
static void free_link(struct link *link)
{
    pthread_mutex_destroy(&link->lock);
    if (link->retained) return;
    mpi_host->free(link->transfers);
    mpi_host->free(link->peers);
    mpi_host->free(link);
}

ra_status mpi_join(const void *where, const struct ra__link_options *options, void **out,
                   struct ra__place *place)
{
    int level;
    MPI_Comm comm;
    struct link *link = NULL;
    RA__TRY(find_comm(where, &comm));
    RA__TRY(begin_mpi(&level));
    ra_status status = make_link(comm, options, level == MPI_THREAD_FUNNELED, &link);
    if (status == RA_OK) status = meet(link, comm, place);
    if (status == RA_OK) status = control_open(link);
    if (status == RA_OK) {
        *out = link;
        return RA_OK;
    }
    if (status == RA_ERR_MISMATCH) free_comms(link); /* all ranks have received all cards */
    had_failure = had_failure || status == RA_ERR_TIMEOUT;
    if (link) link->retained = status == RA_ERR_TIMEOUT; /* MPI still works on the communicators */
    if (link) free_link(link);
    return status;
}

/* A goodbye from every rank shows that all are present, whatever happened before. */
static void note_end(const struct link *link, bool clean)
{
    int world = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (!clean) had_failure = true;
    else if (link->ranks == world) had_failure = false;
}

void mpi_close(void *opaque)
{
    struct link *link = opaque;
    int ended = 0;
    if (!link) return;
    MPI_Finalized(&ended);
    if (!ended) {
        bool clean = !atomic_load(&link->failed) && control_goodbye(link);
        if (!clean) control_poll(link); /* reports an abort that the others have not heard of */
        control_close(link);
        clean = clean && !link->retained;
        if (clean) free_comms(link);
        note_end(link, clean);
    }
    free_link(link);
}
