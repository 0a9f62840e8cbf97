/* SPDX-License-Identifier: Apache-2.0 */
/* test_custom.c - messages sent by the caller's callbacks: the same bits as between threads, and an
 * error of a callback reaches the caller with its sentence, rank and hop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/crew.h"
#include "support/mailbox.h"

#define QUICKLY 3.0

struct post_office {
    struct crew crew;
    struct mailbox box;
    struct mailbox_rank ranks[CREW_MOST];
};

static ra_group_options options_with(double timeout)
{
    ra_group_options options = ra_group_options_default();
    options.timeout = timeout;
    options.threads = 1;
    return options;
}

static void office_open(struct post_office *office, const struct crew_case *is, double timeout)
{
    ra_group_options options = options_with(timeout);
    crew_open(&office->crew, is, NULL);
    int ranks = office->crew.is.ranks;
    mailbox_open(&office->box, office->ranks, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        ra_transport_callbacks calls = mailbox_callbacks(&office->ranks[rank]);
        assert_int_equal(
            ra_group_create_custom(ranks, rank, &calls, &options, &office->crew.at[rank].group),
            RA_OK);
    }
}

static void office_close(struct post_office *office)
{
    int ranks = office->crew.is.ranks;
    crew_close(&office->crew);
    for (int rank = 0; rank < ranks; rank++) assert_int_equal(office->ranks[rank].closes, 1);
    mailbox_close(&office->box, office->ranks, ranks);
}

static float *run_local(const struct crew_case *is, size_t *bytes)
{
    struct crew crew;
    ra_group_options options = options_with(60);
    crew_open(&crew, is, &options);
    crew_run(&crew);
    crew_expect_ok(&crew);
    *bytes = crew.floats * sizeof(float);
    float *results = malloc(*bytes);
    assert_non_null(results);
    memcpy(results, crew.results, *bytes);
    crew_close(&crew);
    return results;
}

static void expect_same_as_local(const struct crew_case *is)
{
    struct post_office office;
    size_t bytes;
    float *want = run_local(is, &bytes);
    office_open(&office, is, 60);
    crew_run(&office.crew);
    crew_expect_ok(&office.crew);
    assert_memory_equal(office.crew.results, want, bytes);
    for (int rank = 0; rank < office.crew.is.ranks; rank++)
        assert_int_equal(office.ranks[rank].aborts, 0);
    office_close(&office);
    free(want);
}

static void callbacks_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather", "ulysses", "2d" };
    for (int s = 0; s < 4; s++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            expect_same_as_local(&(struct crew_case){ .strategy = strategies[s], .ranks = ranks });
            expect_same_as_local(&(struct crew_case){ .strategy = strategies[s],
                                                      .ranks = ranks,
                                                      .pattern = "causal;docs=0,9,9,37",
                                                      .partition = "zigzag",
                                                      .repeat = 2 });
        }
}

/* ---- Failures -------------------------------------------------------------------------------- */

enum site { AT_POST, AT_WAIT, AT_POLL, SITES };
static const char *const site_names[SITES] = { "post", "wait", "poll" };

static void set_fault(struct mailbox_rank *rank, enum site site, int call)
{
    if (site == AT_POST) rank->fail_at_post = call;
    if (site == AT_WAIT) rank->fail_at_wait = call;
    if (site == AT_POLL) rank->fail_at_poll = call;
}

/* The first call fails on rank 1, or the second, ...: its caller gets its sentence, the others that
 * it failed, and its abort callback gets the reason. */
static void expect_error_is_told(enum site site, int call, const char *words)
{
    struct post_office office;
    struct crew *crew = &office.crew;
    char sentence[128], self[64];
    office_open(&office, &(struct crew_case){ .forward_only = true }, 60);
    set_fault(&office.ranks[1], site, call);
    office.ranks[1].words = words;
    crew->run_again = true;
    crew_run(crew);
    snprintf(sentence, sizeof sentence, ": custom transport, %s: %s", site_names[site],
             words ? words : ra_status_text(RA_ERR_SYSTEM));
    snprintf(self, sizeof self, "rank 1, hop ");
    crew_expect(crew, 1, RA_ERR_SYSTEM, sentence);
    crew_expect(crew, 1, RA_ERR_SYSTEM, self);
    assert_int_equal(office.ranks[1].aborts, 1);
    assert_string_equal(office.ranks[1].told, crew->at[1].sentence);
    for (int rank = 0; rank < 3; rank++) {
        /* Messages are stored in the box, so rank 0 may have all it needs of rank 1 when that one
         * fails. */
        bool may_be_done = rank == 0 && call > 1 && crew->at[rank].status == RA_OK;
        if (rank != 1 && !may_be_done) crew_expect(crew, rank, RA_ERR_PEER, sentence);
        if (crew->at[rank].seconds > QUICKLY) crew_fail(crew, "too late");
        if (crew->at[rank].again == RA_OK) crew_fail(crew, "a failed group ran again");
    }
    office_close(&office);
}

