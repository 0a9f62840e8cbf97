/* test_pool.c - the threads of a rank: every item once, ticks on the caller's thread, and a failed
 * tick that stops the rest. Everything twice: with threads that sleep at once, and that look on
 * first. */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "core/clock.h"
#include "core/pool.h"

enum { MOST_ITEMS = 5000, MOST_THREADS = 64 };

static bool spin;

struct job {
    atomic_int done[MOST_ITEMS];
    atomic_int busy[MOST_THREADS]; /* items a thread index is working on: never two */
    atomic_int overlaps, strangers, finished;
    int threads;
    pthread_t caller;
    int ticks, ticks_elsewhere;
    int fail_at;    /* the tick that fails; 0 = never */
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

static ra_status tick(void *context)
{
    struct job *job = context;
    job->ticks++;
    if (!pthread_equal(pthread_self(), job->caller)) job->ticks_elsewhere++;
    return job->fail_at && job->ticks >= job->fail_at ? RA_ERR_ABORTED : RA_OK;
}

static struct job *fresh_job(int threads)
{
    static struct job job;
    memset(&job, 0, sizeof job);
    job.threads = threads;
    job.caller = pthread_self();
    return &job;
}

static struct ra__pool *make_pool(int threads)
{
    struct ra__pool *pool;
    assert_ok(
        ra__pool_create(&(struct ra__pool_options){ .threads = threads, .spin = spin }, &pool));
    return pool;
}

static void check_done(const struct job *job, int64_t items)
{
    for (int64_t i = 0; i < items; i++) assert_int_equal(atomic_load(&job->done[i]), 1);
    assert_int_equal(atomic_load(&job->finished), items);
    assert_int_equal(atomic_load(&job->overlaps) + atomic_load(&job->strangers), 0);
    assert_int_equal(job->ticks_elsewhere, 0);
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 3, 8, 32 };
    static const int64_t items[] = { 0, 1, 2, 3, 7, 100, MOST_ITEMS };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__pool *pool = make_pool(threads[t]);
        assert_int_equal(ra__pool_threads(pool), threads[t]);
        for (int i = 0; i < TEST_COUNT(items); i++) {
            struct job *job = fresh_job(threads[t]);
            struct ra__work work = {
                .body = body, .tick = tick, .context = job, .items = items[i]
            };
            assert_ok(ra__pool_run(pool, &work));
            check_done(job, items[i]);
        }
        ra__pool_destroy(pool);
    }
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* The pool is good for many runs, one right behind the other. */
static void many_runs(void **state)
{
    (void)state;
    struct ra__pool *pool = make_pool(4);
    for (int run = 0; run < 3000; run++) {
        struct job *job = fresh_job(4);
        struct ra__work work = { .body = body, .tick = tick, .context = job, .items = run % 9 };
        assert_ok(ra__pool_run(pool, &work));
        check_done(job, run % 9);
    }
    ra__pool_destroy(pool);
}

static void threads_work_at_the_same_time(void **state)
{
    (void)state;
    struct ra__pool *pool = make_pool(8);
    struct job *job = fresh_job(8);
    job->seconds = 0.05;
    struct ra__work work = { .body = body, .tick = tick, .context = job, .items = 16 };
    double start = ra__now();
    assert_ok(ra__pool_run(pool, &work));
    assert_true(ra__now() - start < 16 * 0.05 * 0.75);
    check_done(job, 16);
    ra__pool_destroy(pool);
}

