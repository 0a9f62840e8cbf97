/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - an allocator that fails at the n-th call, for every n: the whole API ends in
 * RA_ERR_MEMORY, has no memory allocated afterwards, and no rank waits for one that could not go
 * on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/crew.h"
#include "support/test.h"
#include "support/mailbox.h"

enum { RANKS = 3, TOKENS = 19, HEADS = 2, DIM = 4, FLOATS = TOKENS * HEADS * DIM };

/* ---- The allocator --------------------------------------------------------------------------- */

static struct {
    atomic_long calls, pieces;
    atomic_llong bytes;
    long fail_at;  /* this call fails; 0 = none */
    bool for_good; /* and all after it */
} memory;

static void *failing_alloc(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    long call = atomic_fetch_add(&memory.calls, 1) + 1;
    if (memory.fail_at && (call == memory.fail_at || (memory.for_good && call > memory.fail_at)))
        return NULL;
    void *piece = NULL;
    if (posix_memalign(&piece, alignment, bytes)) return NULL;
    memset(piece, 0xa5, bytes);
    atomic_fetch_add(&memory.pieces, 1);
    atomic_fetch_add(&memory.bytes, (long long)bytes);
    return piece;
}

static void failing_free(void *context, void *piece, size_t bytes)
{
    (void)context;
    atomic_fetch_sub(&memory.pieces, 1);
    atomic_fetch_sub(&memory.bytes, (long long)bytes);
    free(piece);
}

static void use_failing_allocator(void)
{
    ra_allocator allocator = ra_allocator_default();
    allocator.alloc = failing_alloc;
    allocator.free = failing_free;
    assert_int_equal(ra_allocator_set(&allocator), RA_OK);
}

/* ---- What is tried --------------------------------------------------------------------------- */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        ra_status try_ = (call);                                                                   \
        if (try_ != RA_OK) return try_;                                                            \
    } while (0)

struct scenario {
    const char *strategy, *partition;
    const char *text, *order_text; /* of the pattern, and of its order or NULL */
    const ra_order *order;
    bool bitmap; /* is added to the pattern */
    bool custom; /* messages by callbacks instead of the local transport */
    const ra_pattern *pattern;
    const ra_layout *layout;
    bool closed_wrong; /* a transport's close was called twice, or never */
};

static ra_problem make_problem(const struct scenario *scenario)
{
    ra_problem problem = ra_problem_default();
    static const float slopes[HEADS] = { 0.5f, 0.25f };
    problem.pattern = scenario->pattern;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    problem.order = scenario->order;
    problem.alibi = slopes;
    return problem;
}

/* Forward and backward twice: the second time nothing is allocated. */
static ra_status run_twice(ra_plan *plan)
{
    float in[FLOATS], out[FLOATS], lse[TOKENS * HEADS], dq[FLOATS], dk[FLOATS], dv[FLOATS];
    for (int i = 0; i < FLOATS; i++) in[i] = 0.01f * (float)(i % 17);
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(in);
    args.out = ra_tensor_packed(out);
    args.lse = lse;
    ra_gradient_args back = ra_gradient_args_default();
    back.q = back.k = back.v = back.dout = ra_const_tensor_packed(in);
    back.out = ra_const_tensor_packed(out);
    back.lse = lse;
    back.dq = ra_tensor_packed(dq);
    back.dk = ra_tensor_packed(dk);
    back.dv = ra_tensor_packed(dv);
    for (int i = 0; i < 2; i++) {
        TRY(ra_attend(plan, &args));
        TRY(ra_gradient(plan, &back));
    }
    return RA_OK;
}

/* The second sum of a state allocates nothing. */
static ra_status add_up(ra_group *group, const struct scenario *scenario)
{
    ra_problem problem = make_problem(scenario);
    ra_state *state;
    problem.order = NULL; /* for plans only */
    TRY(ra_state_create(&problem, NULL, &state));
    ra_status status = ra_state_reduce(state, group);
    if (status == RA_OK) status = ra_state_reduce(state, group);
    ra_state_destroy(state);
    return status;
}

