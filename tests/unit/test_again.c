/* SPDX-License-Identifier: Apache-2.0 */
/* test_again.c - a plan runs again and again without taking memory, and gives the same bits each
 * time: every pattern and strategy, so with head sets, pieces and families. */
#include "support/counter.h"
#include "support/walk.h"

enum { N = 50, HEADS = 4, KV_HEADS = 2, DIM = 8, MOST_RANKS = 4, ROUNDS = 3 };
enum { WIDE = N * HEADS * DIM, NARROW = N * KV_HEADS * DIM };

/* One rank's part; shards are no longer than the whole. */
struct part {
    ra_plan *plan;
    float q[WIDE], k[NARROW], v[NARROW], dout[WIDE], lse[N * HEADS];
    float out[WIDE], dq[WIDE], dk[NARROW], dv[NARROW];
};

struct world {
    ra_problem problem;
    ra_plan_options options;
    struct part part[MOST_RANKS];
};

static ra_status make_plan(ra_group *group, void *context)
{
    struct world *w = context;
    return ra_plan_create(group, &w->problem, &w->options, &w->part[ra_group_rank(group)].plan);
}

static ra_status run_both(ra_group *group, void *context)
{
    struct part *p = &((struct world *)context)->part[ra_group_rank(group)];
    ra_attend_args a = ra_attend_args_default();
    a.q = ra_const_tensor_packed(p->q);
    a.k = ra_const_tensor_packed(p->k);
    a.v = ra_const_tensor_packed(p->v);
    a.out = ra_tensor_packed(p->out);
    a.lse = p->lse;
    ra_status status = ra_attend(p->plan, &a);
    if (status != RA_OK) return status;
    ra_gradient_args g = ra_gradient_args_default();
    g.q = a.q;
    g.k = a.k;
    g.v = a.v;
    g.out = ra_tensor_read(a.out);
    g.lse = p->lse;
    g.dout = ra_const_tensor_packed(p->dout);
    g.dq = ra_tensor_packed(p->dq);
    g.dk = ra_tensor_packed(p->dk);
    g.dv = ra_tensor_packed(p->dv);
    return ra_gradient(p->plan, &g);
}

static void fill(float *numbers, int count, uint32_t seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

static void fill_part(struct part *p, uint32_t rank)
{
    fill(p->q, WIDE, rank + 1);
    fill(p->k, NARROW, rank + 11);
    fill(p->v, NARROW, rank + 21);
    fill(p->dout, WIDE, rank + 31);
}

static void check(const char *sample, const char *strategy, const char *order_text, int ranks)
{
    static struct world w, first;
    struct counter counter;
    ra_group *groups[MOST_RANKS];
    ra_group_options options = ra_group_options_default();
    ra_pattern *pattern;
    ra_order *order;
    counter_install(&counter);
    memset(&w, 0, sizeof w);
    options.threads = 2;
    assert_ok(ra_pattern_parse(sample, &pattern));
    assert_ok(ra_order_parse(order_text, N, &order));
    w.problem = ra_problem_default();
    w.problem.pattern = pattern;
    w.problem.order = order;
    w.problem.q_len = N;
    w.problem.q_heads = HEADS;
    w.problem.kv_heads = KV_HEADS;
    w.problem.dim = DIM;
    w.options = ra_plan_options_default();
    w.options.strategy = strategy;
    w.options.partition = "zigzag";
    w.options.backward = 1;
    assert_ok(ra_group_create_local(ranks, &options, groups));
    assert_ok(ra_group_run(groups, ranks, make_plan, &w));
    for (int rank = 0; rank < ranks; rank++) fill_part(&w.part[rank], (uint32_t)rank);
    for (int round = 0; round < ROUNDS; round++) {
        size_t calls = atomic_load(&counter.calls);
        assert_ok(ra_group_run(groups, ranks, run_both, &w));
        size_t taken = atomic_load(&counter.calls) - calls - 1; /* its list of threads */
        if (taken) fail_msg("%s %s ring=%d: allocated %zu times", sample, strategy, ranks, taken);
        if (round == 0) first = w;
        if (memcmp(&first, &w, sizeof w))
            fail_msg("%s %s ring=%d: other bits in round %d", sample, strategy, ranks, round);
    }
    for (int rank = 0; rank < ranks; rank++) {
        ra_plan_destroy(w.part[rank].plan);
        ra_group_destroy(groups[rank]);
    }
    ra_order_destroy(order);
    ra_pattern_destroy(pattern);
    counter_remove(&counter);
}

static void running_again_takes_nothing(void **state)
{
    (void)state;
    char sample[64];
    ra_part strategy;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int ranks = 1; ranks <= MOST_RANKS; ranks += 3)
                check(sample, strategy.name, i % 2 ? "sequential" : "hilbert", ranks);
}

/* Rows and keys that stand alone have steps of any size. */
static void the_largest_rates_run(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "dilated:8/2305843009213693951,8/3",
        "dilated:2305843009213693951/2305843009213693950,9/7;dedup",
        "blocks:4;dilated=2305843009213693951/2;strided=2305843009213693951",
    };
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        check(texts[i], "ring", "sequential", MOST_RANKS);
        check(texts[i], "allgather", "hilbert", MOST_RANKS);
        check(texts[i], "ring", "sequential", 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_again_takes_nothing),
        cmocka_unit_test(the_largest_rates_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
