/* SPDX-License-Identifier: Apache-2.0 */
/* test_fail.c - a rank that fails, is aborted or is stopped ends all others quickly, with a
 * sentence that says who and why; and a group that has failed refuses to go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/crew.h"
#include "support/faulty.h"
#include "transport/transport.h"

#define QUICKLY 3.0 /* seconds; the timeout of these groups is far longer */

static ra_group_options patient(void)
{
    ra_group_options options = ra_group_options_default();
    options.timeout = 60;
    options.threads = 1;
    return options;
}

static void expect_quick(const struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++)
        if (crew->at[rank].seconds > QUICKLY) crew_fail(crew, "too late");
}

/* Runs with this script on `broken` and returns how often it posted and waited. */
static struct faulty run_broken(struct crew *crew, const struct crew_case *is, int broken,
                                const struct faulty_script *script)
{
    struct faulty faulty;
    ra_group_options options = patient();
    crew_open(crew, is, &options);
    crew->run_again = script->fail_at_post || script->fail_at_wait;
    crew->patience = QUICKLY;
    faulty_wrap(&faulty, crew->at[broken].group, script);
    crew_run(crew);
    crew_close(crew);
    return faulty;
}

/* The broken rank says what broke; the others name it, with its words. */
static void expect_failure_is_told(const struct crew_case *is, int broken,
                                   const struct faulty_script *script, bool all_hear)
{
    struct crew crew;
    struct faulty faulty = run_broken(&crew, is, broken, script);
    char who[64], hop[64];
    snprintf(who, sizeof who, "rank %d failed: ", broken);
    snprintf(hop, sizeof hop, "rank %d, hop %d: ", broken, faulty.hop);
    crew_expect(&crew, broken, RA_ERR_SYSTEM, hop);
    crew_expect(&crew, broken, RA_ERR_SYSTEM, FAULTY_WORDS);
    for (int rank = 0; rank < crew.is.ranks; rank++) {
        if (crew.at[rank].again != RA_ERR_PEER) crew_fail(&crew, "a failed group ran again");
        if (rank == broken || (!all_hear && crew.at[rank].status == RA_OK)) continue;
        crew_expect(&crew, rank, RA_ERR_PEER, who);
        crew_expect(&crew, rank, RA_ERR_PEER, hop);
        crew_expect(&crew, rank, RA_ERR_PEER, FAULTY_WORDS);
        char self[32];
        snprintf(self, sizeof self, "rank %d, hop ", rank);
        crew_expect(&crew, rank, RA_ERR_PEER, self);
    }
    expect_quick(&crew);
}

/* How often the rank posts and waits in a run without faults. */
static struct faulty count_calls(const struct crew_case *is, int rank, bool forward_only)
{
    struct crew crew;
    struct crew_case run = *is;
    run.forward_only = forward_only;
    struct faulty calls = run_broken(&crew, &run, rank, &(struct faulty_script){ 0 });
    crew_expect_ok(&crew);
    return calls;
}

/* Fails at every post and every wait in turn. In the forward run all ranks hear of it; towards the
 * end of the backward run some need nothing of this rank any more. */
static void walk_calls(const struct crew_case *is, int broken)
{
    struct faulty calls = count_calls(is, broken, false), forward = count_calls(is, broken, true);
    for (int i = 1; i <= calls.posts; i++)
        expect_failure_is_told(is, broken, &(struct faulty_script){ .fail_at_post = i },
                               i <= forward.posts);
    for (int i = 1; i <= calls.waits; i++)
        expect_failure_is_told(is, broken, &(struct faulty_script){ .fail_at_wait = i },
                               i <= forward.waits);
}

static void a_failure_at_each_call_is_told(void **state)
{
    (void)state;
    int most = crew_long() ? 6 : 4;
    for (int ranks = 2; ranks <= most; ranks++)
        for (int broken = 0; broken < ranks; broken += crew_long() ? 1 : ranks - 1) {
            walk_calls(&(struct crew_case){ .ranks = ranks, .strategy = "ring" }, broken);
            walk_calls(&(struct crew_case){ .ranks = ranks, .strategy = "allgather" }, broken);
            walk_calls(&(struct crew_case){ .ranks = ranks, .strategy = "2d", .q_heads = 2 },
                       broken);
            /* Keys go directly to their readers, and every rank reads from every other. */
            walk_calls(&(struct crew_case){ .ranks = ranks, .pattern = "dilated:37/2" }, broken);
        }
}