static ra_status rank_body(ra_group *group, void *context)
{
    const struct scenario *scenario = context;
    ra_problem problem = make_problem(scenario);
    ra_plan_options options = ra_plan_options_default();
    options.strategy = scenario->strategy;
    options.layout = scenario->layout;
    options.partition = scenario->layout ? NULL : scenario->partition;
    options.backward = 1;
    ra_plan *plan;
    TRY(ra_plan_create(group, &problem, &options, &plan));
    ra_status status = run_twice(plan);
    ra_plan_destroy(plan);
    return status == RA_OK ? add_up(group, scenario) : status;
}

static ra_status run_local(const struct scenario *scenario)
{
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.threads = 2;
    options.pool_threshold = 1;
    TRY(ra_group_create_local(RANKS, &options, groups));
    ra_status status = ra_group_run(groups, RANKS, rank_body, (void *)scenario);
    for (int rank = 0; rank < RANKS; rank++) ra_group_destroy(groups[rank]);
    return status;
}

static ra_status run_custom(struct scenario *scenario)
{
    struct mailbox box;
    struct mailbox_rank ranks[RANKS];
    ra_group *groups[RANKS] = { NULL };
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    mailbox_open(&box, ranks, RANKS);
    ra_status status = RA_OK;
    for (int rank = 0; rank < RANKS && status == RA_OK; rank++) {
        ra_transport_callbacks calls = mailbox_callbacks(&ranks[rank]);
        status = ra_group_create_custom(RANKS, rank, &calls, &options, &groups[rank]);
    }
    if (status == RA_OK) status = ra_group_run(groups, RANKS, rank_body, scenario);
    for (int rank = 0; rank < RANKS; rank++) {
        ra_group_destroy(groups[rank]);
        /* Only ra_group_destroy() closes: a group that was not made leaves the context alone. */
        scenario->closed_wrong |= ranks[rank].closes != (groups[rank] != NULL);
    }
    mailbox_close(&box, ranks, RANKS);
    return status;
}

static ra_status run_group(struct scenario *scenario)
{
    ra_layout *layout;
    TRY(ra_layout_create(scenario->partition, TOKENS, RANKS, scenario->pattern, &layout));
    scenario->layout = layout;
    ra_status status = scenario->custom ? run_custom(scenario) : run_local(scenario);
    ra_layout_destroy(layout);
    scenario->layout = NULL;
    return status == RA_OK && !scenario->custom ? run_local(scenario) : status;
}

static ra_status run_states(const struct scenario *scenario)
{
    ra_problem problem = make_problem(scenario);
    problem.order = NULL; /* for plans only */
    ra_state *front = NULL, *back = NULL;
    float in[FLOATS] = { 0 }, out[FLOATS];
    ra_const_tensor q = ra_const_tensor_packed(in);
    ra_tensor o = ra_tensor_packed(out);
    ra_status status = ra_state_create(&problem, NULL, &front);
    if (status == RA_OK) status = ra_state_create(&problem, NULL, &back);
    if (status == RA_OK) status = ra_state_fold(front, &q, &q, &q, 0, 11);
    if (status == RA_OK) status = ra_state_fold(back, &q, &q, &q, 11, TOKENS - 11);
    if (status == RA_OK) status = ra_state_merge(front, back);
    if (status == RA_OK) status = ra_state_finish(front, &o, NULL);
    ra_state_destroy(front);
    ra_state_destroy(back);
    return status;
}

static ra_status make_orders(void)
{
    static const int64_t positions[] = { 2, 0, 1 };
    ra_order *order;
    TRY(ra_order_parse("hilbert:4x5", TOKENS, &order));
    ra_order_destroy(order);
    TRY(ra_order_custom(positions, 3, &order));
    ra_order_destroy(order);
    return RA_OK;
}

static ra_status make_custom_layout(void)
{
    static const ra_run runs[] = { { 0, 2, 10 }, { 1, 4, 5 }, { 3, 4, 4 } };
    static const int64_t counts[] = { 1, 1, 1 };
    ra_layout *layout;
    TRY(ra_layout_create_custom(TOKENS, RANKS, runs, counts, &layout));
    ra_layout_destroy(layout);
    return RA_OK;
}