/* A tick that fails: its status comes back, running items end, no others are started. */
static void a_failed_tick_stops_the_rest(void **state)
{
    (void)state;
    static const int threads[] = { 1, 3 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__pool *pool = make_pool(threads[t]);
        struct job *job = fresh_job(threads[t]);
        job->fail_at = 2;
        job->seconds = 0.002;
        struct ra__work work = { .body = body, .tick = tick, .context = job, .items = 1000 };
        assert_int_equal(ra__pool_run(pool, &work), RA_ERR_ABORTED);
        int finished = atomic_load(&job->finished);
        assert_true(finished >= 2 && finished < 100);
        sleep_for(0.02);
        assert_int_equal(atomic_load(&job->finished),
                         finished); /* nobody goes on behind our back */
        job = fresh_job(threads[t]);
        work.context = job;
        work.items = 50;
        assert_ok(ra__pool_run(pool, &work)); /* and the pool is still good */
        check_done(job, 50);
        ra__pool_destroy(pool);
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

/* While others work long, the caller keeps ticking: peers must see that it lives. */
static void long_items_of_others_do_not_stop_ticks(void **state)
{
    (void)state;
    struct ra__pool *pool = make_pool(2);
    struct job *job = fresh_job(2);
    struct ra__work work = { .body = uneven_body, .tick = tick, .context = job, .items = 2 };
    assert_ok(ra__pool_run(pool, &work));
    assert_int_equal(atomic_load(&job->finished), 2);
    assert_true(job->ticks >= 3);
    job = fresh_job(2);
    job->fail_at = 3; /* while it waits */
    assert_int_equal(ra__pool_run(pool, &work), RA_ERR_ABORTED);
    assert_int_equal(atomic_load(&job->finished), 2);
    ra__pool_destroy(pool);
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
        struct ra__pool *pool = make_pool(threads[t]);
        for (int s = 0; s < TEST_COUNT(seconds); s++) {
            struct job *job = fresh_job(threads[t]);
            job->seconds = seconds[s];
            struct ra__work work = {
                .body = chain_body, .tick = tick, .ready = chain_ready, .context = job, .items = 400
            };
            assert_ok(ra__pool_run(pool, &work));
            check_done(job, 400);
            for (int i = 0; i < 400; i++) assert_int_equal(written[i], i / STRIDE + 1);
        }
        ra__pool_destroy(pool);
    }
}

/* The first item of a worker takes for ever, until it is told not to go on; all others wait for
 * it. */
struct patience {
    struct ra__pool *pool;
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
    while (item == 0 && ra__pool_go_on(patience->pool, thread)) sleep_for(0.001);
    atomic_fetch_add(&patience->job->finished, 1);
    if (item > 0) atomic_store(&patience->first_done, true);
}

static ra_status patient_tick(void *context) { return tick(((struct patience *)context)->job); }

/* Whoever has the long item, and whoever waits for it, ends when a tick fails. */
static void a_failed_tick_ends_long_items_and_waits(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 4 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct patience patience = { make_pool(threads[t]), fresh_job(threads[t]), false };
        struct ra__work work = { .body = patient_body,
                                 .tick = patient_tick,
                                 .ready = patient_ready,
                                 .context = &patience,
                                 .items = 20 };
        patience.job->fail_at = 3;
        assert_int_equal(ra__pool_run(patience.pool, &work), RA_ERR_ABORTED);
        assert_int_equal(atomic_load(&patience.job->finished), 1);
        ra__pool_destroy(patience.pool);
    }
}

struct errand {
    struct job *job;
    int calls;
    ra_status status; /* how it ends */
};

static ra_status run_errand(void *context)
{
    struct errand *errand = context;
    errand->calls += pthread_equal(pthread_self(), errand->job->caller) ? 1 : 100;
    if (errand->job->threads > 1) /* others go on meanwhile */
        for (int i = 0; i < 2000 && !atomic_load(&errand->job->finished); i++) sleep_for(0.001);
    return errand->status;
}

static void errand_body(void *context, int64_t item, int thread)
{
    sleep_for(0.001);
    body(((struct errand *)context)->job, item, thread);
}

static ra_status errand_tick(void *context) { return tick(((struct errand *)context)->job); }

/* The caller does something else first while the others begin; if it fails, that is the end. */
static void the_caller_runs_an_errand_first(void **state)
{
    (void)state;
    static const int threads[] = { 1, 3 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__pool *pool = make_pool(threads[t]);
        struct errand errand = { .job = fresh_job(threads[t]), .status = RA_OK };
        struct ra__work work = { .body = errand_body,
                                 .tick = errand_tick,
                                 .aside = run_errand,
                                 .context = &errand,
                                 .items = 200 };
        assert_ok(ra__pool_run(pool, &work));
        check_done(errand.job, 200);
        assert_int_equal(errand.calls, 1);
        errand = (struct errand){ .job = fresh_job(threads[t]), .status = RA_ERR_PEER };
        assert_int_equal(ra__pool_run(pool, &work), RA_ERR_PEER);
        assert_true(atomic_load(&errand.job->finished) < 100);
        assert_int_equal(errand.job->ticks, 0);
        ra__pool_destroy(pool);
    }
}

