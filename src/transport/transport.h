/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - the contract between exec and what sends bytes between ranks.
 *
 * exec posts rounds: a round holds sends and receives that start together, and is waited for before
 * the next one is posted. The n-th send of a tag from a to b matches the n-th receive of that tag
 * from a on b. Both sides state the same number of bytes; a difference is an error. */
#ifndef RA__TRANSPORT_TRANSPORT_H
#define RA__TRANSPORT_TRANSPORT_H

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/event.h"

/* A message, owned by the plan, so that posting allocates nothing. */
struct ra__message {
    int peer;
    int tag;
    int hop; /* for error sentences */
    void *data;
    size_t bytes;
    /* On both sides of a message: `data` itself is handed on, and no byte is read; `bytes` only
     * count. For transports that take loans. */
    bool lends;
    /* Of one that lends: how many have what it lends. Raised when it is delivered, before the
     * receiver may fail, and handed on as well. */
    atomic_int *holders;
    struct ra__event after;   /* likewise, handed on: what is lent may be used when it has passed */
    struct ra__message *next; /* the transport's while posted, like the next three */
    int from;                 /* the posting rank */
    int state;
    uint64_t sum; /* of the bytes, if links use checksums */
};

/* The error for a corrupt message: hop, bytes, sender, receiver and their checksums. */
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

/* The options of all links of a group. With `checksum` a message carries a checksum of its bytes
 * (core/sum.h), which its receiver compares; a difference fails with RA_ERR_CORRUPT and a sentence
 * that names rank, peer, hop and both checksums. */
struct ra__link_options {
    double timeout; /* seconds */
    bool checksum;
};

/* The place of a rank that joined. */
struct ra__place {
    int rank, ranks;
    int sharers; /* ranks that run on the cores this one may use, itself included */
    int turn;    /* how many of those come before it */
};

struct ra__transport {
    const char *name;
    const char *summary;
    /* Opens the links of all ranks of a group in this process: links[0 .. ranks - 1]. NULL if a
     * process has one rank, which then joins, or is opened by a function of its own. */
    ra_status (*open)(int ranks, const struct ra__link_options *options, void **links);
    /* Opens the link of the one rank of this process; every process of the group calls it. `where`
     * is defined by the transport's own header, NULL = all processes that were started together.
     * NULL if ranks do not join. */
    ra_status (*join)(const void *where, const struct ra__link_options *options, void **link,
                      struct ra__place *place);
    /* Makes room for rounds of this many messages, so that post allocates nothing; NULL if none is
     * needed. Called while planning. */
    ra_status (*reserve)(void *link, int messages);
    /* Tells how the memory of this rank's device is used. True: buffers of its messages may be
     * there from now on. Otherwise, and before, they are host memory. NULL: the same as false. */
    bool (*extend)(void *link, const struct ra__reach *reach);
    /* Does `post` take events that have not passed? Then the messages of a round start when all of
     * round->after have. Others are given rounds whose buffers are ready, but for those that only
     * lend: nothing of their buffers is touched. */
    bool takes_events;
    /* Does it take messages that lend? Its ranks are in one process. */
    bool takes_loans;
    /* Starts the messages of a round; their buffers stay busy until wait. */
    ra_status (*post)(void *link, struct ra__round *round);
    /* Until that round is complete on this rank. Fails with a sentence that names rank, peer and
     * hop if a peer has failed, or has sent no heartbeat within the timeout of the link. After a
     * failure nothing writes to the buffers any more, unless `retains` is true. */
    ra_status (*wait)(void *link, struct ra__round *round);
    /* After a failure: may messages still be in progress? Their buffers may then be read and
     * written at any time, so they are retained: never freed. NULL: never. */
    bool (*retains)(void *link);
    /* Called often while this rank works: sends heartbeats, lets messages make progress, and fails
     * if the group was aborted. Cheap. */
    ra_status (*poll)(void *link);
    /* This rank's call is over: it is idle and sends no heartbeats until its next call. NULL if
     * only waits watch for heartbeats. */
    void (*idle)(void *link);
    /* Ends the group: every rank's next call fails with this reason. Any thread, any time. */
    void (*abort)(void *link, ra_status status, const char *reason);
    /* Accepts NULL; safe after a failed post. */
    void (*close)(void *link);
};

/* The entries of transport.list, then those of plug-ins; NULL after the last. Asking for an entry
 * after the built-in ones, or for a name that is not built in, opens plug-ins. */
const struct ra__transport *ra__transport_at(int index);

/* The same, then the plug-ins that cannot be used here. */
struct ra__transport_part {
    const char *name, *summary;
    const struct ra__transport *transport; /* NULL: cannot be used here */
    /* the reason given by the plug-in; NULL for built-in ones */
    const char *why;
};
bool ra__transport_part(int index, struct ra__transport_part *out); /* false after the last */
ra_status ra__transport_find(const char *name, const struct ra__transport **out);

/* Opens the link of one rank whose messages the caller's callbacks send. */
ra_status ra__custom_open(int rank, double timeout, const ra_transport_callbacks *callbacks,
                          void **link);

#define RA__TRANSPORT(name) extern const struct ra__transport ra__transport_##name;
#include "transport/transport.list"
#undef RA__TRANSPORT

#endif