static ra_status run_with_pattern(struct scenario *scenario, ra_pattern *pattern)
{
    static const int64_t bounds[] = { 0, 5, 5, TOKENS };
    TRY(ra_pattern_set_documents(pattern, bounds, 4));
    TRY(make_custom_layout());
    TRY(make_orders());
    scenario->pattern = pattern;
    TRY(run_states(scenario));
    if (!scenario->order_text) return run_group(scenario);
    ra_order *order;
    TRY(ra_order_parse(scenario->order_text, TOKENS, &order));
    scenario->order = order;
    ra_status status = run_group(scenario);
    ra_order_destroy(order);
    scenario->order = NULL;
    return status;
}

static ra_status run_scenario(struct scenario *scenario)
{
    enum { BLOCKS = 10 };
    static const uint8_t bitmap[HEADS * BLOCKS * BLOCKS] = { [3] = 1, [117] = 1 };
    ra_pattern *pattern, *window;
    TRY(ra_pattern_window(3, 1, &window));
    ra_pattern_destroy(window);
    TRY(ra_pattern_parse(scenario->text, &pattern));
    ra_status status = scenario->bitmap ? ra_pattern_add_bitmap(pattern, HEADS, BLOCKS, bitmap)
                                        : RA_OK;
    if (status == RA_OK) status = run_with_pattern(scenario, pattern);
    ra_pattern_destroy(pattern);
    return status;
}

/* ---- The tests ------------------------------------------------------------------------------- */

static void expect_nothing_held(long n)
{
    if (ra_allocated_bytes() || atomic_load(&memory.pieces) || atomic_load(&memory.bytes))
        fail_msg("call %ld failed, and %zu bytes are still held", n, ra_allocated_bytes());
}

/* n = 1, 2, 3, ... until the scenario ends before its n-th call. Returns the number of calls. */
static long fail_at_each_call(struct scenario scenario, bool for_good)
{
    use_failing_allocator();
    for (long n = 1;; n++) {
        atomic_store(&memory.calls, 0);
        memory.fail_at = n;
        memory.for_good = for_good;
        ra_status status = run_scenario(&scenario);
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s", ra_last_error());
        expect_nothing_held(n);
        memory.fail_at = 0;
        if (atomic_load(&memory.calls) < n) {
            assert_int_equal(status, RA_OK);
            assert_int_equal(ra_allocator_set(NULL), RA_OK);
            return n - 1;
        }
        if (status != RA_ERR_MEMORY)
            fail_msg("%s, %s: call %ld failed, but the end was %s: %s", scenario.strategy,
                     scenario.custom ? "custom" : "local", n, ra_status_name(status), sentence);
        if (scenario.closed_wrong)
            fail_msg("call %ld failed, and a transport was closed too often", n);
    }
}

