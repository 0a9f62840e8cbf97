/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - the mpi transport by itself, three processes: what is sent arrives, and faults are
 * reported to all ranks with names. Run by a launcher; every process checks its own side. */
#include "support/test.h"

#include <pthread.h>
#include <time.h>

#include "api/handles.h"
#include "core/clock.h"

enum { RANKS = 3 };
#define TIMEOUT 0.6

static ra_group *meeting; /* patient: where tests begin together */
static ra_group *group;   /* of one test */
static int self;

static void nap(double seconds)
{
    nanosleep(
        &(struct timespec){ (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) },
        NULL);
}

static ra_group *join(double timeout)
{
    ra_group *joined;
    ra_group_options options = ra_group_options_default();
    options.timeout = timeout;
    options.threads = 1;
    assert_ok(ra_group_join("mpi", NULL, &options, &joined));
    return joined;
}

static int begin(void **state)
{
    int mine = 0, all[RANKS];
    (void)state;
    assert_ok(ra_group_share(meeting, &mine, all, sizeof mine));
    group = join(TIMEOUT);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ra_group_destroy(group);
    return 0;
}

/* A round of this rank. */
struct talk {
    struct ra__message sends[4], recvs[4];
    struct ra__round round;
};

static struct ra__message message(int peer, int tag, void *data, size_t bytes)
{
    return (struct ra__message){ .peer = peer, .tag = tag, .hop = 7, .data = data, .bytes = bytes };
}

static ra_status post(struct talk *talk, int sends, int recvs)
{
    talk->round = (struct ra__round){ .sends = talk->sends,
                                      .recvs = talk->recvs,
                                      .send_count = sends,
                                      .recv_count = recvs,
                                      .hop = 7 };
    return group->rank.transport->post(group->rank.link, &talk->round);
}

static ra_status post_and_wait(struct talk *talk, int sends, int recvs)
{
    ra_status status = post(talk, sends, recvs);
    return status == RA_OK ? group->rank.transport->wait(group->rank.link, &talk->round) : status;
}

static ra_status poll_for(double seconds)
{
    ra_status status = RA_OK;
    for (double until = ra__now() + seconds; status == RA_OK && ra__now() < until; nap(1e-3))
        status = ra_group_poll(group);
    return status;
}

/* ---- What arrives ---------------------------------------------------------------------------- */

static void fill(char *bytes, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (char)(seed + (int)(i % 251));
}

static void expect_bytes(const char *bytes, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++) assert_int_equal(bytes[i], (char)(seed + (int)(i % 251)));
}

/* Tags decide what meets what, not the order of posting, and of one tag the n-th meets the n-th. */
static void tags_decide(void **state)
{
    static char out[4][3000], in[4][3000];
    static const int order[3] = { 2, 0, 1 };
    struct talk talk;
    (void)state;
    if (self == 0) {
        for (int i = 0; i < 4; i++) fill(out[i], sizeof out[i], 10 * i);
        for (int i = 0; i < 3; i++) talk.sends[i] = message(1, 40 + i, out[i], 1000 + (size_t)i);
        talk.sends[3] = message(1, 40, out[3], sizeof out[3]);
        assert_ok(post_and_wait(&talk, 4, 0));
    } else if (self == 1) {
        for (int i = 0; i < 3; i++) {
            int tag = order[i];
            talk.recvs[0] = message(0, 40 + tag, in[tag], 1000 + (size_t)tag);
            assert_ok(post_and_wait(&talk, 0, 1));
            expect_bytes(in[tag], 1000 + (size_t)tag, 10 * tag);
        }
        talk.recvs[0] = message(0, 40, in[3], sizeof in[3]);
        assert_ok(post_and_wait(&talk, 0, 1));
        expect_bytes(in[3], sizeof in[3], 30);
    }
}

/* Also within one round, where all are under way at once, in one piece or in several, or empty. */
static void messages_of_one_tag_keep_their_order(void **state)
{
    enum { TWINS = 4, ROUNDS = 100, MOST = 100000 };
    static const size_t bytes[TWINS] = { 3000, 0, MOST, 7 };
    static char out[TWINS][MOST], in[TWINS][MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct talk talk;
        for (int i = 0; i < TWINS; i++) {
            size_t count = bytes[(i + round) % TWINS];
            fill(out[i], count, round + 50 * i);
            talk.sends[i] = message(1, 43, out[i], count);
            talk.recvs[i] = message(0, 43, in[i], count);
        }
        if (self < 2) assert_ok(post_and_wait(&talk, self == 0 ? TWINS : 0, self == 1 ? TWINS : 0));
        for (int i = 0; i < TWINS && self == 1; i++)
            expect_bytes(in[i], bytes[(i + round) % TWINS], round + 50 * i);
    }
}

