/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduce.c - ranks that fold their own keys and add up their states: all get what one rank
 * gets from all keys, with the same bits; a second time allocates nothing; and who does not fit
 * is named. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

#include "support/counter.h"
#include "support/crew.h"
#include "support/mailbox.h"
#include "support/walk.h"

enum { MOST = 5, CHUNK = 4, HEADS = 4, KV_HEADS = 2, DIM = 8, WIDTH = 5, ROOM = 4096 };

/* A decode step: few queries, keys distributed in chunks. */
struct step {
    const char *pattern;
    int ranks;
    int64_t q_len, k_len;
    bool custom; /* messages by callbacks */
    float q[ROOM], k[ROOM], v[ROOM];
    ra_state *states[MOST];
    float data[MOST][ROOM];
    ra_status ends[MOST];
    char said[MOST][1024];
};

static ra_problem problem_of(const struct step *step, const ra_pattern *pattern)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = step->q_len;
    problem.k_len = step->k_len;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    problem.value_dim = WIDTH;
    return problem;
}

static ra_state *make_state(const struct step *step)
{
    ra_pattern *pattern;
    ra_state *state;
    assert_ok(ra_pattern_parse(step->pattern, &pattern));
    ra_problem problem = problem_of(step, pattern);
    assert_ok(ra_state_create(&problem, NULL, &state));
    ra_pattern_destroy(pattern);
    return state;
}

static ra_status fold(struct step *step, ra_state *state, int64_t first, int64_t keys)
{
    ra_const_tensor q = ra_const_tensor_packed(step->q);
    ra_const_tensor k = ra_const_tensor_packed(step->k + first * KV_HEADS * DIM);
    ra_const_tensor v = ra_const_tensor_packed(step->v + first * KV_HEADS * WIDTH);
    return ra_state_fold(state, &q, &k, &v, first, keys);
}

/* Chunks rank, rank + ranks, ...; with few keys some ranks have none. */
static ra_status fold_and_reduce(ra_group *group, void *context)
{
    struct step *step = context;
    int rank = ra_group_rank(group);
    ra_state *state = step->states[rank];
    ra_status status = ra_state_init(state);
    for (int64_t first = rank * CHUNK; first < step->k_len && status == RA_OK;
         first += step->ranks * CHUNK)
        status = fold(step, state, first,
                      first + CHUNK < step->k_len ? CHUNK : step->k_len - first);
    if (status == RA_OK) status = ra_state_reduce(state, group);
    size_t bytes;
    const void *data = ra_state_data(state, &bytes);
    memcpy(step->data[rank], data, bytes);
    return status;
}

struct ring {
    struct mailbox box;
    struct mailbox_rank seats[MOST];
    ra_group *groups[MOST];
};

static void ring_open(struct ring *ring, int ranks, bool custom)
{
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    options.timeout = 20;
    memset(ring, 0, sizeof *ring);
    if (!custom) {
        assert_ok(ra_group_create_local(ranks, &options, ring->groups));
        return;
    }
    mailbox_open(&ring->box, ring->seats, ranks);
    for (int i = 0; i < ranks; i++) {
        ra_transport_callbacks calls = mailbox_callbacks(&ring->seats[i]);
        assert_ok(ra_group_create_custom(ranks, i, &calls, &options, &ring->groups[i]));
    }
}

static void ring_close(struct ring *ring, int ranks, bool custom)
{
    for (int i = 0; i < ranks; i++) ra_group_destroy(ring->groups[i]);
    if (custom) mailbox_close(&ring->box, ring->seats, ranks);
}

static void step_open(struct step *step, const char *pattern, int ranks, int64_t q_len,
                      int64_t k_len)
{
    memset(step, 0, sizeof *step);
    step->pattern = pattern;
    step->ranks = ranks;
    step->q_len = q_len;
    step->k_len = k_len;
    for (int i = 0; i < ROOM; i++) {
        step->q[i] = sinf(0.7f * (float)i);
        step->k[i] = 3.0f * cosf(1.3f * (float)i);
        step->v[i] = sinf((float)i + 0.5f);
    }
    for (int i = 0; i < ranks; i++) step->states[i] = make_state(step);
}

static void step_close(struct step *step)
{
    for (int i = 0; i < step->ranks; i++) ra_state_destroy(step->states[i]);
}

