/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - one rank's end of a group of MPI processes.
 *
 *     join.c    initialises MPI, makes communicators, finds ranks that share cores; and the reverse
 *     round.c   messages: each is announced by a header, then sent in fragments
 *     life.c    control messages to all other ranks: heartbeat, failure, goodbye
 *
 * Only the rank's own thread calls MPI. Everything is nonblocking; every call of post, wait and
 * poll handles whatever has arrived. */
#ifndef RA__TRANSPORT_MPI_LINK_H
#define RA__TRANSPORT_MPI_LINK_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/plugin.h"
#include "transport/transport.h"

/* MPI guarantees tags up to 32767 only. Ours keep their low bits there: hop and topic. The other
 * bits, in which plans differ, are compared through the header that announces a message. */
enum { TAG_BITS = 0x7fff, TAG_NOTE = TAG_BITS };

/* Fragments of a message that are under way at once: while one is requested and confirmed, the next
 * one is sent, and a rank that polls seldom finds more done. */
enum { PIECES = 4 };

/* The progress of a message that has been posted. */
struct flight {
    struct ra__message *message;
    bool is_send;
    struct word {
        int32_t tag, hop;
        uint64_t bytes, sum;
    } word;       /* sent, or received */
    uint64_t sum; /* of the fragments that have arrived */
    /* the message before it in the round, to or from this peer, or NULL */
    const struct flight *earlier;
    const struct flight *twin; /* the last such message with the same tag */
    bool has_word;             /* the header was sent, or has arrived */
    bool begun;                /* its first fragment has been started */
    size_t moved, started;     /* bytes of fragments that are done, and that have been started */
    MPI_Request word_request;
    MPI_Request pieces[PIECES]; /* under way, fragment i at i % PIECES */
};

/* Control messages. */
enum note_kind { NOTE_LIFE, NOTE_REST, NOTE_FAILURE, NOTE_FAREWELL };

struct note {
    int32_t kind;
    int32_t status;  /* of a failure */
    int32_t culprit; /* of a heartbeat: the rank at the end of the chain of waits */
    int32_t circle;  /* that rank waits for us: a cycle */
    double age;      /* seconds since the heartbeat of that rank */
    char reason[480];
};

struct peer {
    double heard;                   /* when its last control message arrived */
    bool active;                    /* it is in a call, so heartbeats are expected */
    double life;                    /* the last heartbeat of it, or of the rank it waits for */
    int culprit;                    /* which rank that is */
    bool circle;                    /* it is part of a cycle of waits */
    bool left;                      /* it said goodbye */
    const struct flight *newest[2]; /* of the round: its last receive and its last send */
    /* Control messages to it that are under way: a heartbeat, which the next one can replace, and
     * one of another kind, which must not be lost and does not wait for the first. */
    struct sending {
        struct note note;
        MPI_Request request;
    } life_note, other_note;
};

struct link {
    MPI_Comm data, words; /* our own: for fragments; for headers and control messages */
    int rank, ranks, hop;
    double timeout;
    bool checksum;
    size_t piece_bytes;
    _Atomic(pthread_t) owner; /* the thread that calls MPI */
    bool funneled;            /* no other thread may */

    struct flight *flights;
    int capacity, flying; /* capacity of `flights`; used by the posted round */
    int undone;           /* all before this one are done */
    double last_look;     /* when MPI was last polled */

    struct peer *peers;
    struct note heard;
    MPI_Request listening;
    double last_shown;
    double last_check; /* when all peers were last seen to be alive */
    double back;       /* when this rank last resumed after a pause in which it did not poll */
    bool resting;      /* idle: the others expect no heartbeats from us */
    int waits_for;     /* -1: it is working */
    double waits_since;

    pthread_mutex_t lock; /* guards the next three */
    ra_status failure;    /* RA_OK while all is well */
    int failed_rank;
    char reason[512];
    atomic_bool failed; /* the same as failure, to be read without the lock */
    bool told;          /* the others have been informed */
    bool stuck;         /* MPI did not release a request: its memory is retained */
};

extern const struct ra__host *mpi_host;

#define mpi_fail(status, ...) (mpi_host->set_error(__VA_ARGS__), (status))

/* RA_OK, or an error with MPI's own description. */
ra_status mpi_check(const struct link *link, int code, const char *what);

/* join.c */
ra_status mpi_join(const void *where, const struct ra__link_options *options, void **link,
                   struct ra__place *place);
void mpi_close(void *link);

/* round.c */
ra_status mpi_reserve(void *link, int messages);
ra_status mpi_post(void *link, struct ra__round *round);
ra_status mpi_wait(void *link, struct ra__round *round);
ra_status mpi_poll(void *link);
bool mpi_holds(void *link);

/* life.c */
ra_status life_open(struct link *link);
/* Handles control messages that have arrived, and sends some if they are due. */
ra_status life_look(struct link *link);
void life_rest(void *link);
/* Fails once no rank that could end a wait for `peer` has sent a heartbeat within the timeout. */
ra_status life_check(struct link *link, int peer, int hop);
/* Records a failure of this rank; the first one counts. Its own thread informs the others. */
void life_fail(struct link *link, ra_status status, const char *reason);
ra_status life_failure(struct link *link); /* the error of this rank after that */
void life_abort(void *link, ra_status status, const char *reason);
/* Waits until all others say goodbye too; true if they did, and no message of theirs is left. */
bool life_farewell(struct link *link);
void life_close(struct link *link);

/* Cancels a request; false if MPI did not release it. */
bool mpi_withdraw(MPI_Request *request, double until);

/* Sleeps briefly: longer the longer this wait has lasted. */
void mpi_nap(double since);

#endif
