/* SPDX-License-Identifier: Apache-2.0 */
/* test_tasks.c - the order of the tasks of a backward step: every pair of chunks once, none beside
 * another that shares a chunk with it, and enough of them at any time. Threads are simulated: they
 * take the tasks of all lanes as the pool does, and each takes as long as its pairs. */
#include "support/test.h"

#include "backend/cpu/tasks.h"

enum { MOST_THREADS = 64, MOST_LANES = 64 };

/* Does query i of n see key j? */
typedef bool see_fn(int64_t i, int64_t j);
static bool see_full(int64_t i, int64_t j) { return i >= 0 && j >= 0; }
static bool see_causal(int64_t i, int64_t j) { return j <= i; }
static bool see_window(int64_t i, int64_t j) { return j <= i && i - j < 300; }
static bool see_early(int64_t i, int64_t j) { return i >= 0 && j < 2048; }  /* a hop of zigzag */
static bool see_far(int64_t i, int64_t j) { return i >= 2048 && j < 2048; } /* another pattern */

/* Tasks of n queries and keys, both cut into equal chunks; work counted on a grid of STRIDE. */
static void make_tasks(struct ra__tasks *tasks, see_fn *see, int64_t n, int chunks)
{
    enum { STRIDE = 16 };
    memset(tasks, 0, sizeof *tasks);
    tasks->chunks = chunks;
    for (int64_t i = 0; i < n; i += STRIDE)
        for (int64_t j = 0; j < n; j += STRIDE)
            tasks->work[j * chunks / n][i * chunks / n] += see(i, j);
    ra__tasks_order(tasks);
}

/* The time until the last thread is done, in units of the time of all work on as many threads. */
static double makespan(const struct ra__tasks *tasks, int kv_items, int threads)
{
    static double done[RA__MOST_CHUNKS * RA__MOST_CHUNKS][MOST_LANES];
    double free_at[MOST_THREADS] = { 0 }, all = 0, end = 0;
    for (int t = 0; t < tasks->count; t++)
        for (int lane = 0; lane < kv_items; lane++) {
            const struct ra__task *task = &tasks->list[t];
            int thread = 0;
            for (int i = 1; i < threads; i++)
                if (free_at[i] < free_at[thread]) thread = i;
            double start = free_at[thread];
            for (int i = 0; i < TEST_COUNT(task->after); i++)
                if (task->after[i] >= 0 && done[task->after[i]][lane] > start)
                    start = done[task->after[i]][lane];
            double work = (double)tasks->work[task->keys][task->queries];
            all += work;
            done[t][lane] = free_at[thread] = start + work;
            if (free_at[thread] > end) end = free_at[thread];
        }
    return end / (all / threads);
}

static void every_pair_of_chunks_once(void **state)
{
    (void)state;
    static see_fn *const patterns[] = { see_full, see_causal, see_window, see_early, see_far };
    for (int p = 0; p < TEST_COUNT(patterns); p++)
        for (int chunks = 1; chunks <= RA__MOST_CHUNKS; chunks++) {
            struct ra__tasks tasks;
            bool listed[RA__MOST_CHUNKS][RA__MOST_CHUNKS] = { { false } };
            make_tasks(&tasks, patterns[p], 4096, chunks);
            for (int t = 0; t < tasks.count; t++) {
                assert_false(listed[tasks.list[t].keys][tasks.list[t].queries]);
                listed[tasks.list[t].keys][tasks.list[t].queries] = true;
            }
            for (int k = 0; k < chunks; k++)
                for (int q = 0; q < chunks; q++)
                    assert_int_equal(listed[k][q], tasks.work[k][q] > 0);
        }
}

/* A task comes after the nearest ones before it that share its keys or its queries. */
static void tasks_that_share_come_one_after_the_other(void **state)
{
    (void)state;
    static see_fn *const patterns[] = { see_full, see_causal, see_window, see_far };
    for (int p = 0; p < TEST_COUNT(patterns); p++)
        for (int chunks = 1; chunks <= RA__MOST_CHUNKS; chunks += 3) {
            struct ra__tasks tasks;
            make_tasks(&tasks, patterns[p], 4096, chunks);
            for (int t = 0; t < tasks.count; t++) {
                int same_keys = -1, same_queries = -1;
                for (int i = 0; i < t; i++) {
                    if (tasks.list[i].keys == tasks.list[t].keys) same_keys = i;
                    if (tasks.list[i].queries == tasks.list[t].queries) same_queries = i;
                }
                assert_int_equal(tasks.list[t].after[0], same_keys);
                assert_int_equal(tasks.list[t].after[1], same_queries);
            }
        }
}

static void marks_have_room(void **state)
{
    (void)state;
    for (int64_t kv_items = 1; kv_items < 5000; kv_items++) {
        int64_t chunks = ra__tasks_most(kv_items);
        assert_true(chunks >= 1 && chunks <= RA__MOST_CHUNKS);
        assert_true(chunks == 1 || kv_items * chunks * chunks <= RA__MOST_TASKS);
    }
    assert_int_equal(ra__tasks_most(1), RA__MOST_CHUNKS);
}

/* Nine tenths of what so many threads could do. */
static void threads_are_busy(void **state)
{
    (void)state;
    static const struct {
        see_fn *see;
        int64_t n;
        int chunks, kv_items, threads;
    } cases[] = {
        { see_full, 4096, 8, 1, 2 },     { see_causal, 4096, 8, 1, 2 },
        { see_window, 4096, 8, 1, 2 },   { see_full, 4096, 8, 8, 16 },
        { see_causal, 4096, 8, 8, 16 },  { see_window, 4096, 8, 8, 16 },
        { see_early, 4096, 8, 8, 16 },   { see_full, 8192, 16, 4, 16 },
        { see_causal, 8192, 16, 4, 16 }, { see_causal, 8192, 16, 8, 64 },
        { see_causal, 8192, 4, 32, 16 }, { see_full, 8192, 16, 1, 16 },
        { see_window, 8192, 16, 2, 16 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct ra__tasks tasks;
        make_tasks(&tasks, cases[i].see, cases[i].n, cases[i].chunks);
        double over = makespan(&tasks, cases[i].kv_items, cases[i].threads);
        if (over > 1 / 0.9)
            fail_msg("case %d: %d lanes of %d chunks on %d threads take %.2f times as long as they "
                     "should",
                     i, cases[i].kv_items, cases[i].chunks, cases[i].threads, over);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_chunks_once),
        cmocka_unit_test(tasks_that_share_come_one_after_the_other),
        cmocka_unit_test(marks_have_room),
        cmocka_unit_test(threads_are_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
