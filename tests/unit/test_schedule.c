/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - how the work of a rank is scheduled on its threads. Plans are made for many
 * threads, and run by one with a kernel that only writes down the pairs of its jobs; then threads
 * are simulated that take the jobs in that order, each for as long as its pairs. Nine tenths of
 * what so many threads could do is asked for, forward also where some are slower, as on a machine
 * that others use, too. */
#include "support/test.h"

#include <stdlib.h>

#include "api/handles.h"
#include "backend/cpu/cpu.h"

enum { MOST_JOBS = 20000, MOST_LANES = 64, MOST_THREADS = 64, DIM = 4 };

static struct {
    int64_t pairs[MOST_JOBS]; /* of forward ones */
    int64_t all;              /* pairs of backward ones */
    int count;
} jobs; /* in the order in which they were begun */

static int64_t count_pairs(const struct ra__view *view)
{
    int64_t pairs = 0, lo, hi;
    for (int r = 0; r < view->run_count; r++)
        for (int64_t i = 0; i < view->q_count; i++) {
            ra__band_clip(&view->runs[r], view->q_pos + i * view->q_pos_step, &lo, &hi);
            pairs += (hi - lo) * view->heads;
        }
    return pairs;
}

static void note_forward(struct ra__forward_job *job, void *workspace)
{
    (void)workspace;
    assert_true(jobs.count < MOST_JOBS);
    jobs.pairs[jobs.count++] = job->pairs = count_pairs(&job->view);
}

static void note_backward(struct ra__backward_job *job, void *workspace)
{
    (void)workspace;
    jobs.count++;
    jobs.all += job->pairs = count_pairs(&job->view);
}

/* A rank with a plan for many threads and workers for one. */
struct world {
    ra_group *group;
    ra_pattern *pattern;
    ra_plan *plan;
    struct ra__kernel kernel;
    struct ra__workers *workers; /* those the group was made with */
    float *numbers;              /* of all tensors, which overlap: nobody looks at them */
};

struct schedule_case {
    const char *pattern;
    int64_t n;
    int q_heads, kv_heads, threads;
};

static struct ra__cpu_plan *cpu_plan_of(const struct world *w) { return w->plan->exec.prepared; }

typedef void (*note_fn)(struct ra__forward_job *job, void *workspace);

/* The last `queries` queries of a case. */
static void open_few(struct world *w, const struct schedule_case *c, int64_t queries, note_fn note)
{
    ra_group_options options = ra_group_options_default();
    ra_problem problem = ra_problem_default();
    ra_plan_options plan_options = ra_plan_options_default();
    options.threads = c->threads;
    plan_options.backward = 1;
    assert_ok(ra_group_create_local(1, &options, &w->group));
    assert_ok(ra_pattern_parse(c->pattern, &w->pattern));
    problem.pattern = w->pattern;
    problem.q_len = queries;
    problem.k_len = c->n;
    problem.q_heads = c->q_heads;
    problem.kv_heads = c->kv_heads;
    problem.dim = DIM;
    assert_ok(ra_plan_create(w->group, &problem, &plan_options, &w->plan));
    struct ra__cpu *cpu = w->group->rank.device;
    w->kernel = *w->plan->kernel;
    w->kernel.forward = note;
    w->kernel.backward = note_backward;
    cpu_plan_of(w)->kernel = &w->kernel;
    w->workers = cpu->workers;
    assert_ok(ra__workers_create(&(struct ra__workers_options){ .threads = 1 }, &cpu->workers));
    w->numbers = calloc((size_t)(c->n * c->q_heads * DIM + 3), sizeof *w->numbers);
    assert_non_null(w->numbers);
    jobs.count = 0;
    jobs.all = 0;
}

static void open_world(struct world *w, const struct schedule_case *c)
{
    open_few(w, c, c->n, note_forward);
}

