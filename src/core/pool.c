/* pool.c - threads that take items from one counter, so that uneven items balance themselves. */
#include "core/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"

struct worker {
    struct ra__pool *pool;
    pthread_t thread;
    int index; /* 1 and up; 0 is the rank's own thread */
};

struct ra__pool {
    int threads, started;
    pthread_mutex_t lock;
    pthread_cond_t work_ready, work_done;
    struct ra__work work; /* under lock while changed */
    uint64_t generation;  /* counts calls of ra__pool_run */
    int busy;             /* workers that have not finished this generation */
    bool stop;
    atomic_int_least64_t next;
    struct worker workers[];
};

static void take_items(struct ra__pool *pool, const struct ra__work *work, int thread)
{
    int64_t item;
    while ((item = atomic_fetch_add(&pool->next, 1)) < work->items)
        work->body(work->context, item, thread);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct ra__pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->generation == seen && !pool->stop)
            pthread_cond_wait(&pool->work_ready, &pool->lock);
        if (pool->stop) break;
        seen = pool->generation;
        struct ra__work work = pool->work;
        pthread_mutex_unlock(&pool->lock);
        take_items(pool, &work, self->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0) pthread_cond_signal(&pool->work_done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

ra_status ra__pool_create(int threads, struct ra__pool **out)
{
    size_t bytes = sizeof(struct ra__pool) + (size_t)threads * sizeof(struct worker);
    struct ra__pool *pool = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
    if (!pool) return ra__fail(RA_ERR_MEMORY, "threads: %zu bytes", bytes);
    pool->threads = threads;
    pthread_mutex_init(&pool->lock, NULL);
    ra__cond_init(&pool->work_ready);
    ra__cond_init(&pool->work_done);
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){ .pool = pool, .index = i };
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error) {
            ra__pool_destroy(pool);
            return ra__fail(RA_ERR_SYSTEM, "threads: thread %d of %d could not start: %s", i + 1,
                            threads, strerror(error));
        }
        pool->started = i;
    }
    *out = pool;
    return RA_OK;
}

void ra__pool_destroy(struct ra__pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->work_ready);
    pthread_cond_destroy(&pool->work_done);
    pthread_mutex_destroy(&pool->lock);
    ra__free(pool);
}

int ra__pool_threads(const struct ra__pool *pool) { return pool->threads; }

/* The rank's own thread: works, ticks, and on a failed tick leaves the remaining items to nobody. */
static ra_status take_items_ticking(struct ra__pool *pool, const struct ra__work *work)
{
    int64_t item;
    while ((item = atomic_fetch_add(&pool->next, 1)) < work->items) {
        work->body(work->context, item, 0);
        ra_status status = work->tick(work->context);
        if (status == RA_OK) continue;
        atomic_store(&pool->next, work->items);
        return status;
    }
    return RA_OK;
}

/* Waits for the workers, ticking ten times a second: an item of theirs may take long. */
static ra_status wait_ticking(struct ra__pool *pool, const struct ra__work *work, ra_status status)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->busy > 0) {
        struct timespec until = ra__deadline(0.1);
        if (pthread_cond_timedwait(&pool->work_done, &pool->lock, &until) == 0) continue;
        pthread_mutex_unlock(&pool->lock);
        if (status == RA_OK) status = work->tick(work->context);
        if (status != RA_OK) atomic_store(&pool->next, work->items);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

ra_status ra__pool_run(struct ra__pool *pool, const struct ra__work *work)
{
    atomic_store(&pool->next, 0);
    bool alone = pool->threads == 1 || work->items <= 1;
    if (!alone) {
        pthread_mutex_lock(&pool->lock);
        pool->work = *work;
        pool->generation++;
        pool->busy = pool->started;
        pthread_cond_broadcast(&pool->work_ready);
        pthread_mutex_unlock(&pool->lock);
    }
    ra_status status = take_items_ticking(pool, work);
    return alone ? status : wait_ticking(pool, work, status);
}

int ra__cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
