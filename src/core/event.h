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

/* How a transport uses memory of a device that the host cannot touch. */
struct ra__reach {
    void *device;
    bool cuda_memory; /* it is memory of CUDA, whose pointers other libraries take */
    /* Between buffers of devices of this kind in one process; any may be host memory too. Returns
     * when the bytes are there. */
    ra_status (*copy)(void *device, void *to, const void *from, size_t bytes);
    /* For a library that expects the device to be the current one of the thread: makes it so, and
     * returns what restore() takes. NULL: there is no such thing. */
    int (*make_current)(void *device);
    void (*restore)(int before);
};

#endif