/* Large enough for every protocol that MPI has, both ways at once, whole pieces, and nothing at
 * all. */
static void any_size_arrives(void **state)
{
    static const size_t sizes[] = { 0, 1, 4095, 70000, 131072, 524288, 655360, 5000000 };
    static char out[5000000], in[5000000];
    int next = (self + 1) % RANKS, before = (self + RANKS - 1) % RANKS;
    (void)state;
    for (int i = 0; i < TEST_COUNT(sizes); i++) {
        struct talk talk;
        fill(out, sizes[i], self);
        talk.sends[0] = message(next, i, out, sizes[i]);
        talk.recvs[0] = message(before, i, in, sizes[i]);
        assert_ok(post_and_wait(&talk, 1, 1));
        expect_bytes(in, sizes[i], before);
    }
}

static void shares_are_in_the_order_of_ranks(void **state)
{
    int mine[2] = { self, self * self }, all[RANKS][2];
    (void)state;
    assert_ok(ra_group_share(group, mine, all, sizeof mine));
    for (int i = 0; i < RANKS; i++) assert_true(all[i][0] == i && all[i][1] == i * i);
}

/* A rank that is done waits for those that still work, as long as they send heartbeats. */
static void long_work_is_waited_for(void **state)
{
    char byte = 1;
    struct talk talk;
    (void)state;
    if (self == 0) assert_ok(poll_for(3 * TIMEOUT));
    talk.sends[0] = message(1, 1, &byte, 1);
    talk.recvs[0] = message(0, 1, &byte, 1);
    if (self < 2) assert_ok(post_and_wait(&talk, self == 0, self == 1));
    /* Rank 2 has left meanwhile, and waits in ra_group_destroy(). */
}

