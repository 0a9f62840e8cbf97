/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_groups.c - groups: wrong arguments give a status, a sentence and no change; what ranks
 * share; threads and pinning from the environment; plans and states that outlive their group;
 * handles of a child process. */
#include "support/desk.h"

#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static ra_status say_ok(ra_group *group, void *context)
{
    (void)group, (void)context;
    return RA_OK;
}

static ra_status post_nothing(void *context, const ra_message *sends, int send_count,
                              const ra_message *recvs, int recv_count, void **ticket)
{
    (void)context, (void)sends, (void)send_count, (void)recvs, (void)recv_count, (void)ticket;
    return RA_OK;
}

static ra_status wait_nothing(void *context, void *ticket, double timeout)
{
    (void)context, (void)ticket, (void)timeout;
    return RA_OK;
}

static void wrong_groups_are_refused(void **state)
{
    (void)state;
    ra_group *groups[2] = { DESK_KEPT, DESK_KEPT };
    ra_group_options options = ra_group_options_default();
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_create_local(2, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "0 ranks", ra_group_create_local(0, NULL, groups));
    assert_fails(RA_ERR_ARGUMENT, "-3 ranks", ra_group_create_local(-3, NULL, groups));
    assert_fails(RA_ERR_ARGUMENT, "2147483647 ranks",
                 ra_group_create_local(INT32_MAX, NULL, groups));
    options.threads = -1;
    assert_fails(RA_ERR_ARGUMENT, "-1 threads", ra_group_create_local(2, &options, groups));
    options.threads = 1 << 30;
    assert_fails(RA_ERR_ARGUMENT, "threads", ra_group_create_local(2, &options, groups));
    options.threads = 1;
    options.timeout = -1;
    assert_fails(RA_ERR_ARGUMENT, "timeout", ra_group_create_local(2, &options, groups));
    options.timeout = NAN;
    assert_fails(RA_ERR_ARGUMENT, "timeout", ra_group_create_local(2, &options, groups));
    assert_fails(RA_ERR_ARGUMENT, "pigeons", ra_group_create("pigeons", 2, NULL, groups));
    assert_fails(RA_ERR_UNSUPPORTED, "custom", ra_group_create("custom", 2, NULL, groups));
    assert_ptr_equal(groups[0], DESK_KEPT);
    assert_ptr_equal(groups[1], DESK_KEPT);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void wrong_custom_groups_are_refused(void **state)
{
    (void)state;
    ra_group *group = DESK_KEPT;
    ra_transport_callbacks calls = ra_transport_callbacks_default();
    assert_fails(RA_ERR_ARGUMENT, "needs post and wait",
                 ra_group_create_custom(2, 0, &calls, NULL, &group));
    calls.post = post_nothing;
    assert_fails(RA_ERR_ARGUMENT, "needs post and wait",
                 ra_group_create_custom(2, 0, &calls, NULL, &group));
    calls.wait = wait_nothing;
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_create_custom(2, 0, NULL, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_create_custom(2, 0, &calls, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "rank 2 of 2",
                 ra_group_create_custom(2, 2, &calls, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "rank -1 of 2",
                 ra_group_create_custom(2, -1, &calls, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "rank 0 of 0",
                 ra_group_create_custom(0, 0, &calls, NULL, &group));
    ra_group_options options = ra_group_options_default();
    options.checksum = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "transport custom: checksums are not supported",
                 ra_group_create_custom(2, 0, &calls, &options, &group));
    calls.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set",
                 ra_group_create_custom(2, 0, &calls, NULL, &group));
    assert_ptr_equal(group, DESK_KEPT);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void wrong_runs_of_groups_are_refused(void **state)
{
    (void)state;
    ra_group *group;
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "nothing to run", ra_group_run(NULL, 1, say_ok, NULL));
    assert_fails(RA_ERR_ARGUMENT, "nothing to run", ra_group_run(&group, 0, say_ok, NULL));
    assert_fails(RA_ERR_ARGUMENT, "nothing to run", ra_group_run(&group, -1, say_ok, NULL));
    assert_fails(RA_ERR_ARGUMENT, "nothing to run", ra_group_run(&group, 1, NULL, NULL));
    assert_ok(ra_group_run(&group, 1, say_ok, NULL));
    ra_group_destroy(group);
}

static void groups_know_themselves(void **state)
{
    (void)state;
    ra_group *groups[3];
    ra_group_options options = ra_group_options_default();
    options.threads = 2;
    assert_ok(ra_group_create_local(3, &options, groups));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ra_group_rank(groups[i]), i);
        assert_int_equal(ra_group_ranks(groups[i]), 3);
        assert_int_equal(ra_group_threads(groups[i]), 2);
        ra_group_destroy(groups[i]);
    }
    assert_ok(ra_group_create(NULL, 1, NULL, groups));
    assert_true(ra_group_threads(groups[0]) >= 1);
    ra_group_destroy(groups[0]);
}

