/* pool.h - the threads of one rank. The rank's own thread works too, so a pool of one has no thread
 * of its own and costs nothing. */
#ifndef RA__CORE_POOL_H
#define RA__CORE_POOL_H

#include "core/memory.h"

struct ra__pool;

struct ra__pool_options {
    int threads; /* with the rank's own */
    bool spin;   /* wait awake for a moment before sleeping: only where every thread has a core */
    bool pin; /* thread i > 0 stays on core first_core + i of those the caller may use; the rank's
                    own thread is the caller's and goes where it likes */
    int first_core;
};
ra_status ra__pool_create(const struct ra__pool_options *options, struct ra__pool **out);
void ra__pool_destroy(struct ra__pool *pool); /* accepts NULL */
int ra__pool_threads(const struct ra__pool *pool);

/* Work in `items` pieces: body(context, item, thread) for each item, on any thread. Items are begun
 * in ascending order, each once ready(context, item) holds; that may depend on items before it
 * being done, by atomics that a body sets, and on nothing else. `tick` runs on the calling thread
 * between its items and while it waits for the others; when it fails no further item is started,
 * and its status is returned once the running ones are done. */
struct ra__work {
    void (*body)(void *context, int64_t item, int thread);
    ra_status (*tick)(void *context);
    bool (*ready)(void *context, int64_t item); /* NULL: items are independent */
    /* Must this item wait for that one of the work before, which is under way? NULL: nothing begins
     * until all of the work before is done. */
    bool (*clashes)(void *context, int64_t item, int64_t before);
    ra_status (*aside)(void *context); /* NULL, or what the calling thread does before its items,
                                          while others begin; fails as tick does */
    void *context;
    int64_t items;
};
ra_status ra__pool_run(struct ra__pool *pool, const struct ra__work *work);

/* The same, but returns when no item is left to begin, unless it fails: threads may be at their
 * last ones still, until ra__pool_settle() or the work after the next one. Their context has to
 * last as long, and what `clashes` of the next work reads of it one work longer. */
ra_status ra__pool_begin(struct ra__pool *pool, const struct ra__work *work);
ra_status ra__pool_settle(struct ra__pool *pool);

/* For the calling thread: has a thread not yet left the work before the newest? */
bool ra__pool_lingers(struct ra__pool *pool);

/* For bodies that take long, between two parts of one: ticks, where `thread` is the calling one,
 * and says whether there is any point in going on. */
bool ra__pool_go_on(struct ra__pool *pool, int thread);

/* The cores this process may use. */
int ra__cores(void);

#endif