static void expect_one_sum(struct step *step)
{
    float want[ROOM], got[ROOM], want_lse[ROOM], got_lse[ROOM];
    ra_tensor out = ra_tensor_packed(want), sum = ra_tensor_packed(got);
    ra_state *whole = make_state(step);
    assert_ok(fold(step, whole, 0, step->k_len));
    assert_ok(ra_state_finish(whole, &out, want_lse));
    assert_ok(ra_state_finish(step->states[0], &sum, got_lse));
    int64_t rows = step->q_len * HEADS;
    for (int64_t i = 0; i < rows; i++) {
        bool close = isinf(want_lse[i]) ? got_lse[i] == want_lse[i]
                                        : fabsf(got_lse[i] - want_lse[i]) < 1e-5f;
        for (int64_t d = 0; d < WIDTH; d++)
            close &= fabsf(got[i * WIDTH + d] - want[i * WIDTH + d]) < 2e-6f;
        if (!close)
            fail_msg("%s, %d ranks, %lld keys: row %lld is wrong", step->pattern, step->ranks,
                     (long long)step->k_len, (long long)i);
    }
    size_t bytes;
    ra_state_data(whole, &bytes);
    for (int i = 1; i < step->ranks; i++) assert_memory_equal(step->data[i], step->data[0], bytes);
    ra_state_destroy(whole);
}

static void check_step(const char *pattern, int64_t q_len, int64_t k_len, bool custom)
{
    static struct step step;
    for (int ranks = 1; ranks <= MOST; ranks++) {
        struct ring ring;
        step_open(&step, pattern, ranks, q_len, k_len);
        ring_open(&ring, ranks, custom);
        for (int again = 0; again < 2; again++) {
            assert_ok(ra_group_run(ring.groups, ranks, fold_and_reduce, &step));
            expect_one_sum(&step);
        }
        ring_close(&ring, ranks, custom);
        step_close(&step);
        assert_int_equal(ra_allocated_bytes(), 0);
    }
}

static void all_ranks_get_the_sum(void **state)
{
    (void)state;
    for (int custom = 0; custom < 2; custom++) {
        check_step("full", 1, 37, custom);
        check_step("full", 3, 5, custom);      /* most ranks have no keys */
        check_step("causal", 9, 5, custom);    /* some queries see nothing */
        check_step("window:6", 2, 60, custom); /* no query sees the keys of some ranks */
        check_step("full", 0, 8, custom);
    }
}

static void a_second_time_allocates_nothing(void **state)
{
    (void)state;
    static struct step step;
    for (int custom = 0; custom < 2; custom++) {
        struct counter counter;
        struct ring ring;
        counter_install(&counter);
        step_open(&step, "causal", 4, 2, 50);
        ring_open(&ring, 4, custom);
        assert_ok(ra_group_run(ring.groups, 4, fold_and_reduce, &step));
        size_t calls = atomic_load(&counter.calls);
        assert_ok(ra_group_run(ring.groups, 4, fold_and_reduce, &step));
        assert_int_equal(atomic_load(&counter.calls), calls + 1); /* the list of threads */
        ring_close(&ring, 4, custom);
        /* A smaller group needs less of the same. */
        step.ranks = 3;
        ring_open(&ring, 3, custom);
        assert_ok(ra_group_run(ring.groups, 3, fold_and_reduce, &step));
        expect_one_sum(&step);
        step.ranks = 4;
        ring_close(&ring, 3, custom);
        step_close(&step);
        counter_remove(&counter);
    }
}

/* Folding and summing anew, whatever the pattern. */
static void folding_allocates_nothing(void **state)
{
    (void)state;
    static struct step step;
    char sample[96];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        struct counter counter;
        struct ring ring;
        counter_install(&counter);
        step_open(&step, sample, 3, 2, 50);
        ring_open(&ring, 3, false);
        assert_ok(ra_group_run(ring.groups, 3, fold_and_reduce, &step));
        size_t calls = atomic_load(&counter.calls);
        assert_ok(ra_group_run(ring.groups, 3, fold_and_reduce, &step));
        if (atomic_load(&counter.calls) != calls + 1) /* the list of threads */
            fail_msg("%s: %zu allocations", sample, atomic_load(&counter.calls) - calls - 1);
        expect_one_sum(&step);
        ring_close(&ring, 3, false);
        step_close(&step);
        counter_remove(&counter);
    }
}

