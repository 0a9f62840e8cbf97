/* SPDX-License-Identifier: Apache-2.0 */
/* rank.h - one rank of a group: its device, its link, and the control messages between ranks. These
 * are few and small, in host memory, and never travel with the data of a program. */
#ifndef RA__EXEC_RANK_H
#define RA__EXEC_RANK_H

#include "backend/backend.h"
#include "core/tags.h"
#include "transport/transport.h"

struct ra__rank {
    int rank, ranks;
    const struct ra__backend *backend;
    void *device;
    struct ra__buffers *buffers; /* the buffer pool of its plans */
    const struct ra__transport *transport;
    void *link;    /* NULL: closed */
    bool retained; /* by a link that is closed */
    bool reaches;  /* messages leave from memory of the device, and arrive there */
    ra_trace_fn trace;
    void *context;
};

static inline int ra__rank_threads(const struct ra__rank *rank)
{
    return rank->backend->threads(rank->device);
}

/* A call that used the link has ended well: no heartbeat is expected until the next one. */
static inline void ra__rank_idle(const struct ra__rank *rank)
{
    if (rank->transport->idle) rank->transport->idle(rank->link);
}

/* Does the transport retain buffers of messages after a failure? Then they are never freed: the
 * memory is lost on purpose, and the process should end. */
static inline bool ra__rank_retains(const struct ra__rank *rank)
{
    if (!rank->link) return rank->retained;
    return rank->transport->retains && rank->transport->retains(rank->link);
}

/* An allgather of a few bytes: entry i of `theirs` comes from the i-th of the other ranks.
 * `messages` has room for 2 (ranks - 1). */
ra_status ra__control_share(const struct ra__rank *rank, struct ra__message *messages, int tag,
                            const void *mine, void *theirs, size_t bytes);

#endif
