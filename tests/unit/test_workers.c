/* SPDX-License-Identifier: Apache-2.0 */
/* test_workers.c - the threads of a rank: every item once, the heartbeat on the caller's thread,
 * and a failed one that stops the rest. Everything twice: with threads that sleep at once, and that
 * spin first. */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "backend/cpu/workers.h"
#include "core/cpu.h"
#include "core/clock.h"

enum { MOST_ITEMS = 5000, MOST_THREADS = 64 };

static bool spin;

struct job {
    atomic_int done[MOST_ITEMS];
    atomic_int busy[MOST_THREADS]; /* items a thread index is working on: never two */
    atomic_int overlaps, strangers, finished;
    int threads;
    pthread_t caller;
    int beats, beats_elsewhere;
    int fail_at;    /* the beat that fails; 0 = never */
    double seconds; /* an item takes */
};

static void sleep_for(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

static void body(void *context, int64_t item, int thread)
{
    struct job *job = context;
    if (thread < 0 || thread >= job->threads) {
        atomic_fetch_add(&job->strangers, 1);
        return;
    }
    if (atomic_fetch_add(&job->busy[thread], 1)) atomic_fetch_add(&job->overlaps, 1);
    if (thread == 0 && !pthread_equal(pthread_self(), job->caller))
        atomic_fetch_add(&job->strangers, 1);
    if (job->seconds > 0) sleep_for(job->seconds);
    atomic_fetch_add(&job->done[item], 1);
    atomic_fetch_add(&job->finished, 1);
    atomic_fetch_sub(&job->busy[thread], 1);
}

static ra_status beat(void *context)
{
    struct job *job = context;
    job->beats++;
    if (!pthread_equal(pthread_self(), job->caller)) job->beats_elsewhere++;
    return job->fail_at && job->beats >= job->fail_at ? RA_ERR_ABORTED : RA_OK;
}

static struct job *fresh_job(int threads)
{
    static struct job job;
    memset(&job, 0, sizeof job);
    job.threads = threads;
    job.caller = pthread_self();
    return &job;
}

static struct ra__workers *make_workers(int threads)
{
    struct ra__workers *workers;
    assert_ok(ra__workers_create(&(struct ra__workers_options){ .threads = threads, .spin = spin },
                                 &workers));
    return workers;
}

static ra_status run(struct ra__workers *workers, const struct ra__work *work, struct job *job)
{
    return ra__workers_run(workers, work, &(struct ra__heartbeat){ beat, job });
}

static void check_done(const struct job *job, int64_t items)
{
    for (int64_t i = 0; i < items; i++) assert_int_equal(atomic_load(&job->done[i]), 1);
    assert_int_equal(atomic_load(&job->finished), items);
    assert_int_equal(atomic_load(&job->overlaps) + atomic_load(&job->strangers), 0);
    assert_int_equal(job->beats_elsewhere, 0);
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 3, 8, 32 };
    static const int64_t items[] = { 0, 1, 2, 3, 7, 100, MOST_ITEMS };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__workers *workers = make_workers(threads[t]);
        assert_int_equal(ra__workers_threads(workers), threads[t]);
        for (int i = 0; i < TEST_COUNT(items); i++) {
            struct job *job = fresh_job(threads[t]);
            struct ra__work work = { .body = body, .context = job, .items = items[i] };
            assert_ok(run(workers, &work, job));
            check_done(job, items[i]);
        }
        ra__workers_destroy(workers);
    }
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* Workers are good for many runs, one right after the other. */
static void many_runs(void **state)
{
    (void)state;
    struct ra__workers *workers = make_workers(4);
    for (int n = 0; n < 3000; n++) {
        struct job *job = fresh_job(4);
        struct ra__work work = { .body = body, .context = job, .items = n % 9 };
        assert_ok(run(workers, &work, job));
        check_done(job, n % 9);
    }
    ra__workers_destroy(workers);
}

