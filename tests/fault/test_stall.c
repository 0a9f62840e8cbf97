/* SPDX-License-Identifier: Apache-2.0 */
/* test_stall.c - a rank that stops ends all others within the timeout, with a sentence that names
 * rank, peer and hop; a rank that works for long and sends heartbeats ends no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/crew.h"
#include "support/faulty.h"

#define TIMEOUT 0.3
#define SLACK 3.0 /* a busy machine may wake threads late */

static ra_group_options impatient(void)
{
    ra_group_options options = ra_group_options_default();
    options.timeout = TIMEOUT;
    options.threads = 1;
    return options;
}

/* How often a rank posts, waits and polls in a run without faults. */
static struct faulty count_calls(const struct crew_case *is, int rank)
{
    struct crew crew;
    struct faulty faulty;
    ra_group_options options = impatient();
    options.timeout = 30;
    crew_open(&crew, is, &options);
    faulty_wrap(&faulty, crew.at[rank].group, &(struct faulty_script){ 0 });
    crew_run(&crew);
    crew_expect_ok(&crew);
    crew_close(&crew);
    return faulty;
}

/* Does the sentence say that a rank waited at this hop? */
static bool names_hop(const char *sentence, int hop)
{
    char words[32];
    snprintf(words, sizeof words, "hop %d: no heartbeat", hop);
    return strstr(sentence, words) != NULL;
}

/* One that lost patience, or heard of it, in a sentence with itself, the silent rank and the hop:
 * the one at which that rank fell silent, or the next one, which may be the first of the next
 * run. */
static void expect_told(const struct crew *crew, int rank, int silent, int hop)
{
    const struct crew_rank *r = &crew->at[rank];
    char self[32], peer[64];
    snprintf(self, sizeof self, "rank %d, hop ", rank);
    snprintf(peer, sizeof peer, "no heartbeat from rank %d for ", silent);
    if (r->status != RA_ERR_TIMEOUT && r->status != RA_ERR_PEER) crew_fail(crew, "wrong status");
    if (strncmp(r->sentence, self, strlen(self))) crew_fail(crew, "a sentence names not its rank");
    if (!strstr(r->sentence, peer)) crew_fail(crew, "a sentence names not the silent rank");
    /* In a large ring the others get ahead by several hops before they miss anything. */
    bool near = names_hop(r->sentence, hop) || names_hop(r->sentence, hop + 1) ||
                names_hop(r->sentence, 1);
    if (!near && crew->is.ranks <= 3) crew_fail(crew, "wrong hop");
    if (r->status == RA_ERR_TIMEOUT && r->seconds < 0.9 * TIMEOUT) crew_fail(crew, "too early");
    if (r->seconds > TIMEOUT + SLACK) crew_fail(crew, "too late");
}

static void expect_stall_is_noticed(const struct crew_case *is, int silent,
                                    const struct faulty_script *script)
{
    struct crew crew;
    struct faulty faulty;
    ra_group_options options = impatient();
    crew_open(&crew, is, &options);
    crew.run_again = true;
    crew.patience = TIMEOUT + SLACK;
    faulty_wrap(&faulty, crew.at[silent].group, script);
    crew_start(&crew);
    for (int rank = 0; rank < crew.is.ranks; rank++)
        if (rank != silent) crew_join_rank(&crew, rank);
    assert_true(atomic_load(&faulty.stalled));
    assert_false(atomic_load(&crew.at[silent].done));
    faulty_release(&faulty);
    crew_join(&crew);
    int timeouts = 0;
    for (int rank = 0; rank < crew.is.ranks; rank++) {
        /* In a large ring some may be done before a rank falls silent in its last hops. */
        bool may_be_done = crew.is.ranks > 3 && crew.at[rank].status == RA_OK;
        if (rank != silent && !may_be_done) expect_told(&crew, rank, silent, faulty.hop);
        /* Such a rank meets the silence in its next run, and may be the one that loses patience. */
        bool lost_patience = may_be_done && crew.at[rank].again == RA_ERR_TIMEOUT;
        timeouts += lost_patience || crew.at[rank].status == RA_ERR_TIMEOUT;
        if (!lost_patience && crew.at[rank].again != RA_ERR_PEER)
            crew_fail(&crew, "a failed group ran again");
    }
    crew_expect(&crew, silent, RA_ERR_PEER, "no heartbeat from rank");
    if (timeouts == 0) crew_fail(&crew, "nobody says that it lost patience");
    crew_close(&crew);
}

/* The rank stops before each post, and before each wait but the last, for which no rank waits. */
static void walk_hops(const struct crew_case *is, int silent)
{
    struct faulty calls = count_calls(is, silent);
    for (int i = 1; i <= calls.posts; i++)
        expect_stall_is_noticed(is, silent, &(struct faulty_script){ .stall_at_post = i });
    for (int i = 1; i < calls.waits; i += crew_long() ? 1 : 2)
        expect_stall_is_noticed(is, silent, &(struct faulty_script){ .stall_at_wait = i });
}