/* Other ranks are late or in another order when it happens. */
static void a_failure_among_stragglers_is_told(void **state)
{
    (void)state;
    static const struct faulty_script late = { .seed = 9, .delay_us = 500, .reorder = true };
    for (int i = 1; i <= (crew_long() ? 40 : 8); i++) {
        struct crew crew;
        struct faulty faulty[3];
        ra_group_options options = patient();
        struct faulty_script broken = late;
        broken.fail_at_wait = 1 + i % 3;
        crew_open(&crew, &(struct crew_case){ .partition = "striped" }, &options);
        for (int rank = 0; rank < 3; rank++)
            faulty_wrap(&faulty[rank], crew.at[rank].group, rank == i % 3 ? &broken : &late);
        crew_run(&crew);
        for (int rank = 0; rank < 3; rank++)
            crew_expect(&crew, rank, rank == i % 3 ? RA_ERR_SYSTEM : RA_ERR_PEER, FAULTY_WORDS);
        crew_close(&crew);
    }
}

/* ---- Aborted from outside -------------------------------------------------------------------- */

#define REASON "somebody lost interest"

static void expect_aborted(const struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++) {
        crew_expect(crew, rank, RA_ERR_ABORTED, REASON);
        if (crew->at[rank].again != RA_ERR_ABORTED) crew_fail(crew, "an aborted group ran again");
    }
}

/* The ranks run the same problem over and over until another thread ends it. */
static void an_abort_ends_all_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < (crew_long() ? 40 : 8); i++) {
        struct crew crew;
        ra_group_options options = patient();
        options.threads = 1 + i % 2;
        crew_open(&crew,
                  &(struct crew_case){ .strategy = i % 2 ? "allgather" : "ring",
                                       .repeat = 1 << 30,
                                       .forward_only = i % 4 < 2 },
                  &options);
        crew.run_again = true;
        crew_start(&crew);
        crew_sleep(0.01 + 0.003 * i);
        double start = crew_now();
        ra_group_abort(crew.at[i % 3].group, REASON);
        crew_join(&crew);
        if (crew_now() - start > QUICKLY) crew_fail(&crew, "too late");
        expect_aborted(&crew);
        crew_close(&crew);
    }
}

/* Two ranks wait for one that has not come, for up to a minute; the abort wakes them. */
static void an_abort_ends_ranks_that_wait(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = patient();
    crew_open(&crew, &(struct crew_case){ 0 }, &options);
    crew.run_again = true;
    crew_start_rank(&crew, 0);
    crew_start_rank(&crew, 2);
    crew_sleep(0.05);
    ra_group_abort(crew.at[1].group, REASON);
    crew_start_rank(&crew, 1);
    crew_join(&crew);
    expect_aborted(&crew);
    expect_quick(&crew);
    crew_close(&crew);
}

static void an_abort_before_the_run_refuses_it(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct crew crew;
        ra_group_options options = patient();
        crew_open(&crew, &(struct crew_case){ .ranks = ranks }, &options);
        crew.run_again = true;
        ra_group_abort(crew.at[0].group, REASON);
        ra_group_abort(crew.at[ranks - 1].group, "a second reason, which nobody hears");
        crew_run(&crew);
        expect_aborted(&crew);
        crew_close(&crew);
    }
    ra_group_abort(NULL, REASON);
}

static void an_abort_without_reason_is_an_abort(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = patient();
    crew_open(&crew, &(struct crew_case){ .ranks = 2 }, &options);
    ra_group_abort(crew.at[0].group, NULL);
    crew_run(&crew);
    crew_expect(&crew, 0, RA_ERR_ABORTED, "no reason");
    crew_expect(&crew, 1, RA_ERR_ABORTED, "no reason");
    crew_close(&crew);
}

/* ---- Stopped from inside --------------------------------------------------------------------- */