static void threads_work_at_the_same_time(void **state)
{
    (void)state;
    struct ra__workers *workers = make_workers(8);
    struct job *job = fresh_job(8);
    job->seconds = 0.05;
    struct ra__work work = { .body = body, .context = job, .items = 16 };
    double start = ra__now();
    assert_ok(run(workers, &work, job));
    assert_true(ra__now() - start < 16 * 0.05 * 0.75);
    check_done(job, 16);
    ra__workers_destroy(workers);
}

/* A heartbeat that fails: its status comes back, running items end, no others are started. */
static void a_failed_beat_stops_the_rest(void **state)
{
    (void)state;
    static const int threads[] = { 1, 3 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__workers *workers = make_workers(threads[t]);
        struct job *job = fresh_job(threads[t]);
        job->fail_at = 2;
        job->seconds = 0.002;
        struct ra__work work = { .body = body, .context = job, .items = 1000 };
        assert_int_equal(run(workers, &work, job), RA_ERR_ABORTED);
        int finished = atomic_load(&job->finished);
        assert_true(finished >= 2 && finished < 100);
        sleep_for(0.02);
        assert_int_equal(atomic_load(&job->finished),
                         finished); /* nobody goes on behind our back */
        job = fresh_job(threads[t]);
        work.context = job;
        work.items = 50;
        assert_ok(run(workers, &work, job)); /* and they are still good */
        check_done(job, 50);
        ra__workers_destroy(workers);
    }
}

/* The caller's item ends as soon as another thread has begun its own, which takes long. */
static void uneven_body(void *context, int64_t item, int thread)
{
    struct job *job = context;
    (void)item;
    if (thread > 0) {
        atomic_fetch_add(&job->busy[thread], 1);
        sleep_for(0.35);
    }
    for (int i = 0; thread == 0 && i < 1000 && !atomic_load(&job->busy[1]); i++) sleep_for(0.005);
    atomic_fetch_add(&job->finished, 1);
}

/* While others work long, the caller keeps calling its heartbeat: peers must see that it lives. */
static void long_items_of_others_do_not_stop_the_heartbeat(void **state)
{
    (void)state;
    struct ra__workers *workers = make_workers(2);
    struct job *job = fresh_job(2);
    struct ra__work work = { .body = uneven_body, .context = job, .items = 2 };
    assert_ok(run(workers, &work, job));
    assert_int_equal(atomic_load(&job->finished), 2);
    assert_true(job->beats >= 3);
    job = fresh_job(2);
    job->fail_at = 3; /* while it waits */
    assert_int_equal(run(workers, &work, job), RA_ERR_ABORTED);
    assert_int_equal(atomic_load(&job->finished), 2);
    ra__workers_destroy(workers);
}

/* Items in chains: an item waits for the one STRIDE before it, and sees what that wrote. */
enum { STRIDE = 3 };
static int64_t written[MOST_ITEMS]; /* plain: the order of items alone keeps threads apart */

static bool chain_ready(void *context, int64_t item)
{
    struct job *job = context;
    return item < STRIDE || atomic_load(&job->done[item - STRIDE]);
}

static void chain_body(void *context, int64_t item, int thread)
{
    struct job *job = context;
    if (job->seconds > 0 && item % 7 == 0) sleep_for(job->seconds);
    written[item] = item < STRIDE ? 1 : written[item - STRIDE] + 1;
    (void)thread;
    atomic_fetch_add(&job->finished, 1);
    atomic_fetch_add(&job->done[item], 1);
}

static void items_wait_for_those_before_them(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 5, 16 };
    static const double seconds[] = { 0.0, 0.001 }; /* shorter and longer than a look */
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__workers *workers = make_workers(threads[t]);
        for (int s = 0; s < TEST_COUNT(seconds); s++) {
            struct job *job = fresh_job(threads[t]);
            job->seconds = seconds[s];
            struct ra__work work = {
                .body = chain_body, .ready = chain_ready, .context = job, .items = 400
            };
            assert_ok(run(workers, &work, job));
            check_done(job, 400);
            for (int i = 0; i < 400; i++) assert_int_equal(written[i], i / STRIDE + 1);
        }
        ra__workers_destroy(workers);
    }
}