static void wrong_joins_are_refused(void **state)
{
    (void)state;
    ra_group *group = DESK_KEPT;
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_join(NULL, NULL, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_join("local", NULL, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "\"pigeons\" is not known; there are local, custom, mpi",
                 ra_group_join("pigeons", NULL, NULL, &group));
    assert_fails(RA_ERR_UNSUPPORTED, "transport local: there is nothing to join",
                 ra_group_join("local", NULL, NULL, &group));
    assert_ptr_equal(group, DESK_KEPT);
}

/* What the ranks sent one another is there in the order of ranks, including that of this rank. */
static ra_status share_squares(ra_group *group, void *context)
{
    enum { MOST = 4 };
    int rank = ra_group_rank(group), ranks = ra_group_ranks(group);
    int mine[2] = { rank, rank * rank }, all[MOST][2];
    (void)context;
    ra_status status = ra_group_share(group, mine, all, sizeof mine);
    for (int i = 0; i < ranks && status == RA_OK; i++)
        if (all[i][0] != i || all[i][1] != i * i)
            status = ra_transport_error(RA_ERR_SYSTEM, "a share lies elsewhere");
    return status == RA_OK ? ra_group_poll(group) : status;
}

static void ranks_share_bytes(void **state)
{
    (void)state;
    ra_group *groups[4];
    for (int ranks = 1; ranks <= 4; ranks++) {
        assert_ok(ra_group_create_local(ranks, NULL, groups));
        assert_ok(ra_group_run(groups, ranks, share_squares, NULL));
        for (int i = 0; i < ranks; i++) ra_group_destroy(groups[i]);
    }
    assert_ok(ra_group_create_local(1, NULL, groups));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_share(NULL, groups, groups, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_share(groups[0], NULL, groups, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_share(groups[0], groups, NULL, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_poll(NULL));
    ra_group_abort(groups[0], "enough");
    assert_fails(RA_ERR_ABORTED, "enough", ra_group_poll(groups[0]));
    ra_group_destroy(groups[0]);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void threads_come_from_the_environment(void **state)
{
    (void)state;
    ra_group *group = DESK_KEPT;
    setenv("RINGATTN_THREADS", "3", 1);
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_int_equal(ra_group_threads(group), 3);
    ra_group_destroy(group);
    setenv("RINGATTN_THREADS", "many", 1);
    assert_fails(RA_ERR_ARGUMENT, "RINGATTN_THREADS is \"many\"",
                 ra_group_create_local(1, NULL, &group));
    setenv("RINGATTN_THREADS", "0", 1);
    assert_fails(RA_ERR_ARGUMENT, "RINGATTN_THREADS", ra_group_create_local(1, NULL, &group));
    unsetenv("RINGATTN_THREADS");
}

static void pinning_from_the_environment(void **state)
{
    (void)state;
    static const char *const good[] = { "0", "1", "" };
    ra_group *groups[2];
    for (int i = 0; i < TEST_COUNT(good); i++) {
        setenv("RINGATTN_PIN", good[i], 1);
        assert_ok(ra_group_create_local(2, NULL, groups));
        ra_group_destroy(groups[0]);
        ra_group_destroy(groups[1]);
    }
    setenv("RINGATTN_PIN", "maybe", 1);
    assert_fails(RA_ERR_ARGUMENT, "RINGATTN_PIN is \"maybe\"",
                 ra_group_create_local(2, NULL, groups));
    unsetenv("RINGATTN_PIN");
}

/* ---- After the end of a group, and after a fork ---------------------------------------------- */

static void plans_outlive_their_group(void **state)
{
    (void)state;
    struct desk d;
    ra_memory memory = ra_memory_default();
    ra_stats stats = ra_stats_default();
    desk_open(&d, 1);
    assert_ok(ra_attend(d.plan, &d.attend));
    ra_group_destroy(d.group);
    assert_fails(RA_ERR_ARGUMENT, "attend: its group was destroyed", ra_attend(d.plan, &d.attend));
    assert_fails(RA_ERR_ARGUMENT, "gradient: its group was destroyed",
                 ra_gradient(d.plan, &d.gradient));
    assert_ok(ra_plan_memory(d.plan, &memory));
    assert_ok(ra_plan_stats(d.plan, &stats));
    assert_int_equal(stats.pairs, 2 * 12 * 12);
    ra_plan_destroy(d.plan);
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* Several ranks and threads, a pool of buffers, and two plans that end one after the other. */
static void groups_of_several_ranks_end_first(void **state)
{
    (void)state;
    ra_group *groups[2];
    ra_plan *plans[2][2];
    ra_problem problem = desk_problem();
    ra_group_options options = ra_group_options_default();
    struct desk d;
    options.threads = 2;
    options.pool_threshold = 1;
    assert_ok(ra_group_create_local(2, &options, groups));
    for (int i = 0; i < 4; i++)
        assert_ok(ra_plan_create(groups[i / 2], &problem, NULL, &plans[i / 2][i % 2]));
    for (int i = 0; i < 2; i++) ra_group_destroy(groups[i]);
    desk_open(&d, 0);
    for (int i = 0; i < 4; i++) {
        assert_fails(RA_ERR_ARGUMENT, "its group was destroyed",
                     ra_attend(plans[i / 2][i % 2], &d.attend));
        ra_plan_destroy(plans[i / 2][i % 2]);
    }
    desk_close(&d);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void states_outlive_their_group(void **state)
{
    (void)state;
    ra_problem problem = desk_problem();
    ra_group *groups[2];
    ra_state *folded;
    float zeros[96] = { 0 };
    ra_const_tensor t = ra_const_tensor_packed(zeros);
    assert_ok(ra_state_create(&problem, NULL, &folded));
    for (int i = 0; i < 2; i++) {
        assert_ok(ra_group_create_local(1, NULL, &groups[i]));
        assert_ok(ra_state_use_group(folded, groups[i]));
        assert_ok(ra_state_fold(folded, &t, &t, &t, i, 1));
        if (i == 1) ra_group_destroy(groups[0]); /* no longer used: its memory goes at once */
    }
    ra_group_destroy(groups[1]);
    assert_fails(RA_ERR_ARGUMENT, "state: its group was destroyed",
                 ra_state_fold(folded, &t, &t, &t, 2, 1));
    assert_ok(ra_state_use_group(folded, NULL));
    assert_ok(ra_state_fold(folded, &t, &t, &t, 2, 1));
    ra_state_destroy(folded);
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* What a child of fork() does with handles of its own; those of its parent it leaves alone. */
static bool attend_with_own_handles(void)
{
    ra_problem problem = desk_problem();
    ra_group_options options = ra_group_options_default();
    ra_group *group;
    ra_plan *plan;
    static float zeros[96], out[96];
    ra_attend_args args = ra_attend_args_default();
    options.threads = 3;
    args.q = args.k = args.v = ra_const_tensor_packed(zeros);
    args.out = ra_tensor_packed(out);
    bool fine = ra_group_create_local(1, &options, &group) == RA_OK &&
                ra_plan_create(group, &problem, NULL, &plan) == RA_OK &&
                ra_attend(plan, &args) == RA_OK;
    if (!fine) return false;
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    return true;
}

static void children_make_handles_of_their_own(void **state)
{
    (void)state;
    struct desk d;
    int status;
    if (test_slow()) skip(); /* the thread sanitizer allows no threads after a fork */
    desk_open(&d, 0);
    assert_ok(ra_attend(d.plan, &d.attend));
    pid_t child = fork();
    if (child == 0) {
        alarm(30); /* a child that waits for threads of its parent would wait for ever */
        _exit(attend_with_own_handles() ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ok(ra_attend(d.plan, &d.attend));
    desk_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(wrong_custom_groups_are_refused),
        cmocka_unit_test(wrong_runs_of_groups_are_refused),
        cmocka_unit_test(groups_know_themselves),
        cmocka_unit_test(wrong_joins_are_refused),
        cmocka_unit_test(ranks_share_bytes),
        cmocka_unit_test(threads_come_from_the_environment),
        cmocka_unit_test(pinning_from_the_environment),
        cmocka_unit_test(plans_outlive_their_group),
        cmocka_unit_test(groups_of_several_ranks_end_first),
        cmocka_unit_test(states_outlive_their_group),
        cmocka_unit_test(children_make_handles_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