static void a_callback_that_fails_is_told(void **state)
{
    (void)state;
    for (int call = 1; call <= 3; call++) {
        expect_error_is_told(AT_POST, call, "no stamps left");
        if (call < 3) expect_error_is_told(AT_WAIT, call, "the postman is ill");
        expect_error_is_told(AT_POLL, call, "the box is gone");
    }
    expect_error_is_told(AT_POST, 2, NULL);
    expect_error_is_told(AT_WAIT, 2, NULL);
}

static void a_rank_that_never_comes_is_noticed(void **state)
{
    (void)state;
    struct post_office office;
    office_open(&office, &(struct crew_case){ 0 }, 0.3);
    crew_start_rank(&office.crew, 0);
    crew_start_rank(&office.crew, 1);
    crew_join(&office.crew);
    for (int rank = 0; rank < 2; rank++) {
        const struct crew_rank *r = &office.crew.at[rank];
        if (r->status == RA_ERR_TIMEOUT) crew_expect(&office.crew, rank, r->status, "from rank 2");
        else crew_expect(&office.crew, rank, RA_ERR_PEER, "from rank 2");
        if (r->seconds > 0.3 + QUICKLY) crew_fail(&office.crew, "too late");
    }
    office_close(&office);
}

#define REASON "somebody lost interest"

/* While they run, and while two of them wait for one that has not come. */
static void an_abort_ends_all_ranks(void **state)
{
    (void)state;
    for (int waiting = 0; waiting < 2; waiting++) {
        struct post_office office;
        office_open(&office, &(struct crew_case){ .repeat = 1 << 30 }, 60);
        for (int rank = 0; rank < (waiting ? 2 : 3); rank++) crew_start_rank(&office.crew, rank);
        crew_sleep(0.03);
        double start = crew_now();
        ra_group_abort(office.crew.at[0].group, REASON);
        crew_join(&office.crew);
        if (crew_now() - start > QUICKLY) crew_fail(&office.crew, "too late");
        crew_expect(&office.crew, 0, RA_ERR_ABORTED, REASON);
        crew_expect(&office.crew, 1, RA_ERR_PEER, REASON);
        assert_int_equal(office.ranks[0].aborts, 1);
        assert_string_equal(office.ranks[0].told, REASON);
        office_close(&office);
    }
}

/* Rank 0 believes in two ranks, the others in three. */
static void another_number_of_ranks_is_told(void **state)
{
    (void)state;
    struct post_office office;
    office_open(&office, &(struct crew_case){ 0 }, 60);
    ra_group_options options = options_with(60);
    ra_transport_callbacks calls = mailbox_callbacks(&office.ranks[0]);
    ra_group_destroy(office.crew.at[0].group);
    assert_int_equal(office.ranks[0].closes, 1);
    office.ranks[0].closes = 0;
    assert_int_equal(ra_group_create_custom(2, 0, &calls, &options, &office.crew.at[0].group),
                     RA_OK);
    crew_run(&office.crew);
    int found = 0;
    for (int rank = 0; rank < 3; rank++) {
        const struct crew_rank *r = &office.crew.at[rank];
        found += r->status == RA_ERR_MISMATCH;
        if (r->status != RA_ERR_MISMATCH)
            crew_expect(&office.crew, rank, RA_ERR_PEER, "was given another number of ranks");
    }
    if (found == 0) crew_fail(&office.crew, "nobody found the difference");
    office_close(&office);
}

/* ---- What is required and what is not -------------------------------------------------------- */

static void only_post_and_wait_are_required(void **state)
{
    (void)state;
    struct mailbox box;
    struct mailbox_rank rank;
    ra_group *group = NULL;
    mailbox_open(&box, &rank, 1);
    ra_transport_callbacks calls = mailbox_callbacks(&rank);
    assert_int_equal(ra_group_create_custom(2, 2, &calls, NULL, &group), RA_ERR_ARGUMENT);
    assert_int_equal(ra_group_create_custom(2, 0, NULL, NULL, &group), RA_ERR_ARGUMENT);
    calls.poll = NULL;
    calls.abort = NULL;
    calls.close = NULL;
    assert_int_equal(ra_group_create_custom(1, 0, &calls, NULL, &group), RA_OK);
    ra_group_abort(group, REASON);
    ra_group_destroy(group);
    calls.wait = NULL;
    assert_int_equal(ra_group_create_custom(1, 0, &calls, NULL, &group), RA_ERR_ARGUMENT);
    assert_int_equal(rank.closes, 0);
    mailbox_close(&box, &rank, 1);
    assert_int_equal(ra_allocated_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callbacks_give_the_same_bits),
        cmocka_unit_test(a_callback_that_fails_is_told),
        cmocka_unit_test(a_rank_that_never_comes_is_noticed),
        cmocka_unit_test(an_abort_ends_all_ranks),
        cmocka_unit_test(another_number_of_ranks_is_told),
        cmocka_unit_test(only_post_and_wait_are_required),
    };
    crew_watchdog(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
