/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - threads that take items from one counter, so that uneven items balance themselves.
 *
 * Who has to wait first spins for a moment, where threads have cores of their own: to put a thread
 * to sleep and wake it up takes as long as a short step of a ring. */
#include "backend/cpu/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

struct worker {
    struct ra__workers *workers;
    pthread_t thread;
    int index; /* 1 and up; 0 is the calling thread */
};

struct ra__workers {
    int threads, started;
    bool spin;
    pthread_mutex_t lock;
    pthread_cond_t work_ready, work_done, item_done;
    struct ra__work work; /* changed only while no worker is busy */
    const struct ra__heartbeat *heartbeat;
    atomic_int busy; /* workers that have not finished the work */
    atomic_int_least64_t next;
    atomic_uint_least64_t generation; /* counts works that workers take part in */
    atomic_int waiting;               /* threads that sleep until an item is done */
    atomic_bool quit;                 /* the heartbeat of this work failed */
    atomic_bool stop;                 /* the workers end */
    ra_status status;                 /* of the heartbeat; the calling thread's */
    struct worker list[];
};

/* ---- Waiting --------------------------------------------------------------------------------- */

/* What a thread waits for. */
struct wait {
    struct ra__workers *workers;
    bool (*over)(const struct wait *wait);
    uint64_t generation; /* of the work that this thread did last */
    int64_t item;
};

/* Spins for a moment; true as soon as the wait is over. The thread that is waited for may have no
 * core, if other programs use this machine: it gets this one. */
static bool spin(const struct wait *wait)
{
    enum { LOOKS = 64 };
    const double moment = 200e-6; /* seconds: what a caller may do between two steps of decoding */
    if (wait->over(wait)) return true;
    if (!wait->workers->spin) return false;
    for (double end = ra__now() + moment; ra__now() < end; sched_yield())
        for (int i = 0; i < LOOKS; i++) {
            if (wait->over(wait)) return true;
            PAUSE();
        }
    return false;
}

bool ra__workers_continue(struct ra__workers *workers, int thread)
{
    if (thread == 0 && workers->status == RA_OK) {
        workers->status = workers->heartbeat->beat(workers->heartbeat->context);
        if (workers->status != RA_OK) atomic_store(&workers->quit, true);
    }
    return !atomic_load(&workers->quit);
}

/* Sleeps until `condition` is signalled and the wait is over. The calling thread calls the
 * heartbeat ten times a second: items of others may take long. */
static void sleep_until(const struct wait *wait, pthread_cond_t *condition, int thread)
{
    struct ra__workers *workers = wait->workers;
    pthread_mutex_lock(&workers->lock);
    while (!wait->over(wait)) {
        struct timespec until = ra__deadline(0.1);
        if (thread > 0) pthread_cond_wait(condition, &workers->lock);
        else if (pthread_cond_timedwait(condition, &workers->lock, &until) != 0) {
            pthread_mutex_unlock(&workers->lock);
            ra__workers_continue(workers, thread);
            pthread_mutex_lock(&workers->lock);
        }
    }
    pthread_mutex_unlock(&workers->lock);
}

static bool work_has_come(const struct wait *wait)
{
    return atomic_load(&wait->workers->generation) != wait->generation ||
           atomic_load(&wait->workers->stop);
}

static bool work_is_done(const struct wait *wait) { return atomic_load(&wait->workers->busy) == 0; }

