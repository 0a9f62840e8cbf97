/* transport.h - the contract between exec and what carries bytes between ranks.
 *
 * exec posts rounds: a round holds sends and receives that start together, and is waited for before
 * the next one is posted. The n-th send of a tag from a to b meets the n-th receive of that tag
 * from a on b; both sides name the same number of bytes, and a difference is an error.
 */
#ifndef RA__TRANSPORT_TRANSPORT_H
#define RA__TRANSPORT_TRANSPORT_H

#include <inttypes.h>
#include <stdbool.h>

#include "core/event.h"

/* A message, owned by the plan, so that posting allocates nothing. */
struct ra__message {
    int peer;
    int tag;
    int hop; /* for error sentences */
    void *data;
    size_t bytes;
    struct ra__message *next; /* the transport's while posted, as the three below */
    int from;                 /* the posting rank */
    int state;
    uint64_t sum; /* of the bytes, where links check them */
};

/* What is said of one whose bytes changed: hop, bytes, sender, receiver and their sums. */
#define RA__CORRUPT_TEXT                                                                           \
    "hop %d: %zu bytes from rank %d changed on their way to rank %d: checksum %016" PRIx64         \
    " there, %016" PRIx64 " here"

struct ra__round {
    struct ra__message *sends, *recvs;
    int send_count, recv_count;
    int hop;
    const struct ra__event *after; /* what it starts after; see takes_events */
    int after_count;
    void *ticket; /* the transport's, while posted */
};

/* What all links of a group are opened with. With `checksum` a message carries a sum of its bytes
 * (core/sum.h), which its receiver compares; a difference fails with RA_ERR_CORRUPT, and a sentence
 * that names rank, peer, hop and both sums. */
struct ra__link_options {
    double timeout; /* seconds */
    bool checksum;
};

/* Where a rank that joined stands. */
struct ra__place {
    int rank, ranks;
    int sharers; /* ranks that run on the cores this one may use, itself included */
    int turn;    /* how many of those come before it */
};

struct ra__transport {
    const char *name;
    const char *summary;
    /* Opens the links of all ranks of a group in this process: links[0 .. ranks - 1]. NULL where a
     * process has one rank, which then joins, or is opened by a function of its own. */
    ra_status (*open)(int ranks, const struct ra__link_options *options, void **links);
    /* Opens the link of the one rank of this process; every process of the group does so. `where`
     * is what the transport's own header says, NULL = all processes that were started together.
     * NULL where ranks do not join. */
    ra_status (*join)(const void *where, const struct ra__link_options *options, void **link,
                      struct ra__place *place);
    /* Makes room for rounds of this many messages, so that post need not; NULL where none is
     * needed. Called while planning. */
    ra_status (*reserve)(void *link, int messages);
    /* Does `post` take events that have not passed? Then the messages of a round start when all of
     * round->after have. Others are given rounds whose buffers are ready. */
    bool takes_events;
    /* Starts the messages of a round; their buffers stay busy until wait. */
    ra_status (*post)(void *link, struct ra__round *round);
    /* Until that round is done here. Fails with a sentence that names rank, peer and hop when a
     * peer has failed, or has shown no sign of life for the timeout of the link. After a failure
     * the buffers are free, unless `holds` says otherwise: nobody writes to them any more. */
    ra_status (*wait)(void *link, struct ra__round *round);
    /* After a failure: did what carries the messages not let go of all of them? It may then read
     * and write their buffers at any time, so these are left where they are, for ever. NULL: it
     * always lets go. */
    bool (*holds)(void *link);
    /* Called often while this rank works: shows the others that it lives, lets messages make
     * progress, and fails if the group was aborted. Cheap. */
    ra_status (*poll)(void *link);
    /* This rank's call is over: until its next one it shows no life, and nobody shall miss that.
     * NULL where only waits look for life. */
    void (*rest)(void *link);
    /* Ends the group: every rank's next call fails with this reason. Any thread, any time. */
    void (*abort)(void *link, ra_status status, const char *reason);
    /* Accepts NULL; safe after a failed post. */
    void (*close)(void *link);
};

/* The rows of transport.list, then those of plug-ins; NULL behind the last. Who asks for a row
 * behind the built-in ones, or for one by a name that is not built in, has plug-ins opened. */
const struct ra__transport *ra__transport_at(int index);

/* The same, then the plug-ins that cannot be used here. */
struct ra__transport_part {
    const char *name, *summary;
    const struct ra__transport *transport; /* NULL: not here */
    const char *why;                       /* what the plug-in says; NULL for what is built in */
};
bool ra__transport_part(int index, struct ra__transport_part *out); /* false behind the last */
ra_status ra__transport_find(const char *name, const struct ra__transport **out);

/* Opens the link of one rank that the caller's callbacks serve. */
ra_status ra__custom_open(int rank, double timeout, const ra_transport_callbacks *callbacks,
                          void **link);

#define RA__TRANSPORT(name) extern const struct ra__transport ra__transport_##name;
#include "transport/transport.list"
#undef RA__TRANSPORT

#endif
