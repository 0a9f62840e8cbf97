/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - the steps of all ranks together: every message has its counterpart, in the same
 * order on both sides; ranks do not wait for one another in a circle; and every step waits for all
 * steps before it that use its buffers. */
#include "plan/builder.h"
#include "support/worlds.h"

/* ---- Messages -------------------------------------------------------------------------------- */

/* The index-th send of `from` that goes to `to` with this tag, or NULL. */
static const struct ra__transfer *nth(const struct ra__transfer *list, int count, int peer, int tag,
                                      int index)
{
    for (int i = 0; i < count; i++)
        if (list[i].peer == peer && list[i].tag == tag && index-- == 0) return &list[i];
    return NULL;
}

static size_t bytes_of(const struct world *w, int rank, const struct ra__transfer *t)
{
    return (size_t)(t->range.hi - t->range.lo) * ra__token_bytes(&w->steps[rank], t->buffer);
}

static void check_partner(const struct world *w, int rank, const struct ra__transfer *mine,
                          int index, bool backward, bool is_send)
{
    const struct ra__program *other = program_of(w, mine->peer, backward);
    const struct ra__transfer *theirs = is_send ? nth(other->recvs, other->recv_count, rank,
                                                      mine->tag, index)
                                                : nth(other->sends, other->send_count, rank,
                                                      mine->tag, index);
    if (!theirs)
        fail_msg("%s %s: rank %d, tag %d, peer %d: nobody there", w->text, direction(backward),
                 rank, mine->tag, mine->peer);
    if (bytes_of(w, rank, mine) != bytes_of(w, mine->peer, theirs) || mine->hop != theirs->hop ||
        mine->range.lo != theirs->range.lo)
        fail_msg("%s %s: rank %d, tag %d, peer %d: the two sides differ", w->text,
                 direction(backward), rank, mine->tag, mine->peer);
}

/* A tensor of the caller is never sent: it may have any strides. */
static void check_memory(const struct world *w, enum ra__buffer buffer)
{
    enum ra__provider provider = ra__buffer_facts(buffer)->provider;
    assert_int_equal(provider, w->reach == LOADS_AND_STAGES ? RA__BY_HOST : RA__BY_DEVICE);
}

static void check_list(const struct world *w, int rank, bool backward, bool is_send)
{
    const struct ra__program *p = program_of(w, rank, backward);
    const struct ra__transfer *list = is_send ? p->sends : p->recvs;
    int count = is_send ? p->send_count : p->recv_count;
    for (int i = 0; i < count; i++) {
        int index = 0;
        for (int j = 0; j < i; j++)
            index += list[j].peer == list[i].peer && list[j].tag == list[i].tag;
        assert_true(list[i].peer >= 0 && list[i].peer < w->ranks && list[i].peer != rank);
        assert_true(list[i].range.lo >= 0 && list[i].range.lo <= list[i].range.hi);
        if (list[i].done || list[i].lends) assert_int_equal(w->reach, LENDS);
        else
            assert_true(ra__has_tokens(&list[i]) &&
                        list[i].range.hi <= w->steps[rank].storage[list[i].buffer].tokens);
        check_memory(w, list[i].buffer);
        check_partner(w, rank, &list[i], index, backward, is_send);
    }
}

static void check_messages(const struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            check_list(w, rank, backward, true);
            check_list(w, rank, backward, false);
        }
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* The next message between two ranks in the order of the steps, from step *step and message *index
 * of its round on; NULL after the last. */
static const struct ra__transfer *next_message(const struct ra__program *p, bool sent, int peer,
                                               int *step, int *index)
{
    for (; *step < p->step_count; (*step)++, *index = 0) {
        if (p->steps[*step].op != RA__OP_EXCHANGE) continue;
        const struct ra__plan_round *round = &p->rounds[p->steps[*step].round];
        const struct ra__transfer *list = sent ? p->sends + round->first_send
                                               : p->recvs + round->first_recv;
        while (*index < (sent ? round->send_count : round->recv_count)) {
            const struct ra__transfer *t = &list[(*index)++];
            if (t->peer == peer) return t;
        }
    }
    return NULL;
}

/* A rule of programs, for transports without tags: what rank a sends to rank b is received there in
 * the order in which it is sent. */
static void check_order_between(const struct world *w, int a, int b, bool backward)
{
    const struct ra__program *from = program_of(w, a, backward), *to = program_of(w, b, backward);
    int step[2] = { 0, 0 }, index[2] = { 0, 0 };
    for (;;) {
        const struct ra__transfer *sent = next_message(from, true, b, &step[0], &index[0]);
        const struct ra__transfer *got = next_message(to, false, a, &step[1], &index[1]);
        if (!sent && !got) return;
        if (!sent || !got || sent->tag != got->tag || bytes_of(w, a, sent) != bytes_of(w, b, got))
            fail_msg("%s %s: rank %d sends in another order than rank %d receives", w->text,
                     direction(backward), a, b);
    }
}

