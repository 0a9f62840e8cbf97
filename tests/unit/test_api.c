/* SPDX-License-Identifier: Apache-2.0 */
/* test_api.c - the outside of the library: wrong arguments give a status, a sentence and no change;
 * structs of older and newer callers; names of statuses and parts. */
#include "support/walk.h"

#include <math.h>
#include <stdlib.h>

static void *const KEPT = (void *)0x40; /* what a result must still be after a failure */

/* A problem that is right, to be spoilt. */
static ra_problem good_problem(void)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = 12;
    problem.q_heads = 2;
    problem.dim = 4;
    return problem;
}

/* ---- Status, version, parts ------------------------------------------------------------------ */

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                                   \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(ra_status_name(name), #name);                                              \
    assert_string_equal(ra_status_text(name), text);
    RA_STATUS_LIST(CHECK)
#undef CHECK
    assert_string_equal(ra_status_name((ra_status)-1), "unknown status");
    assert_string_equal(ra_status_text((ra_status)12), "unknown status");
    assert_string_equal(ra_status_name((ra_status)12345), "unknown status");
}

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char want[32];
    snprintf(want, sizeof want, "%d.%d.%d", RA_VERSION_MAJOR, RA_VERSION_MINOR, RA_VERSION_PATCH);
    assert_string_equal(ra_version(), want);
}

static void every_kind_of_part_has_rows(void **state)
{
    (void)state;
    static const char *const kinds[] = { "kernel", "device",    "transport", "pattern",
                                         "order",  "partition", "strategy" };
    for (int k = 0; k < TEST_COUNT(kinds); k++) {
        ra_part part;
        int rows = 0, chosen = 0;
        for (; walk_part(kinds[k], rows, &part); rows++) {
            assert_true(part.name && *part.name && part.summary && *part.summary);
            assert_true(part.why && *part.why && part.samples && *part.samples);
            assert_true(part.usable == 0 || part.usable == 1);
            assert_true(!part.chosen || part.usable);
            chosen += part.chosen;
            assert_true((k == 0) == (part.dtypes != 0)); /* kernels take some, others do not ask */
        }
        assert_true(rows > 0);
        assert_true(k == 0 ? chosen >= 1 : chosen == 1);
        assert_fails(RA_ERR_ARGUMENT, "there is no row", ra_part_at(kinds[k], rows, &part));
        assert_fails(RA_ERR_ARGUMENT, "there is no row -1", ra_part_at(kinds[k], -1, &part));
    }
}

/* Of the kernels that take a dtype, the one that is chosen for it computes its plans and states. */
static void kernels_take_the_dtypes_they_say(void **state)
{
    (void)state;
    static const char *const names[] = { "f32", "bf16", "f16" };
    for (int t = 0; t < TEST_COUNT(names); t++) {
        ra_part kernel;
        ra_problem problem = good_problem();
        ra_plan_options options = ra_plan_options_default();
        ra_plan *plan;
        ra_state *made;
        problem.dtype = (ra_dtype)t;
        assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
        bool known = false;
        for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
            char sentence[64];
            options.kernel = kernel.name;
            if (!strcmp(ra_plan_kernel(plan), kernel.name))
                known = kernel.chosen && kernel.dtypes >> t & 1;
            if (kernel.dtypes >> t & 1) continue;
            snprintf(sentence, sizeof sentence, "'%s' supports ", kernel.name);
            assert_fails(RA_ERR_UNSUPPORTED, sentence,
                         ra_plan_create(NULL, &problem, &options, &plan));
            snprintf(sentence, sizeof sentence, ", not %s", names[t]);
            assert_fails(RA_ERR_UNSUPPORTED, sentence,
                         ra_state_create(&problem, kernel.name, &made));
        }
        assert_true(known);
        ra_plan_destroy(plan);
    }
}

/* A caller who knows nothing of the dtypes yet is given all else, and not a byte more. */
static void parts_of_older_callers(void **state)
{
    (void)state;
    ra_part part = ra_part_default(), whole = ra_part_default();
    part.size = offsetof(ra_part, dtypes);
    part.dtypes = 77;
    assert_ok(ra_part_at("kernel", 0, &part));
    assert_ok(ra_part_at("kernel", 0, &whole));
    assert_string_equal(part.name, whole.name);
    assert_ptr_equal(part.samples, whole.samples);
    assert_int_equal(part.dtypes, 77);
    assert_true(whole.dtypes != 0 && whole.dtypes != 77);
}