static int stop(void *context, double done)
{
    (void)context;
    return done > 0.01;
}

/* A pause, so that progress is worth telling. */
static void pause_a_little(void *context, const ra_trace_event *event)
{
    (void)context, (void)event;
    crew_sleep(0.03);
}

static void a_progress_callback_ends_all_ranks(void **state)
{
    (void)state;
    for (int stopper = 0; stopper < 3; stopper++) {
        struct crew crew;
        ra_group_options options = patient();
        options.trace = pause_a_little;
        crew_open(&crew, &(struct crew_case){ .repeat = 1000 }, &options);
        crew.at[stopper].progress = stop;
        crew_run(&crew);
        char who[64];
        snprintf(who, sizeof who, "rank %d: stopped by its progress callback", stopper);
        for (int rank = 0; rank < 3; rank++) crew_expect(&crew, rank, RA_ERR_ABORTED, who);
        expect_quick(&crew);
        crew_close(&crew);
    }
}

/* ---- ra_group_run ---------------------------------------------------------------------------- */

/* Rank 1 fails before it would attend; the others attend. */
static ra_status fail_or_attend(ra_group *group, void *context)
{
    (void)context;
    if (ra_group_rank(group) == 1) return ra_transport_error(RA_ERR_SYSTEM, "rank 1 lost its data");
    float x[64] = { 0 };
    ra_problem problem = ra_problem_default();
    problem.q_len = 6;
    problem.q_heads = 1;
    problem.dim = 4;
    ra_plan *plan;
    RA__TRY(ra_plan_create(group, &problem, NULL, &plan));
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(x);
    args.out = ra_tensor_packed(x + 32);
    ra_status status = ra_attend(plan, &args);
    ra_plan_destroy(plan);
    return status;
}