/* Works one behind the other, each begun while the last items of the one before may be under way.
 * Item i waits for item i of the work before, and sees what that wrote. */
struct chain {
    struct job *job;
    int round; /* of this work, from 1 on */
};

static bool same_item(void *context, int64_t item, int64_t before)
{
    (void)context;
    return item == before;
}

static void chained_body(void *context, int64_t item, int thread)
{
    struct chain *chain = context;
    if (chain->job->seconds > 0 && (item + chain->round) % 5 == 0) sleep_for(chain->job->seconds);
    if (written[item] != chain->round - 1) atomic_fetch_add(&chain->job->strangers, 1);
    written[item] = chain->round;
    body(chain->job, item, thread);
    atomic_fetch_sub(&chain->job->done[item], 1); /* it is done in every round */
}

static ra_status chained_tick(void *context) { return tick(((struct chain *)context)->job); }

static void works_overlap(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    static const int threads[] = { 1, 2, 5, 16 };
    static const int64_t items[] = { 1, 2, 7, 40 };
    static const double seconds[] = { 0.0, 0.0005 };
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        struct ra__pool *pool = make_pool(threads[t]);
        for (int i = 0; i < TEST_COUNT(items) * TEST_COUNT(seconds); i++) {
            struct chain chains[ROUNDS];
            struct job *job = fresh_job(threads[t]);
            int64_t count = items[i % TEST_COUNT(items)];
            memset(written, 0, sizeof written);
            job->seconds = seconds[i / TEST_COUNT(items)];
            for (int round = 0; round < ROUNDS; round++) {
                chains[round] = (struct chain){ job, round + 1 };
                assert_ok(ra__pool_begin(pool, &(struct ra__work){ .body = chained_body,
                                                                   .tick = chained_tick,
                                                                   .clashes = same_item,
                                                                   .context = &chains[round],
                                                                   .items = count }));
            }
            assert_ok(ra__pool_settle(pool));
            assert_int_equal(atomic_load(&job->finished), ROUNDS * count);
            assert_int_equal(atomic_load(&job->overlaps) + atomic_load(&job->strangers), 0);
            for (int n = 0; n < count; n++) assert_int_equal(written[n], ROUNDS);
        }
        ra__pool_destroy(pool);
    }
}

/* The last item of the first work, on another thread, takes until `release`. */
struct straggler {
    struct job *job;
    atomic_bool begun, release;
    int beside; /* items of the second work that ended while it was under way */
};

static void straggling_body(void *context, int64_t item, int thread)
{
    struct straggler *straggler = context;
    (void)item;
    if (thread == 0)
        while (!atomic_load(&straggler->begun)) sleep_for(0.001);
    else if (!atomic_exchange(&straggler->begun, true))
        while (!atomic_load(&straggler->release)) sleep_for(0.001);
    atomic_fetch_add(&straggler->job->finished, 1);
}

static void second_body(void *context, int64_t item, int thread)
{
    struct straggler *straggler = context;
    (void)thread;
    if (item < 10) straggler->beside += !atomic_load(&straggler->release);
    else if (!atomic_load(&straggler->release)) atomic_fetch_add(&straggler->job->strangers, 1);
    if (item == 9) atomic_store(&straggler->release, true);
}

static bool last_ones_clash(void *context, int64_t item, int64_t before)
{
    (void)context;
    (void)before;
    return item >= 10;
}

static ra_status straggler_tick(void *context) { return tick(((struct straggler *)context)->job); }

/* Begun while an item of the work before is under way: items that do not clash with it run, those
 * that do wait, and who asks is told that it lingers. */
static void a_straggler_holds_up_only_what_clashes(void **state)
{
    (void)state;
    struct ra__pool *pool = make_pool(2);
    struct straggler straggler = { .job = fresh_job(2) };
    struct ra__work work = {
        .body = straggling_body, .tick = straggler_tick, .context = &straggler, .items = 2
    };
    assert_ok(ra__pool_begin(pool, &work));
    assert_int_equal(atomic_load(&straggler.job->finished), 1);
    work.body = second_body;
    work.clashes = last_ones_clash;
    work.items = 20;
    assert_ok(ra__pool_begin(pool, &work));
    assert_ok(ra__pool_settle(pool));
    assert_int_equal(straggler.beside, 10);
    assert_int_equal(atomic_load(&straggler.job->strangers), 0);
    assert_int_equal(atomic_load(&straggler.job->finished), 2);
    ra__pool_destroy(pool);
}