static void close_world(struct world *w)
{
    ra_plan_destroy(w->plan);
    ra__workers_destroy(w->workers);
    ra_group_destroy(w->group);
    ra_pattern_destroy(w->pattern);
    free(w->numbers);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void run_backward(struct world *w)
{
    ra_tensor tensor = ra_tensor_packed(w->numbers);
    ra_gradient_args args = ra_gradient_args_default();
    args.q = args.k = args.v = args.out = args.dout = ra_tensor_read(tensor);
    args.dq = ra_tensor_packed(w->numbers + 1);
    args.dk = ra_tensor_packed(w->numbers + 2);
    args.dv = ra_tensor_packed(w->numbers + 3);
    args.lse = w->numbers;
    assert_ok(ra_gradient(w->plan, &args));
}

static int first_free(const double *free_at, int threads)
{
    int thread = 0;
    for (int i = 1; i < threads; i++)
        if (free_at[i] < free_at[thread]) thread = i;
    return thread;
}

/* `longest` is the time until the last thread is done, `even` the time if all ended together. */
static void check_time(const struct schedule_case *c, const char *direction, double longest,
                       double even)
{
    assert_true(even > 0);
    double over = longest / even;
    if (over > 1 / 0.9)
        fail_msg("%s %s, n = %d, %d heads on %d threads: %.2f times as long as it should be",
                 direction, c->pattern, (int)c->n, c->q_heads, c->threads, over);
}

/* Every fourth thread needs `slow` times as long. */
static void check_threads(const struct schedule_case *c, const char *direction, double slow)
{
    double free_at[MOST_THREADS] = { 0 }, all = 0, longest = 0, speed = 0;
    for (int i = 0; i < jobs.count; i++) {
        int thread = first_free(free_at, c->threads);
        free_at[thread] += (double)jobs.pairs[i] * (thread % 4 == 0 ? slow : 1);
        all += (double)jobs.pairs[i];
        if (free_at[thread] > longest) longest = free_at[thread];
    }
    for (int thread = 0; thread < c->threads; thread++) speed += thread % 4 == 0 ? 1 / slow : 1;
    check_time(c, direction, longest, all / speed);
}

static void run_forward(struct world *w)
{
    ra_tensor tensor = ra_tensor_packed(w->numbers);
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_tensor_read(tensor);
    args.out = ra_tensor_packed(w->numbers + 1);
    assert_ok(ra_attend(w->plan, &args));
}

static int count_forward(const struct schedule_case *c)
{
    struct world w;
    open_world(&w, c);
    run_forward(&w);
    close_world(&w);
    return jobs.count;
}

static void check_forward(const struct schedule_case *c)
{
    struct world w;
    open_world(&w, c);
    run_forward(&w);
    check_threads(c, "forward", 1);
    check_threads(c, "forward, some threads slower,", 1.5);
    close_world(&w);
}

static void check_backward(const struct schedule_case *c)
{
    static double done[RA__MOST_CHUNKS * RA__MOST_CHUNKS][MOST_LANES];
    struct world w;
    double free_at[MOST_THREADS] = { 0 }, all = 0, longest = 0;
    open_world(&w, c);
    run_backward(&w);
    const struct ra__tasks *tasks = cpu_plan_of(&w)->tasks;
    for (int t = 0; t < tasks->count; t++)
        for (int lane = 0; lane < c->kv_heads; lane++) {
            const struct ra__task *task = &tasks->list[t];
            int thread = first_free(free_at, c->threads);
            double work = (double)tasks->work[task->keys][task->queries], start = free_at[thread];
            for (int i = 0; i < TEST_COUNT(task->after); i++)
                if (task->after[i] >= 0 && done[task->after[i]][lane] > start)
                    start = done[task->after[i]][lane];
            done[t][lane] = free_at[thread] = start + work;
            all += work;
            if (free_at[thread] > longest) longest = free_at[thread];
        }
    check_time(c, "backward", longest, all / c->threads);
    close_world(&w);
}

static void forward_keeps_threads_busy(void **state)
{
    (void)state;
    static const struct schedule_case cases[] = {
        { "full", 4096, 8, 8, 16 },
        { "causal", 4096, 8, 8, 16 },
        { "window:512", 4096, 8, 8, 16 },
        { "causal", 4096, 8, 2, 16 },
        { "causal", 4096, 1, 1, 2 },
        { "causal", 4096, 1, 1, 16 },
        { "full", 17408, 1, 1, 16 }, /* two jobs for each thread, and one more */
        { "full", 256, 64, 1, 16 },  /* many heads to a query */
        { "full;docs=0,1040,1600,2160,2720,3280,3840,4400,4960,5520,6080,6640,7200,7760,8320,8880,"
          "9440,10000,10560",
          10560, 1, 1, 6 }, /* one document is cut, and is the largest all the same */
        { "prefix:1000", 4096, 8, 8, 16 },
        { "blocks:64;local=4;global=1", 16384, 4, 4, 16 }, /* the first rows see everything */
        { "dilated:512/1,1024/2,2048/4", 4096, 8, 8, 16 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) check_forward(&cases[i]);
}

static void backward_keeps_threads_busy(void **state)
{
    (void)state;
    static const struct schedule_case cases[] = {
        { "full", 4096, 8, 8, 16 },    { "causal", 4096, 8, 8, 16 },
        { "full", 4096, 1, 1, 2 },     { "causal", 4096, 1, 1, 2 },
        { "causal", 4096, 8, 2, 4 },   { "window:512", 8192, 8, 8, 16 },
        { "causal", 8192, 4, 4, 16 },  { "causal", 4096, 32, 32, 16 },
        { "causal", 16384, 2, 2, 16 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) check_backward(&cases[i]);
}

/* However it is divided, each query of a row is in one job, none is in two, and no job is larger
 * than it says. */
static void jobs_share_out_a_row(void **state)
{
    (void)state;
    for (int64_t queries = 1; queries <= 64; queries += 3)
        for (int64_t front = 0; front <= 5 * queries; front += 1 + queries / 4)
            for (int64_t fine = 1; fine <= queries; fine *= 2)
                for (int64_t count = 1; count <= 200; count += 7) {
                    const struct ra__chunks chunks = { .queries = queries,
                                                       .front = front,
                                                       .fine = fine };
                    int64_t next = 0, offset;
                    for (int64_t chunk = 0; chunk < ra__chunk_count(&chunks, count); chunk++) {
                        int64_t got = ra__chunk_at(&chunks, count, chunk, &offset);
                        assert_true(got > 0 && got <= queries);
                        assert_int_equal(offset, next);
                        next += got;
                    }
                    assert_int_equal(next, count);
                }
}

/* One row that sees everything must not make all jobs small: threads add no more than a quarter to
 * the jobs of one thread, beside the few at the end. */
static void forward_rows_are_not_torn(void **state)
{
    (void)state;
    static const struct schedule_case cases[] = {
        { "blocks:64;local=4;global=1", 65536, 2, 2, 16 },
        { "blocks:64;random=0.05;seed=3", 16384, 2, 2, 16 },
        { "blocks:256;local=4", 32768, 2, 2, 8 },
        { "window:512", 32768, 1, 1, 16 },
        { "dilated:512/1,1024/2,2048/4", 16384, 2, 2, 16 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct schedule_case alone = cases[i];
        alone.threads = 1;
        int least = count_forward(&alone), got = count_forward(&cases[i]);
        if (got > least + least / 4 + 4 * cases[i].threads)
            fail_msg("%s: %d jobs for %d threads, %d for one", cases[i].pattern, got,
                     cases[i].threads, least);
    }
}

/* Where rows see little, or their keys lie everywhere, a step is not cut so often that calls of the
 * kernel become small: at most a quarter more of them, unless they are large anyway. */
static void sparse_rows_are_not_torn(void **state)
{
    (void)state;
    static const struct schedule_case cases[] = {
        { "blocks:64;random=0.05;seed=3", 4096, 2, 2, 16 },
        { "blocks:16;random=0.05;seed=3", 4096, 2, 2, 16 },
        { "blocks:32;strided=4", 4096, 2, 2, 16 },
        { "dilated:512/1,1024/2,2048/4", 4096, 2, 2, 16 },
        { "window:64", 4096, 2, 2, 16 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct world w;
        int64_t least = 0;
        open_world(&w, &cases[i]);
        run_backward(&w);
        const struct ra__cpu_program *p = &cpu_plan_of(&w)->programs[RA__BACKWARD];
        for (int r = 0; r < p->program->row_count; r++)
            least += ra__count_jobs(p, &p->program->rows[r]);
        assert_true(jobs.count >= least);
        assert_true(jobs.count <= least + least / 4 || jobs.all / jobs.count >= 64 * 128);
        close_world(&w);
    }
}

/* Few queries against many keys: every key of a row is in one range, and in the token it had. */
enum { SPLIT_KEYS = 40000 };
static struct {
    unsigned char met[SPLIT_KEYS]; /* by all heads */
    const struct ra__key_split *split;
} ranges;

static void note_range(struct ra__forward_job *job, void *workspace)
{
    const struct ra__view *view = &job->view;
    int64_t range = -1, lo, hi;
    (void)workspace;
    for (int r = 0; r < view->run_count; r++) {
        const struct ra__key_run *run = &view->runs[r];
        ra__band_clip(run, view->q_pos, &lo, &hi);
        for (int64_t k = 0; k < run->count; k++) {
            const int64_t key = run->pos + k * run->pos_step;
            assert_int_equal(run->token + k * run->token_step, key); /* of one rank */
            if (range < 0) range = key / ranges.split->keys;
            assert_int_equal(key / ranges.split->keys, range);
            if (k >= lo && k < hi) ranges.met[key] = (unsigned char)(ranges.met[key] + view->heads);
        }
    }
}

static void ranges_hold_each_key_once(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "window:30001", "dilated:40000/7",
                                            "blocks:64;local=100;global=50" };
    for (int i = 0; i < TEST_COUNT(patterns); i++) {
        const struct schedule_case c = { patterns[i], SPLIT_KEYS, 4, 2, 3 };
        struct world w;
        int64_t pairs = 0;
        memset(&ranges, 0, sizeof ranges);
        open_few(&w, &c, 1, note_range);
        ranges.split = &w.plan->programs.forward.split;
        assert_true(ranges.split->ranges > 1);
        run_forward(&w);
        for (int64_t key = 0; key < SPLIT_KEYS; key++) {
            assert_true(ranges.met[key] <= c.q_heads);
            pairs += ranges.met[key];
        }
        assert_int_equal(pairs, ra__program_pairs(&w.plan->programs, &w.plan->programs.forward));
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_keeps_threads_busy), cmocka_unit_test(backward_keeps_threads_busy),
        cmocka_unit_test(jobs_share_out_a_row),       cmocka_unit_test(forward_rows_are_not_torn),
        cmocka_unit_test(sparse_rows_are_not_torn),   cmocka_unit_test(ranges_hold_each_key_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