static void a_body_that_fails_ends_the_others(void **state)
{
    (void)state;
    ra_group *groups[3];
    ra_group_options options = patient();
    assert_int_equal(ra_group_create_local(3, &options, groups), RA_OK);
    double start = crew_now();
    assert_int_equal(ra_group_run(groups, 3, fail_or_attend, NULL), RA_ERR_SYSTEM);
    assert_string_equal(ra_last_error(), "rank 1 lost its data");
    assert_true(crew_now() - start < QUICKLY);
    for (int rank = 0; rank < 3; rank++) ra_group_destroy(groups[rank]);
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* ---- The local transport itself -------------------------------------------------------------- */

static const struct ra__link_options minute = { .timeout = 60 };

static void another_size_is_an_error(void **state)
{
    (void)state;
    const struct ra__transport *local = &ra__transport_local;
    for (int sender_first = 0; sender_first < 2; sender_first++) {
        void *links[2];
        char from[8] = "ABCDEFG", to[8] = "";
        assert_int_equal(local->open(2, &minute, links), RA_OK);
        struct ra__message send = { .peer = 1, .tag = 5, .hop = 3, .data = from, .bytes = 8 };
        struct ra__message recv = { .peer = 0, .tag = 5, .hop = 3, .data = to, .bytes = 4 };
        struct ra__round out = { .sends = &send, .send_count = 1, .hop = 3 };
        struct ra__round in = { .recvs = &recv, .recv_count = 1, .hop = 3 };
        void *first = links[sender_first ? 0 : 1], *second = links[sender_first ? 1 : 0];
        struct ra__round *early = sender_first ? &out : &in, *late = sender_first ? &in : &out;
        assert_int_equal(local->post(first, early), RA_OK);
        assert_int_equal(local->post(second, late), RA_ERR_MISMATCH);
        assert_non_null(
            strstr(ra_last_error(), "hop 3: rank 0 sends 8 bytes where rank 1 expects 4"));
        assert_int_equal(local->wait(first, early), RA_ERR_PEER);
        assert_int_equal(local->poll(second), RA_ERR_PEER);
        assert_string_equal(to, "");
        local->close(links[0]);
        local->close(links[1]);
    }
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* The n-th send of a tag matches the n-th receive of it, whichever is posted first and whatever is
 * between. */
static void messages_meet_in_order(void **state)
{
    (void)state;
    const struct ra__transport *local = &ra__transport_local;
    void *links[2];
    int from[4] = { 10, 11, 12, 13 }, to[4] = { 0 };
    static const int tags[4] = { 7, 8, 7, 8 };
    struct ra__message sends[4], recvs[4];
    assert_int_equal(local->open(2, &minute, links), RA_OK);
    for (int i = 0; i < 4; i++) {
        sends[i] = (struct ra__message){
            .peer = 1, .tag = tags[i], .data = &from[i], .bytes = sizeof(int)
        };
        recvs[i] = (struct ra__message){
            .peer = 0, .tag = tags[3 - i], .data = &to[i], .bytes = sizeof(int)
        };
    }
    struct ra__round out = { .sends = sends, .send_count = 4 },
                     in = { .recvs = recvs, .recv_count = 4 };
    assert_int_equal(local->post(links[1], &in), RA_OK);
    assert_int_equal(local->post(links[0], &out), RA_OK);
    assert_int_equal(local->wait(links[0], &out), RA_OK);
    assert_int_equal(local->wait(links[1], &in), RA_OK);
    assert_int_equal(to[0], 11);
    assert_int_equal(to[1], 10);
    assert_int_equal(to[2], 13);
    assert_int_equal(to[3], 12);
    local->close(links[0]);
    local->close(links[1]);
}

/* Bytes that change between post and delivery are found by the rank that delivers, with both
 * checksums; without checksums they arrive. */
static void changed_bytes_are_an_error(void **state)
{
    (void)state;
    const struct ra__transport *local = &ra__transport_local;
    for (int checksum = 0; checksum < 2; checksum++) {
        void *links[2];
        char from[100] = "sent", to[100] = "";
        const struct ra__link_options options = { .timeout = 60, .checksum = checksum };
        struct ra__message send = { .peer = 1, .tag = 5, .hop = 3, .data = from, .bytes = 100 };
        struct ra__message recv = { .peer = 0, .tag = 5, .hop = 3, .data = to, .bytes = 100 };
        struct ra__round out = { .sends = &send, .send_count = 1, .hop = 3 };
        struct ra__round in = { .recvs = &recv, .recv_count = 1, .hop = 3 };
        assert_int_equal(local->open(2, &options, links), RA_OK);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(local->post(links[0], &out), RA_OK);
            if (round == 1) from[99] ^= 1;
            ra_status status = local->post(links[1], &in);
            if (!checksum || round == 0) {
                assert_int_equal(status, RA_OK);
                assert_memory_equal(to, from, sizeof from);
                assert_int_equal(local->wait(links[0], &out), RA_OK);
                assert_int_equal(local->wait(links[1], &in), RA_OK);
                continue;
            }
            assert_int_equal(status, RA_ERR_CORRUPT);
            char words[160];
            snprintf(
                words, sizeof words,
                "rank 1, hop 3: 100 bytes from rank 0 changed on their way to rank 1: checksum "
                "%016" PRIx64 " there, %016" PRIx64 " here",
                send.sum, recv.sum);
            assert_string_equal(ra_last_error(), words);
            assert_true(send.sum != recv.sum);
            assert_int_equal(local->poll(links[0]), RA_ERR_PEER);
            assert_non_null(strstr(ra_last_error(), "changed on their way"));
        }
        local->close(links[0]);
        local->close(links[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_at_each_call_is_told),
        cmocka_unit_test(a_failure_among_stragglers_is_told),
        cmocka_unit_test(an_abort_ends_all_ranks),
        cmocka_unit_test(an_abort_ends_ranks_that_wait),
        cmocka_unit_test(an_abort_before_the_run_refuses_it),
        cmocka_unit_test(an_abort_without_reason_is_an_abort),
        cmocka_unit_test(a_progress_callback_ends_all_ranks),
        cmocka_unit_test(a_body_that_fails_ends_the_others),
        cmocka_unit_test(another_size_is_an_error),
        cmocka_unit_test(messages_meet_in_order),
        cmocka_unit_test(changed_bytes_are_an_error),
    };
    crew_watchdog(crew_long() ? 500 : 110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