static bool item_is_ready(const struct wait *wait)
{
    const struct ra__work *work = &wait->workers->work;
    return atomic_load(&wait->workers->quit) || work->ready(work->context, wait->item);
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* Until an item may start; false if it must not. A thread that sets `waiting` and then finds an
 * item not ready is seen by the one that makes it ready and then looks at `waiting`: both are
 * sequentially consistent. */
static bool await_item(const struct wait *wait, int thread)
{
    struct ra__workers *workers = wait->workers;
    if (workers->work.ready && !spin(wait)) {
        atomic_fetch_add(&workers->waiting, 1);
        sleep_until(wait, &workers->item_done, thread);
        atomic_fetch_sub(&workers->waiting, 1);
    }
    return !atomic_load(&workers->quit);
}

static void wake_waiting(struct ra__workers *workers)
{
    if (atomic_load(&workers->waiting) == 0) return;
    pthread_mutex_lock(&workers->lock);
    pthread_cond_broadcast(&workers->item_done);
    pthread_mutex_unlock(&workers->lock);
}

static void take_items(struct ra__workers *workers, int thread)
{
    const struct ra__work *work = &workers->work;
    struct wait wait = { .workers = workers, .over = item_is_ready };
    bool more = true;
    while (more && (wait.item = atomic_fetch_add(&workers->next, 1)) < work->items &&
           await_item(&wait, thread)) {
        work->body(work->context, wait.item, thread);
        more = ra__workers_continue(workers, thread);
        wake_waiting(workers);
    }
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct ra__workers *workers = self->workers;
    struct wait wait = { .workers = workers, .over = work_has_come };
    for (;;) {
        if (!spin(&wait)) sleep_until(&wait, &workers->work_ready, self->index);
        if (atomic_load(&workers->stop)) return NULL;
        wait.generation++; /* one after the other: each counts on all workers */
        take_items(workers, self->index);
        if (atomic_fetch_sub(&workers->busy, 1) > 1) continue;
        pthread_mutex_lock(&workers->lock);
        pthread_cond_signal(&workers->work_done);
        pthread_mutex_unlock(&workers->lock);
    }
}

ra_status ra__workers_run(struct ra__workers *workers, const struct ra__work *work,
                          const struct ra__heartbeat *heartbeat)
{
    const bool alone = workers->started == 0 || work->items <= 1;
    workers->work = *work;
    workers->heartbeat = heartbeat;
    workers->status = RA_OK;
    atomic_store(&workers->quit, false);
    atomic_store(&workers->next, 0);
    if (!alone) {
        pthread_mutex_lock(&workers->lock);
        atomic_store(&workers->busy, workers->started);
        atomic_fetch_add(&workers->generation, 1);
        pthread_cond_broadcast(&workers->work_ready);
        pthread_mutex_unlock(&workers->lock);
    }
    take_items(workers, 0);
    if (alone) return workers->status;
    wake_waiting(workers); /* a failed heartbeat ends their waiting */
    struct wait wait = { .workers = workers, .over = work_is_done };
    if (!spin(&wait)) sleep_until(&wait, &workers->work_done, 0);
    return workers->status;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* The index-th core of those this thread may use, alone; false if there are not so many. */
static bool find_core(int index, cpu_set_t *core)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || index-- > 0) continue;
        CPU_ZERO(core);
        CPU_SET(cpu, core);
        return true;
    }
    return false;
}

static int start_worker(struct worker *worker, const struct ra__workers_options *options)
{
    pthread_attr_t attributes;
    cpu_set_t core;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    if (options->pin)
        error = find_core(options->first_core + worker->index, &core)
                    ? pthread_attr_setaffinity_np(&attributes, sizeof core, &core)
                    : EINVAL;
    if (!error) error = pthread_create(&worker->thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    return error;
}

ra_status ra__workers_create(const struct ra__workers_options *options, struct ra__workers **out)
{
    int threads = options->threads;
    size_t bytes = sizeof(struct ra__workers) + (size_t)threads * sizeof(struct worker);
    struct ra__workers *workers = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
    if (!workers) return ra__fail(RA_ERR_MEMORY, "threads: %zu bytes", bytes);
    workers->threads = threads;
    workers->spin = options->spin;
    pthread_mutex_init(&workers->lock, NULL);
    ra__cond_init(&workers->work_ready);
    ra__cond_init(&workers->work_done);
    ra__cond_init(&workers->item_done);
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &workers->list[i];
        *worker = (struct worker){ .workers = workers, .index = i };
        int error = start_worker(worker, options);
        if (error) {
            ra__workers_destroy(workers);
            return ra__fail(RA_ERR_SYSTEM, "threads: thread %d of %d could not start: %s", i + 1,
                            threads, strerror(error));
        }
        workers->started = i;
    }
    *out = workers;
    return RA_OK;
}

void ra__workers_destroy(struct ra__workers *workers)
{
    if (!workers) return;
    pthread_mutex_lock(&workers->lock);
    atomic_store(&workers->stop, true);
    pthread_cond_broadcast(&workers->work_ready);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 1; i <= workers->started; i++) pthread_join(workers->list[i].thread, NULL);
    pthread_cond_destroy(&workers->work_ready);
    pthread_cond_destroy(&workers->work_done);
    pthread_cond_destroy(&workers->item_done);
    pthread_mutex_destroy(&workers->lock);
    ra__free(workers);
}

int ra__workers_threads(const struct ra__workers *workers) { return workers->threads; }
