/* pool.c - threads that take items from one counter, so that uneven items balance themselves. A
 * work may begin while the last items of the one before are under way; the one before that is done
 * by then.
 *
 * Who has to wait first looks on for a moment, where threads have cores of their own: to put a
 * thread to sleep and wake it up takes as long as a short step of a ring. */
#include "core/pool.h"

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
    struct ra__pool *pool;
    pthread_t thread;
    int index;               /* 1 and up; 0 is the rank's own thread */
    atomic_int_least64_t at; /* the item it has: 2 item + generation % 2, or one of these */
};
enum { NOWHERE = -1, TAKING_ONE = -2 };

/* One generation of work. */
struct shift {
    struct ra__work work; /* changed only while no worker is busy */
    atomic_int busy;      /* workers that have not finished it */
    atomic_int_least64_t next;
};

struct ra__pool {
    int threads, started;
    bool spin;
    pthread_mutex_t lock;
    pthread_cond_t work_ready, work_done, item_done;
    struct shift shifts[2];           /* of even and odd generations */
    atomic_uint_least64_t generation; /* counts works that workers take part in */
    atomic_int waiting;               /* threads that sleep until an item is done */
    atomic_bool quit;                 /* a tick of this generation, or what was aside, failed */
    atomic_bool stop;                 /* the pool ends */
    ra_status status;                 /* of these; the calling thread's */
    struct worker workers[];
};

static struct shift *shift_of(struct ra__pool *pool, uint64_t generation)
{
    return &pool->shifts[generation % 2];
}