/* A plan of the same group before, between and after: no message is taken for another. */
static ra_status among_plans(ra_group *group, void *context)
{
    float in[16] = { 0 }, out[16];
    ra_problem problem = ra_problem_default();
    problem.q_len = 2 * ra_group_ranks(group);
    problem.q_heads = 1;
    problem.dim = DIM;
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(in);
    args.out = ra_tensor_packed(out);
    ra_plan *plan;
    ra_status status = ra_plan_create(group, &problem, NULL, &plan);
    if (status != RA_OK) return status;
    for (int i = 0; i < 3 && status == RA_OK; i++) {
        if (i > 0) status = ra_attend(plan, &args);
        if (status == RA_OK) status = fold_and_reduce(group, context);
    }
    ra_plan_destroy(plan);
    return status;
}

static void plans_and_states_share_a_group(void **state)
{
    (void)state;
    static struct step step;
    struct ring ring;
    step_open(&step, "full", 3, 2, 31);
    ring_open(&ring, 3, false);
    assert_ok(ra_group_run(ring.groups, 3, among_plans, &step));
    expect_one_sum(&step);
    ring_close(&ring, 3, false);
    step_close(&step);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static ra_status reduce_and_note(ra_group *group, void *context)
{
    struct step *step = context;
    int rank = ra_group_rank(group);
    step->ends[rank] = ra_state_reduce(step->states[rank], group);
    snprintf(step->said[rank], sizeof step->said[rank], "%s", ra_last_error());
    return step->ends[rank];
}

static void expect_all_fail(struct step *step, ra_status cause, const char *words, bool custom)
{
    struct ring ring;
    ring_open(&ring, step->ranks, custom);
    assert_fails(cause, words, ra_group_run(ring.groups, step->ranks, reduce_and_note, step));
    for (int i = 0; i < step->ranks; i++)
        if (step->ends[i] == RA_OK || !strstr(step->said[i], "rank"))
            fail_msg("rank %d: %s: %s", i, ra_status_name(step->ends[i]), step->said[i]);
    ring_close(&ring, step->ranks, custom);
}

static void other_shapes_are_named(void **state)
{
    (void)state;
    static struct step step, other;
    for (int custom = 0; custom < 2; custom++) {
        step_open(&step, "full", 3, 2, 16);
        step_open(&other, "full", 1, 3, 16);
        ra_state *mine = step.states[2];
        step.states[2] = other.states[0];
        expect_all_fail(&step, RA_ERR_MISMATCH, "has another number of queries", custom);
        step.states[2] = mine;
        step_close(&step);
        step_close(&other);
    }
}

/* A rank that cannot even begin informs the others, which would wait for it in vain. */
static void a_rank_without_a_state_ends_it_for_all(void **state)
{
    (void)state;
    static struct step step;
    step_open(&step, "full", 3, 2, 16);
    ra_state *mine = step.states[1];
    struct ring ring;
    step.states[1] = NULL;
    ring_open(&ring, 3, false);
    assert_fails(RA_ERR_ARGUMENT, "state: NULL argument",
                 ra_group_run(ring.groups, 3, reduce_and_note, &step));
    assert_int_equal(step.ends[0], RA_ERR_PEER);
    assert_non_null(strstr(step.said[0], "rank 1 failed: state: NULL argument"));
    step.states[1] = mine;
    assert_int_equal(ra_group_run(ring.groups, 3, reduce_and_note, &step), RA_ERR_PEER);
    ring_close(&ring, 3, false);
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_state_reduce(mine, NULL));
    step_close(&step);
}

static void without_memory_all_are_told(void **state)
{
    (void)state;
    static struct step step;
    for (int left = 1; left < 3; left++) { /* the first call is ra_group_run()'s own */
        struct counter counter;
        struct ring ring;
        counter_install(&counter);
        step_open(&step, "full", 3, 2, 16);
        ring_open(&ring, 3, false);
        atomic_store(&counter.left, left);
        assert_fails(RA_ERR_MEMORY, "could not get",
                     ra_group_run(ring.groups, 3, reduce_and_note, &step));
        for (int i = 0; i < 3; i++) assert_int_not_equal(step.ends[i], RA_OK);
        atomic_store(&counter.left, -1);
        ring_close(&ring, 3, false);
        step_close(&step);
        counter_remove(&counter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_get_the_sum),
        cmocka_unit_test(a_second_time_allocates_nothing),
        cmocka_unit_test(folding_allocates_nothing),
        cmocka_unit_test(plans_and_states_share_a_group),
        cmocka_unit_test(other_shapes_are_named),
        cmocka_unit_test(a_rank_without_a_state_ends_it_for_all),
        cmocka_unit_test(without_memory_all_are_told),
    };
    crew_watchdog(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