static void nothing_is_left(void **state)
{
    size_t before = ra_allocated_bytes();
    (void)state;
    ra_group *one = join(30);
    int mine = self, all[RANKS];
    assert_ok(ra_group_share(one, &mine, all, sizeof mine));
    ra_group_destroy(one);
    assert_int_equal(ra_allocated_bytes(), before);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

/* Every rank that did not find it hears of it from the one that did. */
static void expect_told(int finder, const char *words)
{
    char sentence[64];
    snprintf(sentence, sizeof sentence, "rank %d, hop", self);
    ra_status status = poll_for(3 * TIMEOUT);
    test_status(RA_ERR_PEER, status, "poll", __FILE__, __LINE__);
    test_sentence(words, "poll", __FILE__, __LINE__);
    test_sentence(sentence, "poll", __FILE__, __LINE__);
    snprintf(sentence, sizeof sentence, "rank %d failed: ", finder);
    test_sentence(sentence, "poll", __FILE__, __LINE__);
}

static void expect_sizes_told(size_t sent, size_t expected)
{
    static char bytes[100000];
    char words[100];
    struct talk talk;
    snprintf(words, sizeof words, "hop 7: rank 0 sends %zu bytes where rank 1 expects %zu", sent,
             expected);
    talk.sends[0] = message(1, 5, bytes, sent);
    talk.recvs[0] = message(0, 5, bytes, expected);
    if (self == 1) assert_fails(RA_ERR_MISMATCH, words, post_and_wait(&talk, 0, 1));
    else if (self == 2 || post_and_wait(&talk, 1, 0) == RA_OK) expect_told(1, words);
}

static void more_bytes_are_told(void **state)
{
    (void)state;
    expect_sizes_told(200, 100);
}

static void far_more_bytes_are_told(void **state)
{
    (void)state;
    expect_sizes_told(100000, 100);
}

static void fewer_bytes_are_told(void **state)
{
    (void)state;
    expect_sizes_told(100, 100000);
}

static void another_plan_is_told(void **state)
{
    char byte = 0;
    struct talk talk;
    const char *words = "rank 0 sends a message of tag 0x30005 where rank 1 expects 0x40005";
    (void)state;
    talk.sends[0] = message(1, 3 << 16 | 5, &byte, 1);
    talk.recvs[0] = message(0, 4 << 16 | 5, &byte, 1);
    if (self == 1) assert_fails(RA_ERR_MISMATCH, words, post_and_wait(&talk, 0, 1));
    else if (self == 2 || post_and_wait(&talk, 1, 0) == RA_OK) expect_told(1, words);
}

/* Rank 2 waits for rank 1, which waits for rank 0, which sleeps: both name rank 0, in time. */
static void a_silent_rank_is_named_along_the_chain(void **state)
{
    char byte;
    struct talk talk;
    double start = ra__now();
    (void)state;
    if (self == 0) {
        nap(3 * TIMEOUT);
        assert_int_equal(poll_for(3 * TIMEOUT), RA_ERR_PEER);
        return;
    }
    talk.recvs[0] = message(self - 1, 9, &byte, 1);
    ra_status status = post_and_wait(&talk, 0, 1);
    assert_true(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
    test_sentence("no heartbeat from rank 0 for 0.6 seconds", "wait", __FILE__, __LINE__);
    assert_true(ra__now() - start < 2.5 * TIMEOUT);
}

static void ranks_that_wait_for_one_another_are_told(void **state)
{
    char byte;
    struct talk talk;
    (void)state;
    talk.recvs[0] = message((self + 1) % RANKS, 9, &byte, 1);
    ra_status status = post_and_wait(&talk, 0, 1);
    assert_true(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
    test_sentence("have waited for one another", "wait", __FILE__, __LINE__);
}

static void a_rank_that_left_is_told(void **state)
{
    char byte;
    struct talk talk;
    (void)state;
    if (self == 0) return; /* to ra_group_destroy() */
    talk.recvs[0] = message(0, 9, &byte, 1);
    ra_status status = post_and_wait(&talk, 0, 1);
    assert_true(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
    test_sentence("rank 0 has left the group", "wait", __FILE__, __LINE__);
}

static void *abort_soon(void *context)
{
    nap(0.1);
    ra_group_abort(context, "enough");
    return NULL;
}

/* Another thread may abort; the rank's own thread informs the others. */
static void an_abort_reaches_all(void **state)
{
    char byte;
    pthread_t thread;
    struct talk talk;
    (void)state;
    talk.recvs[0] = message(1, 9, &byte, 1);
    if (self == 1) {
        assert_int_equal(pthread_create(&thread, NULL, abort_soon, group), 0);
        assert_fails(RA_ERR_ABORTED, "enough", poll_for(10));
        pthread_join(thread, NULL);
    } else {
        assert_fails(RA_ERR_ABORTED, "the group was aborted by rank 1: enough",
                     post_and_wait(&talk, 0, 1));
    }
    assert_fails(RA_ERR_ABORTED, "enough", ra_group_poll(group)); /* and stays so */
}

/* After a failure MPI writes no more: a late message finds no buffer. */
static void buffers_are_free_after_a_failure(void **state)
{
    char byte = 'a';
    struct talk talk;
    (void)state;
    talk.recvs[0] = message(0, 9, &byte, 1);
    if (self == 0) {
        assert_ok(poll_for(0.1));
        ra_group_abort(group, "enough");
        assert_int_equal(ra_group_poll(group), RA_ERR_ABORTED);
        return;
    }
    assert_int_equal(post_and_wait(&talk, 0, 1), RA_ERR_ABORTED);
    assert_int_equal(byte, 'a');
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(tags_decide),
        TEST(messages_of_one_tag_keep_their_order),
        TEST(any_size_arrives),
        TEST(shares_are_in_the_order_of_ranks),
        TEST(long_work_is_waited_for),
        TEST(nothing_is_left),
        TEST(more_bytes_are_told),
        TEST(far_more_bytes_are_told),
        TEST(fewer_bytes_are_told),
        TEST(another_plan_is_told),
        TEST(a_silent_rank_is_named_along_the_chain),
        TEST(ranks_that_wait_for_one_another_are_told),
        TEST(a_rank_that_left_is_told),
        TEST(an_abort_reaches_all),
        TEST(buffers_are_free_after_a_failure),
    };
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    if (ra_group_join("mpi", NULL, &options, &meeting) != RA_OK) {
        fprintf(stderr, "%s\n", ra_last_error());
        return 1;
    }
    if (ra_group_ranks(meeting) != RANKS) {
        fprintf(stderr, "this test is for %d processes\n", RANKS);
        return 1;
    }
    self = ra_group_rank(meeting);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) ra_group_abort(meeting, "a test failed");
    ra_group_destroy(meeting);
    return failed;
}