static struct shift *newest(struct ra__pool *pool)
{
    return shift_of(pool, atomic_load(&pool->generation));
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* What a thread waits for. */
struct wait {
    struct ra__pool *pool;
    bool (*over)(const struct wait *wait);
    uint64_t generation; /* that this thread works on, or worked on last */
    int64_t item;
};

/* Looks on for a moment; true as soon as the wait is over. Who is needed may have no core after
 * all, where others use this machine too: it gets this one. */
static bool look_on(const struct wait *wait)
{
    enum { LOOKS = 64 };
    const double moment = 50e-6; /* seconds: a few times what it takes to wake a thread up */
    if (wait->over(wait)) return true;
    if (!wait->pool->spin) return false;
    for (double end = ra__now() + moment; ra__now() < end; sched_yield())
        for (int i = 0; i < LOOKS; i++) {
            if (wait->over(wait)) return true;
            PAUSE();
        }
    return false;
}

/* On the calling thread: nothing more is begun once a call has failed. */
static void call(struct ra__pool *pool, ra_status (*function)(void *context))
{
    if (pool->status != RA_OK) return;
    pool->status = function(newest(pool)->work.context);
    if (pool->status != RA_OK) atomic_store(&pool->quit, true);
}

bool ra__pool_go_on(struct ra__pool *pool, int thread)
{
    if (thread == 0) call(pool, newest(pool)->work.tick);
    return !atomic_load(&pool->quit);
}

/* Sleeps until `condition` is signalled and the wait is over. The calling thread ticks ten times a
 * second: items of others may take long. */
static void sleep_until(const struct wait *wait, pthread_cond_t *condition, int thread)
{
    struct ra__pool *pool = wait->pool;
    pthread_mutex_lock(&pool->lock);
    while (!wait->over(wait)) {
        struct timespec until = ra__deadline(0.1);
        if (thread > 0) pthread_cond_wait(condition, &pool->lock);
        else if (pthread_cond_timedwait(condition, &pool->lock, &until) != 0) {
            pthread_mutex_unlock(&pool->lock);
            ra__pool_go_on(pool, thread);
            pthread_mutex_lock(&pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

static bool work_has_come(const struct wait *wait)
{
    return atomic_load(&wait->pool->generation) != wait->generation ||
           atomic_load(&wait->pool->stop);
}

static bool all_is_done(const struct wait *wait)
{
    const struct shift *shifts = wait->pool->shifts;
    return atomic_load(&shifts[0].busy) == 0 && atomic_load(&shifts[1].busy) == 0;
}

static bool the_one_before_is_done(const struct wait *wait)
{
    return !ra__pool_lingers(wait->pool);
}

/* Does a thread have an item of the generation before that this one must wait for? Whoever may
 * still get one said so before the last was taken: it is asked again. Where a generation has come
 * behind this one, that before it is done. */
static bool item_clashes(const struct wait *wait)
{
    struct ra__pool *pool = wait->pool;
    const uint64_t before = wait->generation - 1;
    const struct ra__work *work = &shift_of(pool, wait->generation)->work;
    if (!work->clashes || atomic_load(&shift_of(pool, before)->busy) == 0) return false;
    for (int i = 1; i <= pool->started; i++) {
        int64_t at;
        while ((at = atomic_load(&pool->workers[i].at)) == TAKING_ONE) sched_yield();
        if (at < 0 || (uint64_t)at % 2 != before % 2) continue;
        if (atomic_load(&pool->generation) != wait->generation) return false;
        if (work->clashes(work->context, wait->item, at / 2)) return true;
    }
    return false;
}

static bool item_is_ready(const struct wait *wait)
{
    const struct ra__work *work = &shift_of(wait->pool, wait->generation)->work;
    if (atomic_load(&wait->pool->quit)) return true;
    return (!work->ready || work->ready(work->context, wait->item)) && !item_clashes(wait);
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* Until an item may begin; false if it shall not. A thread that sets `waiting` and then finds an
 * item not ready is seen by the one that makes it ready and then looks at `waiting`: both are
 * sequentially consistent. */
static bool await_item(const struct wait *wait, int thread)
{
    struct ra__pool *pool = wait->pool;
    const struct ra__work *work = &shift_of(pool, wait->generation)->work;
    if ((work->ready || work->clashes) && !look_on(wait)) {
        atomic_fetch_add(&pool->waiting, 1);
        sleep_until(wait, &pool->item_done, thread);
        atomic_fetch_sub(&pool->waiting, 1);
    }
    return !atomic_load(&pool->quit);
}

static void wake_waiting(struct ra__pool *pool)
{
    if (atomic_load(&pool->waiting) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->item_done);
    pthread_mutex_unlock(&pool->lock);
}

/* The next item that may begin; false where there is none. */
static bool take_item(struct wait *wait, int thread)
{
    struct shift *shift = shift_of(wait->pool, wait->generation);
    atomic_int_least64_t *at = &wait->pool->workers[thread].at;
    atomic_store(at, TAKING_ONE);
    wait->item = atomic_fetch_add(&shift->next, 1);
    if (wait->item >= shift->work.items) return false;
    atomic_store(at, 2 * wait->item + (int64_t)(wait->generation % 2));
    return await_item(wait, thread);
}

static void take_items(struct ra__pool *pool, uint64_t generation, int thread)
{
    const struct ra__work *work = &shift_of(pool, generation)->work;
    struct wait wait = { .pool = pool, .over = item_is_ready, .generation = generation };
    bool go_on = true;
    while (go_on && take_item(&wait, thread)) {
        work->body(work->context, wait.item, thread);
        atomic_store(&pool->workers[thread].at, NOWHERE);
        go_on = ra__pool_go_on(pool, thread);
        wake_waiting(pool);
    }
    atomic_store(&pool->workers[thread].at, NOWHERE);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct ra__pool *pool = self->pool;
    struct wait wait = { .pool = pool, .over = work_has_come };
    for (;;) {
        if (!look_on(&wait)) sleep_until(&wait, &pool->work_ready, self->index);
        if (atomic_load(&pool->stop)) return NULL;
        wait.generation++; /* one after the other: each counts on all workers */
        take_items(pool, wait.generation, self->index);
        if (atomic_fetch_sub(&shift_of(pool, wait.generation)->busy, 1) > 1) continue;
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->work_done);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* The calling thread, until `over`. */
static void await_workers(struct ra__pool *pool, bool (*over)(const struct wait *wait))
{
    struct wait wait = { .pool = pool, .over = over };
    if (!look_on(&wait)) sleep_until(&wait, &pool->work_done, 0);
}

/* Opens a shift that workers see. Those of the generation before it may be at their last items. */
static void open_shift(struct ra__pool *pool, const struct ra__work *work)
{
    struct shift *shift = shift_of(pool, atomic_load(&pool->generation) + 1);
    shift->work = *work;
    atomic_store(&shift->next, 0);
    pthread_mutex_lock(&pool->lock);
    atomic_store(&shift->busy, pool->started);
    atomic_fetch_add(&pool->generation, 1);
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
}

bool ra__pool_lingers(struct ra__pool *pool)
{
    return atomic_load(&shift_of(pool, atomic_load(&pool->generation) - 1)->busy) > 0;
}

ra_status ra__pool_begin(struct ra__pool *pool, const struct ra__work *work)
{
    const bool alone = pool->threads == 1 || work->items <= 1;
    pool->status = RA_OK;
    atomic_store(&pool->quit, false);
    await_workers(pool, alone || !work->clashes ? all_is_done : the_one_before_is_done);
    if (pool->status != RA_OK) return ra__pool_settle(pool);
    if (alone) {
        newest(pool)->work = *work;
        atomic_store(&newest(pool)->next, 0);
    } else {
        open_shift(pool, work);
    }
    if (work->aside) call(pool, work->aside);
    take_items(pool, atomic_load(&pool->generation), 0);
    wake_waiting(pool); /* a failed tick ends their waiting */
    return pool->status == RA_OK ? RA_OK : ra__pool_settle(pool);
}

ra_status ra__pool_settle(struct ra__pool *pool)
{
    await_workers(pool, all_is_done);
    ra_status status = pool->status;
    pool->status = RA_OK; /* told once */
    return status;
}

ra_status ra__pool_run(struct ra__pool *pool, const struct ra__work *work)
{
    RA__TRY(ra__pool_begin(pool, work));
    return ra__pool_settle(pool);
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

static int start_worker(struct worker *worker, const struct ra__pool_options *options)
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

ra_status ra__pool_create(const struct ra__pool_options *options, struct ra__pool **out)
{
    int threads = options->threads;
    size_t bytes = sizeof(struct ra__pool) + (size_t)threads * sizeof(struct worker);
    struct ra__pool *pool = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
    if (!pool) return ra__fail(RA_ERR_MEMORY, "threads: %zu bytes", bytes);
    pool->threads = threads;
    pool->spin = options->spin;
    pthread_mutex_init(&pool->lock, NULL);
    ra__cond_init(&pool->work_ready);
    ra__cond_init(&pool->work_done);
    ra__cond_init(&pool->item_done);
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){ .pool = pool, .index = i, .at = NOWHERE };
        int error = start_worker(worker, options);
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
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->work_ready);
    pthread_cond_destroy(&pool->work_done);
    pthread_cond_destroy(&pool->item_done);
    pthread_mutex_destroy(&pool->lock);
    ra__free(pool);
}

int ra__pool_threads(const struct ra__pool *pool) { return pool->threads; }

int ra__cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