static void expect_every_call_may_fail(bool custom)
{
    for (int for_good = 0; for_good < 2; for_good++) {
        struct scenario ring = { .strategy = "ring",
                                 .partition = "zigzag;perdoc",
                                 .text = "causal;docs=0,9,19",
                                 .custom = custom };
        struct scenario gather = { .strategy = "allgather",
                                   .partition = "striped",
                                   .text = "causal;docs=0,9,19",
                                   .custom = custom };
        struct scenario straight = { .strategy = "ring",
                                     .partition = "zigzag",
                                     .text = "dilated:4/1,19/2;causal;docs=0,9,19",
                                     .order_text = "hilbert",
                                     .custom = custom };
        struct scenario blocks = { .strategy = "ring",
                                   .partition = "striped",
                                   .text = "blocks:2;random=0.5;levels=2/1;docs=0,9,19",
                                   .bitmap = true,
                                   .custom = custom };
        struct scenario team = { .strategy = for_good ? "ulysses" : "auto",
                                 .partition = "striped",
                                 .text = "causal;docs=0,9,19",
                                 .custom = custom };
        assert_true(fail_at_each_call(ring, for_good) > 50);
        assert_true(fail_at_each_call(team, for_good) > 50);
        assert_true(fail_at_each_call(gather, for_good) > 50);
        assert_true(fail_at_each_call(custom == for_good ? straight : blocks, for_good) > 50);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    expect_every_call_may_fail(false);
}

static void every_allocation_may_fail_with_callbacks(void **state)
{
    (void)state;
    expect_every_call_may_fail(true);
}

static ra_status measure_rank(ra_group *group, void *context)
{
    struct scenario scenario = { .strategy = context };
    ra_problem problem = make_problem(&scenario);
    ra_plan_options options = ra_plan_options_default();
    ra_machine machine = ra_machine_default();
    options.backward = 1;
    return ra_group_measure(group, &problem, &options, &machine);
}

static ra_status run_measuring(void)
{
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    TRY(ra_group_create_local(RANKS, &options, groups));
    ra_status status = ra_group_run(groups, RANKS, measure_rank, "ring");
    for (int rank = 0; rank < RANKS; rank++) ra_group_destroy(groups[rank]);
    return status;
}

static void every_allocation_of_a_measurement_may_fail(void **state)
{
    (void)state;
    ra_status status = RA_ERR_MEMORY;
    use_failing_allocator();
    for (memory.fail_at = 1; status != RA_OK; memory.fail_at++) {
        atomic_store(&memory.calls, 0);
        status = run_measuring();
        expect_nothing_held(memory.fail_at);
        if (atomic_load(&memory.calls) >= memory.fail_at) assert_int_equal(status, RA_ERR_MEMORY);
        else assert_int_equal(status, RA_OK);
    }
    assert_true(memory.fail_at > 50);
    memory.fail_at = 0;
    assert_int_equal(ra_allocator_set(NULL), RA_OK);
}

/* A plan's runs allocate nothing: with no memory left at all they still succeed. */
static ra_status run_without_memory(ra_group *group, void *context)
{
    struct scenario scenario = { .strategy = context };
    ra_problem problem = make_problem(&scenario);
    ra_plan_options options = ra_plan_options_default();
    options.strategy = scenario.strategy;
    options.backward = 1;
    ra_plan *plan;
    TRY(ra_plan_create(group, &problem, &options, &plan));
    TRY(run_twice(plan));
    long before = atomic_load(&memory.calls);
    ra_status status = run_twice(plan);
    if (atomic_load(&memory.calls) != before)
        status = ra_transport_error(RA_ERR_SYSTEM, "a run has allocated memory");
    ra_plan_destroy(plan);
    return status;
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather", "ulysses" };
    use_failing_allocator();
    for (int s = 0; s < 3; s++) {
        ra_group *group;
        assert_int_equal(ra_group_create_local(1, NULL, &group), RA_OK);
        assert_int_equal(ra_group_run(&group, 1, run_without_memory, (void *)strategies[s]), RA_OK);
        ra_group_destroy(group);
    }
    assert_int_equal(ra_allocator_set(NULL), RA_OK);
}

static void an_allocator_is_not_changed_under_a_handle(void **state)
{
    (void)state;
    ra_pattern *pattern;
    ra_allocator allocator = ra_allocator_default();
    assert_int_equal(ra_allocator_set(&allocator), RA_ERR_ARGUMENT);
    assert_int_equal(ra_pattern_full(&pattern), RA_OK);
    allocator.alloc = failing_alloc;
    allocator.free = failing_free;
    assert_int_equal(ra_allocator_set(&allocator), RA_ERR_ARGUMENT);
    assert_int_equal(ra_allocator_set(NULL), RA_ERR_ARGUMENT);
    ra_pattern_destroy(pattern);
    assert_int_equal(ra_allocator_set(&allocator), RA_OK);
    assert_int_equal(ra_allocator_set(NULL), RA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_may_fail_with_callbacks),
        cmocka_unit_test(every_allocation_of_a_measurement_may_fail),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(an_allocator_is_not_changed_under_a_handle),
    };
    crew_watchdog(test_slow() || crew_long() ? 800 : 270);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
