/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c - the timeline accounts for every step of a program, and for all of a run's time. */
#include "support/test.h"

#include <stdlib.h>

#include "api/handles.h"

enum { RANKS = 3, MOST_EVENTS = 400, N = 1500, HEADS = 2, DIM = 32 };

struct rank_events {
    ra_trace_event list[MOST_EVENTS];
    int count;
};
static struct rank_events events[RANKS];

static void note(void *context, const ra_trace_event *event)
{
    struct rank_events *own = &events[event->rank];
    (void)context;
    if (own->count < MOST_EVENTS) own->list[own->count++] = *event;
}

struct shard {
    ra_plan *plan;
    float *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
    ra_stats forward, backward;
};

struct world {
    ra_group *groups[RANKS];
    ra_pattern *pattern;
    const char *strategy;
    struct shard shards[RANKS];
};

static float *numbers(int64_t tokens, int width)
{
    const size_t count = (size_t)tokens * HEADS * (size_t)width;
    float *data = calloc(count + 1, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 37) % 101) / 101.0f - 0.5f;
    return data;
}

static ra_status make_plan(ra_group *group, void *context)
{
    struct world *w = context;
    struct shard *s = &w->shards[ra_group_rank(group)];
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    problem.pattern = w->pattern;
    problem.q_len = N;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    options.strategy = w->strategy;
    options.backward = 1;
    return ra_plan_create(group, &problem, &options, &s->plan);
}

static ra_status run_forward(ra_group *group, void *context)
{
    struct world *w = context;
    struct shard *s = &w->shards[ra_group_rank(group)];
    ra_attend_args args = ra_attend_args_default();
    args.q.data = s->q;
    args.k.data = s->k;
    args.v.data = s->v;
    args.out.data = s->out;
    args.lse = s->lse;
    ra_status status = ra_attend(s->plan, &args);
    s->forward = ra_stats_default();
    return status == RA_OK ? ra_plan_stats(s->plan, &s->forward) : status;
}

static ra_status run_backward(ra_group *group, void *context)
{
    struct world *w = context;
    struct shard *s = &w->shards[ra_group_rank(group)];
    ra_gradient_args args = ra_gradient_args_default();
    args.q.data = s->q;
    args.k.data = s->k;
    args.v.data = s->v;
    args.out.data = s->out;
    args.lse = s->lse;
    args.dout.data = s->dout;
    args.dq.data = s->dq;
    args.dk.data = s->dk;
    args.dv.data = s->dv;
    ra_status status = ra_gradient(s->plan, &args);
    s->backward = ra_stats_default();
    return status == RA_OK ? ra_plan_stats(s->plan, &s->backward) : status;
}

static void open_world(struct world *w, const char *pattern, const char *strategy)
{
    ra_group_options options = ra_group_options_default();
    *w = (struct world){ .strategy = strategy };
    options.trace = note;
    options.threads = 1;
    assert_ok(ra_pattern_parse(pattern, &w->pattern));
    assert_ok(ra_group_create_local(RANKS, &options, w->groups));
    assert_ok(ra_group_run(w->groups, RANKS, make_plan, w));
    for (int i = 0; i < RANKS; i++) {
        struct shard *s = &w->shards[i];
        float **const all[] = { &s->q, &s->k, &s->v, &s->out, &s->dout, &s->dq, &s->dk, &s->dv };
        for (int t = 0; t < TEST_COUNT(all); t++) *all[t] = numbers(N, DIM);
        s->lse = numbers(N, 1);
    }
}

static void close_world(struct world *w)
{
    for (int i = 0; i < RANKS; i++) {
        struct shard *s = &w->shards[i];
        float *const all[] = { s->q, s->k, s->v, s->out, s->lse, s->dout, s->dq, s->dk, s->dv };
        for (int t = 0; t < TEST_COUNT(all); t++) free(all[t]);
        ra_plan_destroy(s->plan);
        ra_group_destroy(w->groups[i]);
    }
    ra_pattern_destroy(w->pattern);
}

/* Events of this name; rounds are waited for as often as they are posted. */
static int count_events(int rank, const char *name)
{
    int count = 0;
    for (int i = 0; i < events[rank].count; i++)
        count += strcmp(events[rank].list[i].name, name) == 0;
    return count;
}

/* Every step once, by its name, and a wait for every round. */
static void check_rank(int rank, const struct ra__program *program)
{
    int rounds = 0;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        int same = 0;
        for (int n = 0; n < program->step_count; n++)
            same += strcmp(ra__step_name(&program->steps[n]), ra__step_name(step)) == 0;
        assert_int_equal(count_events(rank, ra__step_name(step)), same);
        rounds += step->op == RA__OP_EXCHANGE;
    }
    assert_int_equal(count_events(rank, "wait"), rounds);
    assert_int_equal(events[rank].count, program->step_count + rounds);
}

/* The part of a run that its steps account for. The rest is the time between them. */
static double accounted(int rank, double seconds)
{
    double sum = 0.0;
    for (int i = 0; i < events[rank].count; i++) sum += events[rank].list[i].seconds;
    assert_true(sum <= seconds);
    return sum / seconds;
}

/* A busy machine may take a core away between two steps, so the best of several runs counts; the
 * first one has a handshake, too. */
static void check_direction(struct world *w, bool backward)
{
    enum { TRIES = 50 };
    double best[RANKS] = { 0.0 };
    bool enough = false;
    for (int i = 0; i < TRIES && !enough; i++) {
        memset(events, 0, sizeof events);
        assert_ok(ra_group_run(w->groups, RANKS, backward ? run_backward : run_forward, w));
        enough = true;
        for (int rank = 0; rank < RANKS; rank++) {
            const struct shard *s = &w->shards[rank];
            check_rank(rank, backward ? &s->plan->programs.backward : &s->plan->programs.forward);
            double part = accounted(rank, (backward ? s->backward : s->forward).seconds);
            if (part > best[rank]) best[rank] = part;
            enough = enough && best[rank] > 0.95;
        }
    }
    assert_true(enough);
}

static void the_timeline_is_the_run(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "causal", "ring" },   { "full", "allgather" },           { "window:100", "ring" },
        { "causal", "2d:3x1" }, { "dilated:200/1,500/3", "ring" },
    };
    for (int c = 0; c < TEST_COUNT(cases); c++) {
        struct world w;
        open_world(&w, cases[c][0], cases[c][1]);
        for (int backward = 0; backward < 2; backward++) check_direction(&w, backward);
        close_world(&w);
    }
    assert_int_equal(ra_allocated_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_timeline_is_the_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
