/* SPDX-License-Identifier: Apache-2.0 */
/* event.h - "done up to here", and the heartbeat of a rank that waits for it.
 *
 * An event belongs to whoever made it: a backend for a step, which may run it late, or nobody: then
 * it has passed already. Others only keep it and hand it back. */
#ifndef RA__CORE_EVENT_H
#define RA__CORE_EVENT_H

#include <stdbool.h>

#include "core/status.h"

struct ra__event {
    void *source;   /* NULL: passed */
    uint64_t count; /* the source's */
};

/* Called every few milliseconds while a rank works or waits: tells the peers that it is alive and
 * fails if the group was aborted. On the thread that called the library, and no other. */
struct ra__heartbeat {
    ra_status (*beat)(void *context);
    void *context;
};

/* Copies between buffers that the host cannot touch: memory of devices of one kind, in one process.
 * Returns when the bytes are there. Any of these buffers may be host memory too. */
struct ra__reach {
    const char *backend; /* whose memory it is: the name of the backend */
    ra_status (*copy)(void *device, void *to, const void *from, size_t bytes);
    void *device;
};

#endif
