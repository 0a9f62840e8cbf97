/* pool.h - the threads of one rank. The rank's own thread works too, so a pool of one has no thread
 * of its own and costs nothing. */
#ifndef RA__CORE_POOL_H
#define RA__CORE_POOL_H

#include "core/memory.h"

struct ra__pool;

ra_status ra__pool_create(int threads, struct ra__pool **out);
void ra__pool_destroy(struct ra__pool *pool); /* accepts NULL */
int ra__pool_threads(const struct ra__pool *pool);

/* Work in `items` pieces: body(context, item, thread) for each item, on any thread, in any order.
 * `tick` runs on the calling thread between its items and while it waits for the others; when it
 * fails no further item is started, and its status is returned once the running ones are done. */
struct ra__work {
    void (*body)(void *context, int64_t item, int thread);
    ra_status (*tick)(void *context);
    void *context;
    int64_t items;
};
ra_status ra__pool_run(struct ra__pool *pool, const struct ra__work *work);

/* The cores this process may use. */
int ra__cores(void);

#endif
