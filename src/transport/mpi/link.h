/* link.h - one rank's end of a group of MPI processes.
 *
 *     join.c    MPI is there, communicators, who shares whose cores; and the end of all that
 *     round.c   messages: each is announced by a word, then comes in pieces
 *     life.c    signs of life, failures and farewells, told to all others
 *
 * Only the rank's own thread calls MPI. Everything is nonblocking; every call of post, wait and
 * poll takes along whatever has arrived. */
#ifndef RA__TRANSPORT_MPI_LINK_H
#define RA__TRANSPORT_MPI_LINK_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/plugin.h"
#include "transport/transport.h"

/* Tags of MPI go up to 32767 everywhere. Ours keep their low bits: hop and topic. The rest of them,
 * by which plans differ, is compared by the word that announces a message. */
enum { TAG_BITS = 0x7fff, TAG_NOTE = TAG_BITS };

/* Pieces of a message that are under way at once: while one is asked for and confirmed, the next
 * one travels, and a rank that looks seldom finds more done. */
enum { PIECES = 4 };

/* What is left of a message that has been posted. */
struct flight {
    struct ra__message *message;
    bool is_send;
    struct word {
        int32_t tag, hop;
        uint64_t bytes, sum;
    } word;                       /* sent, or received */
    uint64_t sum;                 /* of the pieces that have arrived */
    const struct flight *earlier; /* the one before it in the round to or from this peer, or NULL */
    const struct flight *twin;    /* the last of those with the same tag */
    bool has_word;                /* it has left, or arrived */
    bool begun;                   /* its first piece has been started */
    size_t moved, started;        /* bytes of pieces that are done, and that have been started */
    MPI_Request word_request;
    MPI_Request pieces[PIECES]; /* under way, each in the place of its number */
};

/* What ranks tell one another besides messages. */
enum note_kind { NOTE_LIFE, NOTE_REST, NOTE_FAILURE, NOTE_FAREWELL };

struct note {
    int32_t kind;
    int32_t status;  /* of a failure */
    int32_t culprit; /* of a sign of life: the rank that all this waits for */
    int32_t circle;  /* it waits for us in turn */
    double age;      /* seconds since that one showed life */
    char reason[480];
};

struct peer {
    double heard;                   /* when a note of it came */
    bool active;                    /* it is in a call, and will go on sending them */
    double life;                    /* when it, or whom it waits for, last showed life */
    int culprit;                    /* who that is */
    bool circle;                    /* it waits for a rank that waits for it */
    bool left;                      /* it said farewell */
    const struct flight *newest[2]; /* of the round: its last receive and its last send */
    /* Notes to it that are under way: a sign of life, which the next one can do without, and one of
     * another kind, which must not be left out and does not wait for the first. */
    struct sending {
        struct note note;
        MPI_Request request;
    } life_note, other_note;
};

struct link {
    MPI_Comm data, words; /* of our own: pieces; words and notes */
    int rank, ranks, hop;
    double timeout;
    bool checksum;
    size_t piece_bytes;
    _Atomic(pthread_t) owner; /* the thread that calls MPI */
    bool funneled;            /* no other ever may */

    struct flight *flights;
    int capacity, flying; /* flights there is room for; of the round that is posted */
    int undone;           /* all before this one are done */
    double last_look;     /* when MPI was last asked */

    struct peer *peers;
    struct note heard;
    MPI_Request listening;
    double last_shown;
    double last_check; /* when it was seen that nobody is missing */
    double back;       /* when this rank came back from wherever it did not listen */
    bool resting;      /* the others do not wait for our notes */
    int waits_for;     /* -1: works */
    double waits_since;

    pthread_mutex_t lock; /* guards the next three */
    ra_status failure;    /* RA_OK while all is well */
    int failed_rank;
    char reason[512];
    atomic_bool failed; /* the same as failure, to be read without the lock */
    bool told;          /* the others know */
    bool stuck;         /* MPI did not give back a request: its memory cannot be freed */
};

extern const struct ra__host *mpi_host;

#define mpi_fail(status, ...) (mpi_host->set_error(__VA_ARGS__), (status))

/* RA_OK, or MPI's own words for what it returned. */
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
/* Takes along notes, and sends some when it is time to. */
ra_status life_look(struct link *link);
void life_rest(void *link);
/* Fails once nobody who could end a wait for `peer` has shown life for the timeout. */
ra_status life_check(struct link *link, int peer, int hop);
/* This rank fails for all; the first failure counts. Its own thread tells the others. */
void life_fail(struct link *link, ra_status status, const char *reason);
ra_status life_failure(struct link *link); /* what this rank says after that */
void life_abort(void *link, ra_status status, const char *reason);
/* Waits until all others say farewell too; true if they did, and nothing is left of theirs. */
bool life_farewell(struct link *link);
void life_close(struct link *link);

/* Gives back a request that nobody waits for any more; false if MPI did not let go of it. */
bool mpi_withdraw(MPI_Request *request, double until);

/* Sleeps a little: longer the longer this wait has lasted. */
void mpi_nap(double since);

#endif