static ra_dtype first_dtype(const ra_part *kernel)
{
    int dtype = 0;
    while (!(kernel->dtypes >> dtype & 1)) dtype++;
    return (ra_dtype)dtype;
}

static void names_of_parts_are_what_options_take(void **state)
{
    (void)state;
    ra_part kernel, strategy, partition;
    ra_problem problem = good_problem();
    for (int k = 0; walk_usable("kernel", k, &kernel); k++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int p = 0; walk_usable("partition", p, &partition); p++) {
                ra_plan *plan;
                ra_plan_options options = ra_plan_options_default();
                problem.dtype = first_dtype(&kernel);
                options.kernel = kernel.name;
                options.strategy = strategy.name;
                options.partition = partition.name;
                options.ranks = 3;
                assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
                assert_string_equal(ra_plan_kernel(plan), kernel.name);
                ra_plan_destroy(plan);
            }
}

static void wrong_parts_are_refused(void **state)
{
    (void)state;
    ra_part part = ra_part_default();
    assert_fails(RA_ERR_ARGUMENT, "\"colour\" is not a kind of part",
                 ra_part_at("colour", 0, &part));
    assert_fails(RA_ERR_ARGUMENT, "is not a kind of part", ra_part_at(NULL, 0, &part));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_part_at("kernel", 0, NULL));
    part.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_part_at("kernel", 0, &part));
    assert_null(part.name);
}

static void errors_belong_to_their_thread(void **state)
{
    (void)state;
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_pattern_parse(NULL, NULL));
    char before[256];
    snprintf(before, sizeof before, "%s", ra_last_error());
    ra_pattern *pattern;
    assert_ok(ra_pattern_full(&pattern)); /* success leaves the old sentence */
    ra_pattern_destroy(pattern);
    assert_string_equal(ra_last_error(), before);
    assert_int_equal(ra_transport_error(RA_ERR_PEER, "the cable"), RA_ERR_PEER);
    assert_string_equal(ra_last_error(), "the cable");
    assert_int_equal(ra_transport_error(RA_ERR_PEER, NULL), RA_ERR_PEER);
    assert_string_equal(ra_last_error(), "");
}

/* ---- NULL ------------------------------------------------------------------------------------ */

static void destroying_nothing_is_allowed(void **state)
{
    (void)state;
    ra_pattern_destroy(NULL);
    ra_layout_destroy(NULL);
    ra_group_destroy(NULL);
    ra_plan_destroy(NULL);
    ra_state_destroy(NULL);
    ra_group_abort(NULL, "nobody");
}

static void questions_to_nobody_have_answers(void **state)
{
    (void)state;
    size_t bytes = 7;
    assert_int_equal(ra_group_rank(NULL), -1);
    assert_int_equal(ra_group_ranks(NULL), 0);
    assert_int_equal(ra_group_threads(NULL), 0);
    assert_int_equal(ra_plan_q_count(NULL), 0);
    assert_int_equal(ra_plan_k_count(NULL), 0);
    assert_string_equal(ra_plan_kernel(NULL), "");
    assert_int_equal(ra_layout_runs(NULL, 0, NULL, 0), 0);
    assert_null(ra_state_data(NULL, &bytes));
    assert_int_equal(bytes, 0);
    assert_null(ra_state_data(NULL, NULL));
}