static void check_order(const struct world *w)
{
    for (int a = 0; a < w->ranks; a++)
        for (int b = 0; b < w->ranks; b++)
            for (int backward = 0; backward < 2; backward++) check_order_between(w, a, b, backward);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Each round is exchanged once, in order, and none is empty. */
static void check_rounds_of(const struct world *w, int rank, bool backward)
{
    const struct ra__program *p = program_of(w, rank, backward);
    int sends = 0, recvs = 0, last = -1;
    for (int i = 0; i < p->step_count; i++) {
        const struct ra__step *step = &p->steps[i];
        if (step->op != RA__OP_EXCHANGE) continue;
        const struct ra__plan_round *round = &p->rounds[step->round];
        assert_true(step->round > last);
        assert_true(round->send_count + round->recv_count > 0);
        assert_int_equal(round->first_send, sends);
        assert_int_equal(round->first_recv, recvs);
        sends += round->send_count;
        recvs += round->recv_count;
        last = step->round;
    }
    assert_int_equal(sends, p->send_count);
    assert_int_equal(recvs, p->recv_count);
}

/* How far a rank is when it takes its steps in order, and does not take one before the rounds it
 * waits for are through. */
struct walker {
    int step;
    bool posted[256]; /* rounds */
};

/* Are all peers' counterparts of a round posted? */
static bool is_through(const struct world *w, const struct walker *walkers, int rank, int round,
                       bool backward)
{
    const struct ra__program *p = program_of(w, rank, backward);
    const struct ra__plan_round *r = &p->rounds[round];
    for (int side = 0; side < 2; side++) {
        const struct ra__transfer *list = side ? p->recvs + r->first_recv
                                               : p->sends + r->first_send;
        for (int i = 0; i < (side ? r->recv_count : r->send_count); i++) {
            const struct ra__program *other = program_of(w, list[i].peer, backward);
            bool found = false;
            for (int j = 0; j < other->round_count; j++) {
                const struct ra__plan_round *theirs = &other->rounds[j];
                const struct ra__transfer *partners = side ? other->sends + theirs->first_send
                                                           : other->recvs + theirs->first_recv;
                int count = side ? theirs->send_count : theirs->recv_count;
                if (walkers[list[i].peer].posted[j])
                    found |= nth(partners, count, rank, list[i].tag, 0) != NULL;
            }
            if (!found) return false;
        }
    }
    return true;
}

/* Are all rounds that a step waits for through? */
static bool may_start(const struct world *w, const struct walker *walkers, int rank,
                      const struct ra__step *step, bool backward)
{
    const struct ra__program *p = program_of(w, rank, backward);
    for (int i = 0; i < step->wait_count; i++) {
        const struct ra__step *other = &p->steps[p->waits[step->first_wait + i]];
        if (other->op == RA__OP_EXCHANGE && !is_through(w, walkers, rank, other->round, backward))
            return false;
    }
    return true;
}

static void check_progress(const struct world *w, bool backward)
{
    static struct walker walkers[MOST_RANKS];
    memset(walkers, 0, sizeof walkers);
    bool moved = true, done = false;
    while (moved && !done) {
        moved = false;
        done = true;
        for (int rank = 0; rank < w->ranks; rank++) {
            const struct ra__program *p = program_of(w, rank, backward);
            struct walker *at = &walkers[rank];
            assert_true(p->round_count <= 256);
            while (at->step < p->step_count) {
                const struct ra__step *step = &p->steps[at->step];
                if (!may_start(w, walkers, rank, step, backward)) break;
                if (step->op == RA__OP_EXCHANGE) at->posted[step->round] = true;
                at->step++;
                moved = true;
            }
            done = done && at->step == p->step_count;
        }
    }
    if (!done) fail_msg("%s %s: the ranks wait for one another", w->text, direction(backward));
}

static void check_rounds(const struct world *w)
{
    for (int backward = 0; backward < 2; backward++) {
        for (int rank = 0; rank < w->ranks; rank++) check_rounds_of(w, rank, backward);
        check_progress(w, backward);
    }
}

/* ---- Waits ----------------------------------------------------------------------------------- */

enum { MOST_STEPS = 512, WORDS = MOST_STEPS / 64 };

/* The steps that have begun when a step starts: those it waits for, those they wait for, ...; and
 * those of them that have finished. */
static uint64_t begun[MOST_STEPS][WORDS], finished[MOST_STEPS][WORDS];

/* A round that only lends starts while steps that use what was lent before are in a queue. */
static bool overtakes(const struct ra__program *p, int index, int other)
{
    const struct ra__step *step = &p->steps[index];
    return step->op == RA__OP_EXCHANGE && ra__round_lends(p, &p->rounds[step->round]) &&
           (p->steps[other].op == RA__OP_ATTEND || p->steps[other].op == RA__OP_GRADIENT);
}

/* The buffers of read after write, write after read, write after write. */
static ra__buffer_set conflict(const struct ra__step *a, const struct ra__step *b)
{
    return (a->writes & (b->reads | b->writes)) | (a->reads & b->writes);
}

/* Lent sums come and go with the event of the step that added to them last, which is after all
 * steps before it. */
static bool has_events(const struct ra__program *p, int index, int other)
{
    const struct ra__step *a = &p->steps[index], *b = &p->steps[other];
    const ra__buffer_set sums = ra__buffer_bit(RA__SUM_OWN) | ra__buffer_bit(RA__SUM_A) |
                                ra__buffer_bit(RA__SUM_B);
    return p->lends && (conflict(a, b) & ~sums) == 0;
}

static void find_finished(const struct world *w, const struct ra__program *p, int index)
{
    const struct ra__step *step = &p->steps[index];
    memset(begun[index], 0, sizeof begun[index]);
    memset(finished[index], 0, sizeof finished[index]);
    for (int i = 0; i < step->wait_count; i++) {
        const int other = p->waits[step->first_wait + i];
        if (other < 0 || other >= index)
            fail_msg("%s: step %d waits for step %d", w->text, index, other);
        begun[index][other / 64] |= UINT64_C(1) << other % 64;
        for (int k = 0; k < WORDS; k++) begun[index][k] |= begun[other][k];
        if (overtakes(p, index, other)) continue;
        finished[index][other / 64] |= UINT64_C(1) << other % 64;
        for (int k = 0; k < WORDS; k++) finished[index][k] |= finished[other][k];
    }
}

static void check_waits_of(const struct world *w, const struct ra__program *p)
{
    int waits = 0;
    assert_true(p->step_count <= MOST_STEPS);
    for (int i = 0; i < p->step_count; i++) {
        assert_int_equal(p->steps[i].first_wait, waits);
        waits += p->steps[i].wait_count;
        find_finished(w, p, i);
        for (int j = 0; j < i; j++) {
            const uint64_t *before = overtakes(p, i, j) || has_events(p, i, j) ? begun[i]
                                                                               : finished[i];
            if (conflict(&p->steps[j], &p->steps[i]) && !(before[j / 64] >> j % 64 & 1))
                fail_msg("%s %s: step %d (%s) does not wait for step %d (%s)", w->text,
                         direction(p->direction), i, ra__step_name(&p->steps[i]), j,
                         ra__step_name(&p->steps[j]));
        }
    }
    assert_int_equal(waits, p->wait_count);
}

static void check_waits(const struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int backward = 0; backward < 2; backward++)
            check_waits_of(w, program_of(w, rank, backward));
}