/* The first item of a worker takes for ever, until it is told not to go on; all others wait for
 * it. */
struct patience {
    struct ra__workers *workers;
    struct job *job;
    atomic_bool first_done;
};

static bool patient_ready(void *context, int64_t item)
{
    struct patience *patience = context;
    return item == 0 || atomic_load(&patience->first_done);
}

static void patient_body(void *context, int64_t item, int thread)
{
    struct patience *patience = context;
    while (item == 0 && ra__workers_continue(patience->workers, thread)) sleep_for(0.001);
    atomic_fetch_add(&patience->job->finished, 1);
    if (item > 0) atomic_store(&patience->first_done, true);
}

/* Whoever has the long item, and whoever waits for it, ends when the heartbeat fails. */
static void a_failed_beat_ends_long_items_and_waits(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 4 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct patience patience = { make_workers(threads[t]), fresh_job(threads[t]), false };
        struct ra__work work = {
            .body = patient_body, .ready = patient_ready, .context = &patience, .items = 20
        };
        patience.job->fail_at = 3;
        assert_int_equal(run(patience.workers, &work, patience.job), RA_ERR_ABORTED);
        assert_int_equal(atomic_load(&patience.job->finished), 1);
        ra__workers_destroy(patience.workers);
    }
}

/* The core that each thread may use; -1 where there are several. */
static atomic_int place[MOST_THREADS];

static void place_body(void *context, int64_t item, int thread)
{
    cpu_set_t set;
    body(context, item, thread);
    pthread_getaffinity_np(pthread_self(), sizeof set, &set);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set)) cpu++;
    atomic_store(&place[thread], CPU_COUNT(&set) == 1 ? cpu : -1);
}

/* Threads that are pinned have a core each; the caller goes where it likes. */
static void pinned_threads_have_cores_of_their_own(void **state)
{
    (void)state;
    int threads = ra__cores() < 8 ? ra__cores() : 8;
    struct ra__workers *workers;
    struct ra__workers_options options = { .threads = threads, .spin = spin, .pin = true };
    if (threads < 2) skip();
    assert_ok(ra__workers_create(&options, &workers));
    struct job *job = fresh_job(threads);
    job->seconds = 0.02; /* so that every thread gets some */
    struct ra__work work = { .body = place_body, .context = job, .items = 10 * threads };
    assert_ok(run(workers, &work, job));
    check_done(job, 10 * threads);
    assert_int_equal(atomic_load(&place[0]), -1);
    for (int i = 1; i < threads; i++)
        for (int j = 0; j < i; j++) {
            assert_true(atomic_load(&place[i]) >= 0);
            assert_true(atomic_load(&place[i]) != atomic_load(&place[j]));
        }
    ra__workers_destroy(workers);
    options.first_core = threads < 8 ? 1
                                     : ra__cores() - 1; /* no core is left for the last thread */
    assert_int_equal(ra__workers_create(&options, &workers), RA_ERR_SYSTEM);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void cores_are_counted(void **state)
{
    (void)state;
    assert_true(ra__cores() >= 1);
    ra__workers_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(many_runs),
        cmocka_unit_test(threads_work_at_the_same_time),
        cmocka_unit_test(a_failed_beat_stops_the_rest),
        cmocka_unit_test(long_items_of_others_do_not_stop_the_heartbeat),
        cmocka_unit_test(items_wait_for_those_before_them),
        cmocka_unit_test(a_failed_beat_ends_long_items_and_waits),
        cmocka_unit_test(pinned_threads_have_cores_of_their_own),
        cmocka_unit_test(cores_are_counted),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    spin = true;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