static void null_patterns(void **state)
{
    (void)state;
    static const int64_t bounds[] = { 0, 4 };
    static const ra_branch branches[] = { { 4, 1 } };
    static const uint8_t active[1] = { 1 };
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    uint8_t seen[4];
    problem.q_len = 4;
    problem.q_heads = 1;
    problem.dim = 8;
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_full(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_causal(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_window(1, 1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_prefix(1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_parse("full", NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_parse(NULL, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_causal(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_documents(NULL, bounds, 2));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_format(NULL, NULL, 0, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_dilated(NULL, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_dilated(branches, 1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_blocks(4, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add(NULL, "local=1"));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add_bitmap(NULL, 1, 1, active));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_problem_row(NULL, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_problem_row(&problem, 0, 0, NULL));
    assert_ok(ra_pattern_full(&pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_documents(pattern, NULL, 2));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_format(pattern, NULL, 5, NULL));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add(pattern, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add_bitmap(pattern, 1, 1, NULL));
    ra_pattern_destroy(pattern);
}

static void null_layouts(void **state)
{
    (void)state;
    static const ra_run runs[] = { { 0, 1, 4 } };
    static const int64_t counts[] = { 1 };
    ra_layout *layout = KEPT;
    int32_t from[4] = { 0 }, to[4] = { 1, 1, 1, 1 };
    ra_array array = { from, to, 1, 4 }, hollow = { NULL, to, 1, 4 };
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create("zigzag", 4, 1, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, NULL, counts, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, runs, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, runs, counts, NULL));
    assert_ptr_equal(layout, KEPT);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_permute(NULL, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_restore(NULL, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_take(NULL, 0, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_give(NULL, 0, &array, 1));
    assert_ok(ra_layout_create(NULL, 4, 1, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_permute(layout, NULL, 1));
    assert_fails(RA_ERR_ARGUMENT, "array 0 has no data", ra_layout_permute(layout, &hollow, 1));
    assert_fails(RA_ERR_ARGUMENT, "array 0 has no data", ra_layout_take(layout, 0, &hollow, 1));
    assert_fails(RA_ERR_ARGUMENT, "rank 1 of 1", ra_layout_take(layout, 1, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "rank -1 of 1", ra_layout_give(layout, -1, &array, 1));
    for (int i = 0; i < 4; i++) assert_int_equal(to[i], 1); /* nothing was written */
    assert_ok(ra_layout_permute(layout, NULL, 0));
    ra_layout_destroy(layout);
}

/* Numbers of an array that cannot be. */
static void absurd_arrays_are_refused(void **state)
{
    (void)state;
    ra_layout *layout;
    int32_t from[4] = { 0 }, to[4] = { 1, 1, 1, 1 };
    ra_array negative = { from, to, -1, 4 }, array = { from, to, 1, 4 };
    assert_ok(ra_layout_create(NULL, 4, 1, NULL, &layout));
    ra_status batch = ra_layout_permute(layout, &negative, 1),
              count = ra_layout_permute(layout, &array, -1);
    ra_layout_destroy(layout);
    assert_int_equal(batch, RA_ERR_ARGUMENT);
    assert_int_equal(count, RA_ERR_ARGUMENT);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

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
    ra_group *groups[2] = { KEPT, KEPT };
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
    assert_ptr_equal(groups[0], KEPT);
    assert_ptr_equal(groups[1], KEPT);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void wrong_custom_groups_are_refused(void **state)
{
    (void)state;
    ra_group *group = KEPT;
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
    assert_ptr_equal(group, KEPT);
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
    ra_group *group = KEPT;
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_join(NULL, NULL, NULL, &group));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_group_join("local", NULL, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "\"pigeons\" is not known; there are local, custom, mpi",
                 ra_group_join("pigeons", NULL, NULL, &group));
    assert_fails(RA_ERR_UNSUPPORTED, "transport local: there is nothing to join",
                 ra_group_join("local", NULL, NULL, &group));
    assert_ptr_equal(group, KEPT);
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
    ra_group *group = KEPT;
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

/* ---- Problems -------------------------------------------------------------------------------- */

static void refuse(ra_problem problem, ra_status status, const char *sentence)
{
    ra_plan *plan = KEPT;
    ra_state *state = KEPT;
    size_t held = ra_allocated_bytes();
    assert_fails(status, sentence, ra_plan_create(NULL, &problem, NULL, &plan));
    assert_fails(status, sentence, ra_state_create(&problem, NULL, &state));
    assert_ptr_equal(plan, KEPT);
    assert_ptr_equal(state, KEPT);
    assert_int_equal(ra_allocated_bytes(), held);
}

static void wrong_problems_are_refused(void **state)
{
    (void)state;
    ra_problem p;
#define REFUSE(field, value, sentence)                                                             \
    p = good_problem();                                                                            \
    p.field = value;                                                                               \
    refuse(p, RA_ERR_ARGUMENT, sentence)
    REFUSE(size, 0, "size is not set; start from ra_problem_default()");
    REFUSE(dtype, (ra_dtype)7, "7 is no dtype");
    REFUSE(dtype, (ra_dtype)-1, "-1 is no dtype");
    REFUSE(batch, -1, "batch is -1");
    REFUSE(batch, INT64_MAX, "batch is");
    REFUSE(q_len, -1, "q_len is -1");
    REFUSE(q_len, INT64_MAX, "q_len is");
    REFUSE(k_len, -5, "k_len is -5");
    REFUSE(q_heads, 0, "q_heads is 0");
    REFUSE(q_heads, -2, "q_heads is -2");
    REFUSE(q_heads, INT32_MAX, "q_heads is");
    REFUSE(kv_heads, -1, "kv_heads is -1");
    REFUSE(kv_heads, 3, "2 query heads are not a multiple of 3 KV heads");
    REFUSE(kv_heads, 4, "are not a multiple");
    REFUSE(dim, 0, "dim is 0, but must be 1 to 576");
    REFUSE(dim, 577, "dim is 577");
    REFUSE(dim, -4, "dim is -4");
    REFUSE(value_dim, 577, "value_dim is 577");
    REFUSE(value_dim, -1, "value_dim is -1");
    REFUSE(scale, NAN, "scale is not a finite number");
    REFUSE(scale, INFINITY, "scale is not a finite number");
    REFUSE(softcap, -1.0f, "softcap is -1, but must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, NAN, "must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, 3e38f, "must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, 1e-40f, "must be 0 or 1e-30 to 1e30");
    REFUSE(dropout, -0.1, "dropout is -0.1, but must be 0 to below 1");
    REFUSE(dropout, 1.0, "dropout is 1, but must be 0 to below 1");
    REFUSE(dropout, NAN, "must be 0 to below 1");
#undef REFUSE
    p = good_problem();
    p.batch = INT32_MAX;
    p.q_len = p.k_len = (int64_t)1 << 40;
    p.q_heads = 65536;
    refuse(p, RA_ERR_ARGUMENT, "exceeds 2^63");
}

static void problems_and_patterns_must_fit(void **state)
{
    (void)state;
    ra_pattern *pattern;
    ra_problem p = good_problem();
    assert_ok(ra_pattern_parse("prefix:2", &pattern));
    p.pattern = pattern;
    p.k_len = 5;
    refuse(p, RA_ERR_UNSUPPORTED, "prefix: more queries (12) than keys (5)");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_parse("full;docs=0,4,9", &pattern));
    p.pattern = pattern;
    refuse(p, RA_ERR_UNSUPPORTED, "documents");
    p.k_len = 0;
    refuse(p, RA_ERR_ARGUMENT, "the last bound is 9, but there are 12");
    ra_pattern_destroy(pattern);
}

static void the_largest_dims_are_accepted(void **state)
{
    (void)state;
    ra_problem p = good_problem();
    ra_plan *plan;
    p.dim = p.value_dim = 576;
    assert_ok(ra_plan_create(NULL, &p, NULL, &plan));
    ra_plan_destroy(plan);
}

/* ---- Plan options ---------------------------------------------------------------------------- */

static void refuse_options(ra_plan_options options, ra_status status, const char *sentence)
{
    ra_problem problem = good_problem();
    ra_plan *plan = KEPT;
    size_t held = ra_allocated_bytes();
    assert_fails(status, sentence, ra_plan_create(NULL, &problem, &options, &plan));
    assert_ptr_equal(plan, KEPT);
    assert_int_equal(ra_allocated_bytes(), held);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    ra_plan_options o;
#define REFUSE(field, value, sentence)                                                             \
    o = ra_plan_options_default();                                                                 \
    o.field = value;                                                                               \
    refuse_options(o, RA_ERR_ARGUMENT, sentence)
    REFUSE(size, 0, "size is not set; start from ra_plan_options_default()");
    REFUSE(strategy, "teleport", "\"teleport\" is not known; there are ring, allgather");
    REFUSE(strategy, "", "is not known");
    REFUSE(partition, "spiral", "\"spiral\" is not known");
    REFUSE(partition, "zigzag;perdoc", "the pattern has no documents");
    REFUSE(kernel, "abacus", "abacus");
    REFUSE(ranks, -1, "of -1 ranks");
    REFUSE(ranks, INT32_MAX, "there may be 1 to 4096");
    REFUSE(rank, 1, "rank 1 of 1 ranks");
    REFUSE(rank, -1, "rank -1 of 1 ranks");
    REFUSE(threads, -2, "-2 threads");
#undef REFUSE
    o = ra_plan_options_default();
    o.memory = 16;
    refuse_options(o, RA_ERR_BUDGET, "the budget is 16 B (16 bytes): shard ");
    ra_plan *plan = KEPT;
    ra_problem problem = good_problem();
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_create(NULL, NULL, NULL, &plan));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_create(NULL, &problem, NULL, NULL));
    assert_ptr_equal(plan, KEPT);
}

static void wrong_layouts_of_plans_are_refused(void **state)
{
    (void)state;
    ra_layout *fits, *longer, *wider;
    assert_ok(ra_layout_create(NULL, 12, 2, NULL, &fits));
    assert_ok(ra_layout_create(NULL, 13, 2, NULL, &longer));
    assert_ok(ra_layout_create(NULL, 12, 3, NULL, &wider));
    ra_plan_options o = ra_plan_options_default();
    o.ranks = 2;
    o.layout = longer;
    refuse_options(o, RA_ERR_ARGUMENT, "is for 13 positions over 2 ranks, not 12 over 2");
    o.layout = wider;
    refuse_options(o, RA_ERR_ARGUMENT, "is for 12 positions over 3 ranks, not 12 over 2");
    o.layout = NULL;
    o.kv_layout = fits;
    refuse_options(o, RA_ERR_ARGUMENT, "kv_layout is given without layout");
    o.layout = fits;
    o.kv_layout = longer;
    refuse_options(o, RA_ERR_ARGUMENT, "the layout of the keys");
    o.kv_layout = NULL;
    o.partition = "zigzag";
    refuse_options(o, RA_ERR_ARGUMENT, "both a partition and a layout");
    ra_problem problem = good_problem();
    problem.k_len = 20;
    o.partition = NULL;
    ra_plan *plan = KEPT;
    assert_fails(RA_ERR_ARGUMENT, "kv_layout is missing",
                 ra_plan_create(NULL, &problem, &o, &plan));
    assert_ptr_equal(plan, KEPT);
    ra_layout_destroy(fits);
    ra_layout_destroy(longer);
    ra_layout_destroy(wider);
}

/* ---- Asking plans ---------------------------------------------------------------------------- */

static void ignore_line(void *context, const char *line) { (void)context, (void)line; }

static void wrong_questions_to_plans_are_refused(void **state)
{
    (void)state;
    ra_problem problem = good_problem();
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    ra_memory memory = ra_memory_default();
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_stats(NULL, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_stats(plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_forecast(NULL, 0, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_forecast(plan, 0, NULL));
    assert_fails(RA_ERR_ARGUMENT, "made without backward", ra_plan_forecast(plan, 1, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_memory(NULL, &memory));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_memory(plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_explain(NULL, 0, ignore_line, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_explain(plan, 0, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "made without backward",
                 ra_plan_explain(plan, 1, ignore_line, NULL));
    stats.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_plan_forecast(plan, 0, &stats));
    memory.size = 3;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_plan_memory(plan, &memory));
    assert_int_equal(memory.total, 0);
    ra_plan_destroy(plan);
}

/* Before any run there is nothing to report: zeros, whatever the struct held. */
static void a_plan_that_never_ran_tells_zeros(void **state)
{
    (void)state;
    ra_problem problem = good_problem();
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    stats.hops = stats.pairs = 77;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_ok(ra_plan_stats(plan, &stats));
    assert_int_equal(stats.hops, 0);
    assert_int_equal(stats.pairs, 0);
    assert_int_equal(stats.size, sizeof stats);
    ra_plan_destroy(plan);
}

/* ---- Attending ------------------------------------------------------------------------------- */

/* A plan on one rank and tensors that fit it. */
struct desk {
    ra_group *group;
    ra_plan *plan;
    float q[96], k[96], v[96], out[96], lse[24], dout[96], dq[96], dk[96], dv[96];
    ra_attend_args attend;
    ra_gradient_args gradient;
};

static void desk_open(struct desk *d, int backward)
{
    ra_problem problem = good_problem();
    ra_plan_options options = ra_plan_options_default();
    memset(d, 0, sizeof *d);
    options.backward = backward;
    assert_ok(ra_group_create_local(1, NULL, &d->group));
    assert_ok(ra_plan_create(d->group, &problem, &options, &d->plan));
    for (int i = 0; i < 96; i++) d->out[i] = d->dq[i] = 5.0f;
    d->attend = ra_attend_args_default();
    d->gradient = ra_gradient_args_default();
    d->attend.q = d->gradient.q = ra_const_tensor_packed(d->q);
    d->attend.k = d->gradient.k = ra_const_tensor_packed(d->k);
    d->attend.v = d->gradient.v = ra_const_tensor_packed(d->v);
    d->attend.out = ra_tensor_packed(d->out);
    d->gradient.out = ra_const_tensor_packed(d->out);
    d->attend.lse = d->lse;
    d->gradient.lse = d->lse;
    d->gradient.dout = ra_const_tensor_packed(d->dout);
    d->gradient.dq = ra_tensor_packed(d->dq);
    d->gradient.dk = ra_tensor_packed(d->dk);
    d->gradient.dv = ra_tensor_packed(d->dv);
}

static void desk_close(struct desk *d)
{
    ra_plan_destroy(d->plan);
    ra_group_destroy(d->group);
}

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d, 1);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attend(NULL, &d.attend));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attend(d.plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_gradient(NULL, &d.gradient));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_gradient(d.plan, NULL));
#define REFUSE(call, field, value, sentence)                                                       \
    do {                                                                                           \
        struct desk spoilt = d;                                                                    \
        spoilt.field = value;                                                                      \
        assert_fails(RA_ERR_ARGUMENT, sentence, call);                                             \
    } while (0)
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.size, 0, "size is not set");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.q.data, NULL, "q: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.k.data, NULL, "k: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.v.data, NULL, "v: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.out.data, NULL, "out: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.q.data, (char *)d.q + 1,
           "q: data is not aligned");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.size, 0, "size is not set");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.lse, NULL, "lse is required");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.q.data, NULL, "q: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.out.data, NULL, "out: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dout.data, NULL, "dout: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dq.data, NULL, "dq: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dk.data, NULL, "dk: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dv.data, NULL, "dv: no data");
#undef REFUSE
    for (int i = 0; i < 96; i++) assert_true(d.out[i] == 5.0f && d.dq[i] == 5.0f);
    assert_ok(ra_attend(d.plan, &d.attend)); /* wrong calls did no harm */
    assert_ok(ra_gradient(d.plan, &d.gradient));
    assert_true(d.out[0] == 0.0f && d.dq[0] == 0.0f);
    desk_close(&d);
}

static void plans_that_cannot_run_say_so(void **state)
{
    (void)state;
    struct desk d;
    ra_plan *asked;
    ra_problem problem = good_problem();
    desk_open(&d, 0);
    assert_ok(ra_plan_create(NULL, &problem, NULL, &asked));
    assert_fails(RA_ERR_ARGUMENT, "made without a group", ra_attend(asked, &d.attend));
    assert_fails(RA_ERR_ARGUMENT, "made without backward", ra_gradient(d.plan, &d.gradient));
    ra_plan_destroy(asked);
    desk_close(&d);
}

static int stop_at_once(void *context, double done)
{
    int *calls = context;
    (*calls)++;
    return done >= 0.0;
}

static int go_on(void *context, double done)
{
    double *last = context;
    if (done < *last || done > 1.0) *last = 1e9; /* never falls */
    else *last = done;
    return 0;
}

static void progress_ends_at_one(void **state)
{
    (void)state;
    struct desk d;
    double last = 0.0;
    desk_open(&d, 0);
    d.attend.progress = go_on;
    d.attend.context = &last;
    assert_ok(ra_attend(d.plan, &d.attend));
    assert_true(last == 1.0);
    desk_close(&d);
}

static void progress_can_stop_a_long_run(void **state)
{
    (void)state;
    ra_group *group;
    ra_plan *plan;
    ra_problem problem = good_problem();
    int calls = 0;
    problem.q_len = 4096;
    problem.dim = 64;
    float *data = calloc(4096 * 2 * 64, sizeof *data), *out = calloc(4096 * 2 * 64, sizeof *out);
    ra_plan_options options = ra_plan_options_default();
    options.kernel = "scalar";
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(data);
    args.out = ra_tensor_packed(out);
    args.progress = stop_at_once;
    args.context = &calls;
    assert_fails(RA_ERR_ABORTED, "progress", ra_attend(plan, &args));
    assert_int_equal(calls, 1);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    free(data);
    free(out);
}

/* ---- In one call ----------------------------------------------------------------------------- */

/* The same bits as with a plan, and nothing is left behind. */
static void attention_in_one_call(void **state)
{
    (void)state;
    struct desk d;
    float out[96], lse[24];
    size_t before = ra_allocated_bytes();
    desk_open(&d, false);
    for (int i = 0; i < 96; i++) d.q[i] = d.k[i] = d.v[i] = sinf((float)i);
    assert_ok(ra_attend(d.plan, &d.attend));
    ra_problem problem = good_problem();
    assert_ok(ra_attention(&problem, d.q, d.k, d.v, out, lse));
    assert_memory_equal(out, d.out, sizeof out);
    assert_memory_equal(lse, d.lse, sizeof lse);
    memset(out, 0, sizeof out);
    assert_ok(ra_attention(&problem, d.q, d.k, d.v, out, NULL));
    assert_memory_equal(out, d.out, sizeof out);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attention(NULL, d.q, d.k, d.v, out, NULL));
    assert_fails(RA_ERR_ARGUMENT, "k: no data", ra_attention(&problem, d.q, NULL, d.v, out, NULL));
    assert_fails(RA_ERR_ARGUMENT, "out: no data",
                 ra_attention(&problem, d.q, d.k, d.v, NULL, NULL));
    problem.dim = 0;
    assert_fails(RA_ERR_ARGUMENT, "dim is 0", ra_attention(&problem, d.q, d.k, d.v, out, NULL));
    desk_close(&d);
    assert_int_equal(ra_allocated_bytes(), before);
}

/* ---- State ----------------------------------------------------------------------------------- */

static void wrong_states_are_refused(void **state)
{
    (void)state;
    ra_problem problem = good_problem();
    ra_state *s = KEPT;
    float data[96] = { 0 }, lse[24];
    ra_tensor to = ra_tensor_packed(data), nowhere = ra_tensor_packed(NULL);
    ra_const_tensor t = ra_tensor_read(to), hollow = ra_tensor_read(nowhere);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_create(NULL, NULL, &s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_create(&problem, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "abacus", ra_state_create(&problem, "abacus", &s));
    assert_ptr_equal(s, KEPT);
    assert_ok(ra_state_create(&problem, NULL, &s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_init(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(NULL, &t, &t, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, NULL, &t, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, &t, NULL, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, &t, &t, NULL, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "k: no data", ra_state_fold(s, &t, &hollow, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "of 12", ra_state_fold(s, &t, &t, &t, INT64_MAX, 1));
    assert_fails(RA_ERR_ARGUMENT, "of 12", ra_state_fold(s, &t, &t, &t, 1, INT64_MAX));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_merge(s, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_merge(NULL, s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_finish(NULL, &to, lse));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_finish(s, NULL, lse));
    assert_fails(RA_ERR_ARGUMENT, "out: no data", ra_state_finish(s, &nowhere, lse));
    assert_ok(ra_state_finish(s, &to, NULL));
    ra_state_destroy(s);
}

static void wrong_merges_are_refused(void **state)
{
    (void)state;
    float out[4] = { 1, 2, 3, 4 }, lse[2] = { 0, 0 };
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(-1, 2, out, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 0, out, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, NULL, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, NULL, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, lse, NULL, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, lse, out, NULL));
    assert_true(out[0] == 1 && out[3] == 4 && lse[0] == 0);
    assert_ok(ra_partial_merge(0, 2, out, lse, out, lse));
}

/* ---- Structs of other versions --------------------------------------------------------------- */

/* An older caller: fields after its size hold anything and must not be read. */
static void older_callers_get_defaults(void **state)
{
    (void)state;
    ra_problem problem;
    ra_plan *plan;
    ra_memory memory = ra_memory_default();
    memset(&problem, 0xee, sizeof problem);
    problem = (ra_problem){ .size = offsetof(ra_problem, value_dim),
                            .q_len = 12,
                            .q_heads = 2,
                            .dim = 4,
                            .value_dim = -17,
                            .scale = NAN };
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_ok(ra_plan_memory(plan, &memory));
    assert_int_equal(memory.shard, 4 * 12 * 2 * 4 * 4); /* value_dim = dim */
    ra_plan_destroy(plan);
    ra_plan_options options = ra_plan_options_default();
    options.size = offsetof(ra_plan_options, kernel);
    options.kernel = "abacus";
    options.ranks = -1;
    problem = good_problem();
    assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
    ra_plan_destroy(plan);
}

/* A newer caller: fields we do not know must be zero. */
static void newer_callers_may_leave_new_fields_alone(void **state)
{
    (void)state;
    struct {
        ra_problem now;
        char later[24];
    } problem = { .now = good_problem() };
    ra_plan *plan = KEPT;
    problem.now.size = sizeof problem;
    assert_ok(ra_plan_create(NULL, &problem.now, NULL, &plan));
    ra_plan_destroy(plan);
    plan = KEPT;
    for (size_t i = 0; i < sizeof problem.later; i++) {
        problem.later[i] = 1;
        assert_fails(RA_ERR_UNSUPPORTED, "ra_problem: a field is set that this library",
                     ra_plan_create(NULL, &problem.now, NULL, &plan));
        assert_ptr_equal(plan, KEPT);
        problem.later[i] = 0;
    }
}

static void newer_options_and_arguments_likewise(void **state)
{
    (void)state;
    struct {
        ra_plan_options now;
        char later[8];
    } options = { .now = ra_plan_options_default() };
    struct {
        ra_group_options now;
        char later[8];
    } group_options = { .now = ra_group_options_default() };
    struct {
        ra_attend_args now;
        char later[8];
    } args;
    struct desk d;
    ra_problem problem = good_problem();
    ra_plan *plan = KEPT;
    ra_group *group = KEPT;
    options.now.size = sizeof options;
    options.later[3] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_plan_options",
                 ra_plan_create(NULL, &problem, &options.now, &plan));
    group_options.now.size = sizeof group_options;
    group_options.later[0] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_group_options",
                 ra_group_create_local(1, &group_options.now, &group));
    assert_ptr_equal(plan, KEPT);
    assert_ptr_equal(group, KEPT);
    desk_open(&d, 0);
    memset(&args, 0, sizeof args);
    args.now = d.attend;
    args.now.size = sizeof args;
    args.later[7] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_attend_args", ra_attend(d.plan, &args.now));
    assert_true(d.out[0] == 5.0f);
    args.later[7] = 0;
    assert_ok(ra_attend(d.plan, &args.now));
    desk_close(&d);
}

/* Results: as much as the caller has room for; its size stays. */
static void results_fit_the_caller(void **state)
{
    (void)state;
    struct {
        ra_memory now;
        char later[16];
    } newer = { .now = ra_memory_default() };
    ra_memory older = ra_memory_default();
    ra_problem problem = good_problem();
    ra_plan *plan;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    older.size = offsetof(ra_memory, state);
    older.state = older.total = 99;
    assert_ok(ra_plan_memory(plan, &older));
    assert_true(older.shard > 0);
    assert_int_equal(older.state, 99);
    assert_int_equal(older.total, 99);
    assert_int_equal(older.size, offsetof(ra_memory, state));
    newer.now.size = sizeof newer;
    memset(newer.later, 7, sizeof newer.later);
    assert_ok(ra_plan_memory(plan, &newer.now));
    assert_int_equal(newer.now.size, sizeof newer);
    assert_true(newer.now.total >= newer.now.shard);
    ra_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test(every_kind_of_part_has_rows),
        cmocka_unit_test(kernels_take_the_dtypes_they_say),
        cmocka_unit_test(parts_of_older_callers),
        cmocka_unit_test(names_of_parts_are_what_options_take),
        cmocka_unit_test(wrong_parts_are_refused),
        cmocka_unit_test(errors_belong_to_their_thread),
        cmocka_unit_test(destroying_nothing_is_allowed),
        cmocka_unit_test(questions_to_nobody_have_answers),
        cmocka_unit_test(null_patterns),
        cmocka_unit_test(null_layouts),
        cmocka_unit_test(absurd_arrays_are_refused),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(wrong_custom_groups_are_refused),
        cmocka_unit_test(wrong_runs_of_groups_are_refused),
        cmocka_unit_test(groups_know_themselves),
        cmocka_unit_test(wrong_joins_are_refused),
        cmocka_unit_test(ranks_share_bytes),
        cmocka_unit_test(threads_come_from_the_environment),
        cmocka_unit_test(pinning_from_the_environment),
        cmocka_unit_test(wrong_problems_are_refused),
        cmocka_unit_test(problems_and_patterns_must_fit),
        cmocka_unit_test(the_largest_dims_are_accepted),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_layouts_of_plans_are_refused),
        cmocka_unit_test(wrong_questions_to_plans_are_refused),
        cmocka_unit_test(a_plan_that_never_ran_tells_zeros),
        cmocka_unit_test(wrong_tensors_are_refused),
        cmocka_unit_test(plans_that_cannot_run_say_so),
        cmocka_unit_test(progress_ends_at_one),
        cmocka_unit_test(progress_can_stop_a_long_run),
        cmocka_unit_test(attention_in_one_call),
        cmocka_unit_test(wrong_states_are_refused),
        cmocka_unit_test(wrong_merges_are_refused),
        cmocka_unit_test(older_callers_get_defaults),
        cmocka_unit_test(newer_callers_may_leave_new_fields_alone),
        cmocka_unit_test(newer_options_and_arguments_likewise),
        cmocka_unit_test(results_fit_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