/* Any steps, and any buffers. */
static void steps_of_any_program_wait(void **state)
{
    (void)state;
    enum { STEPS = 40, BUFFERS = 6 };
    for (unsigned seed = 1; seed <= 300; seed++) {
        struct world w = { .text = "random steps" };
        struct ra__step steps[STEPS] = { { 0 } };
        struct ra__program program = { .steps = steps, .step_count = STEPS };
        struct ra__builder builder = { .program = &program, .account = &w.account };
        uint32_t random = seed;
        for (int i = 0; i < STEPS; i++) {
            random = random * 1664525u + 1013904223u;
            steps[i].reads = random >> 8 & random >> 16 & ((1u << BUFFERS) - 1);
            steps[i].writes = random >> 12 & random >> 20 & random >> 4 & ((1u << BUFFERS) - 1);
        }
        assert_ok(ra__find_waits(&builder));
        check_waits_of(&w, &program);
        ra__free(program.waits);
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void check_all(const struct world *w)
{
    check_messages(w);
    check_order(w);
    check_rounds(w);
    check_waits(w);
}

static void programs_of_all_ranks_agree(void **state)
{
    (void)state;
    each_world(check_all);
}

static void programs_at_the_borders_agree(void **state)
{
    (void)state;
    each_odd_world(check_all);
}

/* Few queries against many keys: states of split keys are merged by steps of their own. */
static void split_keys_are_merged(void **state)
{
    (void)state;
    struct world w = { .n = 3, .k_len = 40000, .q_heads = 8, .kv_heads = 2, .unseen = true };
    each_way(&w, "causal", false, check_waits);
    for (int i = 0; i < REACHES; i++) {
        int merges = 0;
        world_open(&w, "full", 3, "contiguous", "ring");
        const struct ra__program *p = program_of(&w, 0, false);
        for (int k = 0; k < p->step_count; k++) merges += p->steps[k].op == RA__OP_MERGE;
        assert_int_equal(merges, 3);
        check_waits(&w);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_any_program_wait),
        cmocka_unit_test(programs_of_all_ranks_agree),
        cmocka_unit_test(programs_at_the_borders_agree),
        cmocka_unit_test(split_keys_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