struct release {
    struct straggler straggler;
    struct ra__pool *pool;
    int lingering; /* ticks that found it lingering */
};

static ra_status releasing_tick(void *context)
{
    struct release *release = context;
    release->lingering += ra__pool_lingers(release->pool);
    if (release->lingering > 1) atomic_store(&release->straggler.release, true);
    return tick(release->straggler.job);
}

static void nothing_body(void *context, int64_t item, int thread)
{
    struct release *release = context;
    (void)item;
    (void)thread;
    sleep_for(0.001);
    if (!atomic_load(&release->straggler.release)) release->straggler.beside++;
}

static bool none_clashes(void *context, int64_t item, int64_t before)
{
    (void)context;
    (void)item;
    (void)before;
    return false;
}

/* A tick that fails while the work before lingers: the call returns when both have ended. And a
 * work that says nothing about the one before begins behind it. */
static void a_failure_waits_for_stragglers(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct release release = { .straggler = { .job = fresh_job(2) }, .pool = make_pool(2) };
        struct ra__work work = {
            .body = straggling_body, .tick = releasing_tick, .context = &release, .items = 2
        };
        assert_ok(ra__pool_begin(release.pool, &work));
        assert_false(ra__pool_lingers(release.pool)); /* it is the newest itself */
        work.body = nothing_body;
        work.clashes = fails ? none_clashes : NULL;
        work.items = 50;
        if (fails) release.straggler.job->fail_at = release.straggler.job->ticks + 5;
        else atomic_store(&release.straggler.release, true);
        assert_int_equal(ra__pool_run(release.pool, &work), fails ? RA_ERR_ABORTED : RA_OK);
        assert_int_equal(atomic_load(&release.straggler.job->finished), 2);
        assert_true(fails ? release.lingering >= 2 && release.straggler.beside > 0
                          : release.lingering == 0 && release.straggler.beside == 0);
        assert_ok(ra__pool_settle(release.pool)); /* told once */
        ra__pool_destroy(release.pool);
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
    struct ra__pool *pool;
    struct ra__pool_options options = { .threads = threads, .spin = spin, .pin = true };
    if (threads < 2) skip();
    assert_ok(ra__pool_create(&options, &pool));
    struct job *job = fresh_job(threads);
    job->seconds = 0.02; /* so that every thread gets some */
    struct ra__work work = {
        .body = place_body, .tick = tick, .context = job, .items = 10 * threads
    };
    assert_ok(ra__pool_run(pool, &work));
    check_done(job, 10 * threads);
    assert_int_equal(atomic_load(&place[0]), -1);
    for (int i = 1; i < threads; i++)
        for (int j = 0; j < i; j++) {
            assert_true(atomic_load(&place[i]) >= 0);
            assert_true(atomic_load(&place[i]) != atomic_load(&place[j]));
        }
    ra__pool_destroy(pool);
    options.first_core = threads < 8 ? 1
                                     : ra__cores() - 1; /* no core is left for the last thread */
    assert_int_equal(ra__pool_create(&options, &pool), RA_ERR_SYSTEM);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void cores_are_counted(void **state)
{
    (void)state;
    assert_true(ra__cores() >= 1);
    ra__pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(many_runs),
        cmocka_unit_test(threads_work_at_the_same_time),
        cmocka_unit_test(a_failed_tick_stops_the_rest),
        cmocka_unit_test(long_items_of_others_do_not_stop_ticks),
        cmocka_unit_test(items_wait_for_those_before_them),
        cmocka_unit_test(a_failed_tick_ends_long_items_and_waits),
        cmocka_unit_test(the_caller_runs_an_errand_first),
        cmocka_unit_test(works_overlap),
        cmocka_unit_test(a_straggler_holds_up_only_what_clashes),
        cmocka_unit_test(a_failure_waits_for_stragglers),
        cmocka_unit_test(pinned_threads_have_cores_of_their_own),
        cmocka_unit_test(cores_are_counted),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    spin = true;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
