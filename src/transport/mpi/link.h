/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - one rank's end of a group of MPI processes.
 *
 *     join.c    initialises MPI, makes communicators, finds ranks that share cores; and the reverse
 *     device.c  whether messages may leave from memory of a GPU, and arrive there
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
enum { TAG_BITS = 0x7fff, TAG_CONTROL = TAG_BITS };

/* Fragments of a message that are under way at once: while one is requested and confirmed, the next
 * one is sent, and a rank that polls seldom finds more done. */
enum { FRAGMENTS = 4 };

/* The progress of a message that has been posted. */
struct transfer {
    struct ra__message *message;
    bool is_send;
    struct header {
        int32_t tag, hop;
        uint64_t bytes, sum;
    } header;     /* sent, or received */
    uint64_t sum; /* of the fragments that have arrived */
    /* the message before it in the round, to or from this peer, or NULL */
    const struct transfer *previous;
    const struct transfer *same_tag; /* the last such message with the same tag */
    bool has_header;                 /* the header was sent, or has arrived */
    bool begun;                      /* its first fragment has been started */
    size_t moved, started; /* bytes of fragments that are done, and that have been started */
    MPI_Request header_request;
    MPI_Request fragments[FRAGMENTS]; /* under way, fragment i at i % FRAGMENTS */
};

/* Control messages. */
enum control_kind { CONTROL_HEARTBEAT, CONTROL_IDLE, CONTROL_FAILURE, CONTROL_GOODBYE };

struct control_message {
    int32_t kind;
    int32_t status;   /* of a failure */
    int32_t waits_on; /* of a heartbeat: the rank at the end of the chain of waits */
    int32_t cycle;    /* that rank waits for us: a cycle */
    double age;       /* seconds since the heartbeat of that rank */
    char reason[480];
};

struct peer {
    double received;                  /* when its last control message arrived */
    bool active;                      /* it is in a call, so heartbeats are expected */
    double heartbeat;                 /* the last heartbeat of it, or of the rank it waits for */
    int waits_on;                     /* which rank that is */
    bool cycle;                       /* it is part of a cycle of waits */
    bool left;                        /* it said goodbye */
    const struct transfer *newest[2]; /* of the round: its last receive and its last send */
    /* Control messages to it that are under way: a heartbeat, which the next one can replace, and
     * one of another kind, which must not be lost and does not wait for the first. */
    struct sending {
        struct control_message control_message;
        MPI_Request request;
    } heartbeat_message, other_message;
};

/* The link of one rank: what it is, its round, the life of its peers, how it failed. Its fields are
 * many because these four are one protocol: every wait for a round also sends and expects
 * heartbeats, and may end in a failure. */
struct link {
    MPI_Comm data, control; /* our own: for fragments; for headers and control messages */
    int rank, ranks, hop;
    double timeout;
    bool checksum;
    bool takes_cuda;        /* MPI takes memory of CUDA, on all ranks */
    struct ra__reach reach; /* of buffers that are such memory; device is NULL: of none */
    size_t fragment_bytes;
    _Atomic(pthread_t) owner; /* the thread that calls MPI */
    bool funneled;            /* no other thread may */

    struct transfer *transfers;
    int capacity, transfer_count; /* capacity of `transfers`; used by the posted round */
    int undone;                   /* all before this one are done */
    double last_poll;             /* when MPI was last polled */

    struct peer *peers;
    struct control_message received;
    MPI_Request listening;
    double last_heartbeat;
    double last_check; /* when all peers were last seen to be alive */
    double back;       /* when this rank last resumed after a pause in which it did not poll */
    bool is_idle;      /* idle: the others expect no heartbeats from us */
    int waits_for;     /* -1: it is working */
    double waits_since;

    pthread_mutex_t lock; /* guards the next three */
    ra_status failure;    /* RA_OK while all is well */
    int failed_rank;
    char reason[512];
    atomic_bool failed; /* the same as failure, to be read without the lock */
    bool reported;      /* the others have been informed */
    bool retained;      /* MPI did not release a request: its memory is retained */
};

extern const struct ra__host *mpi_host;

#define mpi_fail(status, ...) (mpi_host->set_error(__VA_ARGS__), (status))

/* RA_OK, or an error with MPI's own description. */
ra_status mpi_check(const struct link *link, int code, const char *what);

/* join.c */
ra_status mpi_join(const void *where, const struct ra__link_options *options, void **link,
                   struct ra__place *place);
void mpi_close(void *link);

/* device.c */
ra_status mpi_takes_cuda(bool *takes_cuda);
bool mpi_extend(void *link, const struct ra__reach *reach);
/* MPI is called between these two where buffers are memory of a GPU: its GPU is the current one. */
int mpi_enter_device(const struct link *link);
void mpi_leave_device(const struct link *link, int before);

/* round.c */
ra_status mpi_reserve(void *link, int messages);
ra_status mpi_post(void *link, struct ra__round *round);
ra_status mpi_wait(void *link, struct ra__round *round);
ra_status mpi_poll(void *link);
bool mpi_retains(void *link);

/* life.c */
ra_status control_open(struct link *link);
/* Handles control messages that have arrived, and sends some if they are due. */
ra_status control_poll(struct link *link);
void control_idle(void *link);
/* Fails once no rank that could end a wait for `peer` has sent a heartbeat within the timeout. */
ra_status control_check(struct link *link, int peer, int hop);
/* Records a failure of this rank; the first one counts. Its own thread informs the others. */
void control_fail(struct link *link, ra_status status, const char *reason);
ra_status control_failure(struct link *link); /* the error of this rank after that */
void control_abort(void *link, ra_status status, const char *reason);
/* Waits until all others say goodbye too; true if they did, and no message of theirs is left. */
bool control_goodbye(struct link *link);
void control_close(struct link *link);

/* Cancels a request; false if MPI did not release it. */
bool mpi_withdraw(MPI_Request *request, double until);

#endif
