/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.c - see faulty.h. */
#include "support/faulty.h"

#include <stdio.h>
#include <time.h>

enum { MOST_MESSAGES = 256 }; /* of one round, in tests */

static void sleep_us(int64_t microseconds)
{
    struct timespec t = { microseconds / 1000000, microseconds % 1000000 * 1000 };
    nanosleep(&t, NULL);
}

/* 0 to below - 1, by a small linear generator: the same seed misbehaves in the same way. */
static int pick(struct faulty *faulty, int below)
{
    faulty->random = faulty->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((faulty->random >> 33) % (uint64_t)below);
}

static void dawdle(struct faulty *faulty)
{
    if (faulty->script.delay_us > 0) sleep_us(pick(faulty, faulty->script.delay_us + 1));
}

/* For ever, as far as a test can wait: its end lets a test that has failed clean up. */
static void stall(struct faulty *faulty)
{
    enum { PIECE_US = 500, AT_MOST_US = 8000000 };
    atomic_store(&faulty->stalled, true);
    for (int64_t us = 0; us < AT_MOST_US && !atomic_load(&faulty->released); us += PIECE_US)
        sleep_us(PIECE_US);
}

static ra_status fail(const struct faulty *faulty, const char *verb)
{
    return ra__fail(RA_ERR_SYSTEM, "rank %d, hop %d: %s: " FAULTY_WORDS, faulty->rank, faulty->hop,
                    verb);
}

static bool must_precede(const struct ra__message *a, const struct ra__message *b)
{
    return a->peer == b->peer && a->tag == b->tag;
}

/* Posts one kind of message of a round one by one. Those of the same peer and tag keep their order,
 * because that order says which send meets which receive. */
static ra_status post_shuffled(struct faulty *faulty, struct ra__message *messages, int count,
                               int hop, bool sends)
{
    bool posted[MOST_MESSAGES] = { false };
    if (count > MOST_MESSAGES) return ra__fail(RA_ERR_UNSUPPORTED, "faulty: %d messages", count);
    for (int left = count; left > 0; left--) {
        int i = pick(faulty, count);
        while (posted[i]) i = (i + 1) % count;
        for (int j = 0; j < i; j++)
            if (!posted[j] && must_precede(&messages[j], &messages[i])) i = j;
        posted[i] = true;
        struct ra__round one = { .hop = hop };
        if (sends) one.sends = &messages[i], one.send_count = 1;
        else one.recvs = &messages[i], one.recv_count = 1;
        dawdle(faulty);
        RA__TRY(faulty->inner->post(faulty->link, &one));
    }
    return RA_OK;
}

static ra_status post_reordered(struct faulty *faulty, struct ra__round *round)
{
    bool sends_first = pick(faulty, 2);
    ra_status status = RA_OK;
    for (int half = 0; half < 2 && status == RA_OK; half++) {
        bool sends = (half == 0) == sends_first;
        status = post_shuffled(faulty, sends ? round->sends : round->recvs,
                               sends ? round->send_count : round->recv_count, round->hop, sends);
    }
    if (status == RA_OK) return RA_OK;
    /* The group has failed; waiting takes back what was posted before that. */
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    faulty->inner->wait(faulty->link, round);
    return ra__fail(status, "%s", sentence);
}

static ra_status faulty_post(void *link, struct ra__round *round)
{
    struct faulty *faulty = link;
    int call = ++faulty->posts;
    if (!atomic_load(&faulty->stalled)) faulty->hop = round->hop;
    dawdle(faulty);
    if (call == faulty->script.stall_at_post) stall(faulty);
    if (call == faulty->script.fail_at_post) return fail(faulty, "post");
    return faulty->script.reorder ? post_reordered(faulty, round)
                                  : faulty->inner->post(faulty->link, round);
}

static ra_status faulty_wait(void *link, struct ra__round *round)
{
    struct faulty *faulty = link;
    int call = ++faulty->waits;
    dawdle(faulty);
    if (call == faulty->script.stall_at_wait) stall(faulty);
    RA__TRY(faulty->inner->wait(faulty->link, round));
    return call == faulty->script.fail_at_wait ? fail(faulty, "wait") : RA_OK;
}

static ra_status faulty_poll(void *link)
{
    struct faulty *faulty = link;
    if (++faulty->polls == faulty->script.stall_at_poll) stall(faulty);
    return faulty->inner->poll(faulty->link);
}

static void faulty_abort(void *link, ra_status status, const char *reason)
{
    struct faulty *faulty = link;
    faulty->inner->abort(faulty->link, status, reason);
}

static void faulty_close(void *link)
{
    struct faulty *faulty = link;
    if (faulty) faulty->inner->close(faulty->link);
}

static const struct ra__transport transport = {
    .name = "faulty",
    .summary = "delays, reorders, stalls and fails by a script",
    .post = faulty_post,
    .wait = faulty_wait,
    .poll = faulty_poll,
    .abort = faulty_abort,
    .close = faulty_close,
};

void faulty_wrap(struct faulty *faulty, ra_group *group, const struct faulty_script *script)
{
    struct ra__rank *rank = &group->rank;
    faulty->script = *script;
    faulty->inner = rank->transport;
    faulty->link = rank->link;
    faulty->rank = rank->rank;
    faulty->posts = faulty->waits = faulty->polls = faulty->hop = 0;
    faulty->random = script->seed + 977u * (unsigned)rank->rank;
    atomic_init(&faulty->stalled, false);
    atomic_init(&faulty->released, false);
    rank->transport = &transport;
    rank->link = faulty;
}

void faulty_release(struct faulty *faulty) { atomic_store(&faulty->released, true); }