static void a_silent_rank_is_noticed_at_each_hop(void **state)
{
    (void)state;
    for (int silent = 0; silent < (crew_long() ? 3 : 1); silent++) {
        walk_hops(&(struct crew_case){ .strategy = "ring" }, silent);
        walk_hops(&(struct crew_case){ .strategy = "allgather" }, 2 - silent);
        walk_hops(&(struct crew_case){ .strategy = "ulysses", .q_heads = 3 }, silent);
    }
    if (crew_long())
        walk_hops(&(struct crew_case){ .ranks = 4, .strategy = "2d:2x2", .q_heads = 2 }, 2);
    walk_hops(
        &(struct crew_case){ .pattern = "causal", .partition = "zigzag", .forward_only = true }, 1);
    walk_hops(&(struct crew_case){ .pattern = "dilated:37/2", .forward_only = true }, 1);
    if (crew_long()) walk_hops(&(struct crew_case){ .pattern = "dilated:37/2" }, 2);
    if (crew_long()) walk_hops(&(struct crew_case){ .ranks = 5 }, 3);
}

/* In the middle of its work, between two slices. */
static void a_rank_that_stops_working_is_noticed(void **state)
{
    (void)state;
    struct crew_case is = { .q_heads = 4 };
    int polls = count_calls(&is, 1).polls;
    for (int i = 1; i < polls; i += polls / 4 + 1)
        expect_stall_is_noticed(&is, 1, &(struct faulty_script){ .stall_at_poll = i });
}

static void a_rank_that_never_comes_is_noticed(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather" };
    for (int s = 0; s < 2; s++)
        for (int absent = 0; absent < 3; absent++) {
            struct crew crew;
            ra_group_options options = impatient();
            crew_open(&crew, &(struct crew_case){ .strategy = strategies[s] }, &options);
            for (int rank = 0; rank < 3; rank++)
                if (rank != absent) crew_start_rank(&crew, rank);
            crew_join(&crew);
            for (int rank = 0; rank < 3; rank++)
                if (rank != absent) expect_told(&crew, rank, absent, 0);
            crew_close(&crew);
        }
}

/* One rank calls ra_attend, the other two go on to ra_gradient: no rank waits for ever. */
static void ranks_that_do_different_things_end(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = impatient();
    crew_open(&crew, &(struct crew_case){ .repeat = 1 }, &options);
    crew.at[1].options.backward = 0;
    crew_run(&crew);
    crew_expect(&crew, 1, RA_OK, NULL);
    expect_told(&crew, 0, 1, 1);
    expect_told(&crew, 2, 1, 1);
    crew_close(&crew);
}

/* Longer than the library's own pause between two calls of a progress callback, which is called
 * between slices of work: so each slice takes this long. */
#define SLICE 0.06

static int work_slowly(void *context, double done)
{
    (void)context, (void)done;
    crew_sleep(SLICE);
    return 0;
}

static void start_slowly(void *context, const ra_trace_event *event)
{
    (void)context;
    if (event->rank == 1) crew_sleep(SLICE);
}

static void a_rank_that_works_long_is_waited_for(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = impatient();
    options.trace = start_slowly;
    crew_open(&crew, &(struct crew_case){ .q_heads = 12, .forward_only = true }, &options);
    crew.at[1].progress = work_slowly;
    crew_run(&crew);
    crew_expect_ok(&crew);
    if (crew.at[1].seconds < 5 * TIMEOUT) crew_fail(&crew, "the rank did not work long");
    crew_close(&crew);
}

/* Real work, many times the timeout, in slices far below it. */
static void long_work_is_waited_for(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = impatient();
    crew_open(&crew,
              &(struct crew_case){ .pattern = "causal",
                                   .ranks = 2,
                                   .q_len = crew_long() ? 4000 : 1000,
                                   .q_heads = 8,
                                   .dim = 8 },
              &options);
    for (int rank = 0; rank < 2; rank++) crew.at[rank].options.kernel = "scalar";
    crew.patience = 100;
    crew_run(&crew);
    crew_expect_ok(&crew);
    crew_close(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_rank_is_noticed_at_each_hop),
        cmocka_unit_test(a_rank_that_stops_working_is_noticed),
        cmocka_unit_test(a_rank_that_never_comes_is_noticed),
        cmocka_unit_test(ranks_that_do_different_things_end),
        cmocka_unit_test(a_rank_that_works_long_is_waited_for),
        cmocka_unit_test(long_work_is_waited_for),
    };
    crew_watchdog(crew_long() ? 500 : 110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
