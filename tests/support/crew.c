/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c - see crew.h. */
#include "support/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double crew_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void crew_sleep(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

bool crew_long(void)
{
    const char *text = getenv("RINGATTN_LONG");
    return text && *text && strcmp(text, "0");
}

static void bark(int signal)
{
    (void)signal;
    static const char text[] = "the watchdog barked: a test hangs\n";
    ssize_t written = write(2, text, sizeof text - 1);
    (void)written;
    _exit(99);
}

void crew_watchdog(int seconds)
{
    signal(SIGALRM, bark);
    alarm((unsigned)seconds);
}

/* ---- The problem ----------------------------------------------------------------------------- */

static float *take_floats(int64_t count)
{
    float *data = calloc((size_t)count + 1, sizeof *data);
    assert_non_null(data);
    return data;
}

static float *make_noise(int64_t count, uint32_t seed)
{
    float *data = take_floats(count);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(int32_t)seed / 2147483648.0f;
    }
    return data;
}

static void fill_defaults(struct crew_case *is)
{
    if (!is->ranks) is->ranks = 3;
    if (!is->q_len) is->q_len = 37;
    if (!is->k_len) is->k_len = is->q_len;
    if (!is->q_heads) is->q_heads = 2;
    if (!is->kv_heads) is->kv_heads = is->q_heads;
    if (!is->dim) is->dim = 8;
    if (!is->value_dim) is->value_dim = is->dim;
    if (!is->repeat) is->repeat = 1;
}

static void make_data(struct crew *crew)
{
    const struct crew_case *is = &crew->is;
    int64_t q = is->q_len * is->q_heads, k = is->k_len * is->kv_heads;
    crew->q = make_noise(q * is->dim, 1);
    crew->k = make_noise(k * is->dim, 2);
    crew->v = make_noise(k * is->value_dim, 3);
    crew->dout = make_noise(q * is->value_dim, 4);
    crew->dlse = make_noise(q, 5);
    crew->floats = (size_t)(q * (is->value_dim + 1 + is->dim) + k * (is->dim + is->value_dim));
    crew->results = take_floats((int64_t)crew->floats);
    crew->out = crew->results;
    crew->lse = crew->out + q * is->value_dim;
    crew->dq = crew->lse + q;
    crew->dk = crew->dq + q * is->dim;
    crew->dv = crew->dk + k * is->dim;
}

static void make_rank(struct crew *crew, int rank)
{
    const struct crew_case *is = &crew->is;
    struct crew_rank *r = &crew->at[rank];
    r->crew = crew;
    r->rank = rank;
    r->problem = ra_problem_default();
    r->problem.pattern = crew->pattern;
    r->problem.q_len = is->q_len;
    r->problem.k_len = is->k_len;
    r->problem.q_heads = is->q_heads;
    r->problem.kv_heads = is->kv_heads;
    r->problem.dim = is->dim;
    r->problem.value_dim = is->value_dim;
    r->options = ra_plan_options_default();
    r->options.strategy = is->strategy;
    r->options.partition = is->partition;
    r->options.backward = !is->forward_only;
    atomic_init(&r->done, false);
}

void crew_open(struct crew *crew, const struct crew_case *is, const ra_group_options *options)
{
    memset(crew, 0, sizeof *crew);
    crew->is = *is;
    fill_defaults(&crew->is);
    is = &crew->is;
    assert_true(is->ranks <= CREW_MOST);
    assert_int_equal(ra_pattern_parse(is->pattern ? is->pattern : "full", &crew->pattern), RA_OK);
    assert_int_equal(
        ra_layout_create(is->partition, is->q_len, is->ranks, crew->pattern, &crew->q_layout),
        RA_OK);
    assert_int_equal(
        ra_layout_create(is->partition, is->k_len, is->ranks, crew->pattern, &crew->k_layout),
        RA_OK);
    make_data(crew);
    for (int rank = 0; rank < is->ranks; rank++) make_rank(crew, rank);
    if (!options) return;
    ra_group *groups[CREW_MOST];
    const char *transport = getenv("RINGATTN_TEST_TRANSPORT");
    assert_int_equal(ra_group_create(transport, is->ranks, options, groups), RA_OK);
    for (int rank = 0; rank < is->ranks; rank++) crew->at[rank].group = groups[rank];
}

void crew_close(struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++) ra_group_destroy(crew->at[rank].group);
    ra_layout_destroy(crew->q_layout);
    ra_layout_destroy(crew->k_layout);
    ra_pattern_destroy(crew->pattern);
    float *buffers[] = { crew->q, crew->k, crew->v, crew->dout, crew->dlse, crew->results };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) free(buffers[i]);
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* ---- One rank -------------------------------------------------------------------------------- */

/* The tensors of one rank's shard. A rank whose problem was changed by a test never gets so far
 * as to read them, but they must be there. */
struct shard {
    float *q, *k, *v, *out, *lse, *dout, *dlse, *dq, *dk, *dv;
};

static float *take_shard(const ra_layout *layout, int rank, const float *from, int64_t width)
{
    float *shard = take_floats(layout ? ra_layout_count(layout, rank) * width : 0);
    ra_array array = { from, shard, 1, (size_t)width * sizeof(float) };
    if (from) ra_layout_take(layout, rank, &array, 1);
    return shard;
}

static void give_shard(const ra_layout *layout, int rank, const float *shard, int64_t width,
                       float *to)
{
    ra_array array = { shard, to, 1, (size_t)width * sizeof(float) };
    ra_layout_give(layout, rank, &array, 1);
}

static struct shard shard_open(const struct crew *crew, int rank)
{
    const struct crew_case *is = &crew->is;
    int64_t q = (int64_t)is->q_heads * is->dim, o = (int64_t)is->q_heads * is->value_dim;
    int64_t k = (int64_t)is->kv_heads * is->dim, v = (int64_t)is->kv_heads * is->value_dim;
    return (struct shard){
        .q = take_shard(crew->q_layout, rank, crew->q, q),
        .k = take_shard(crew->k_layout, rank, crew->k, k),
        .v = take_shard(crew->k_layout, rank, crew->v, v),
        .out = take_shard(crew->q_layout, rank, NULL, o),
        .lse = take_shard(crew->q_layout, rank, NULL, is->q_heads),
        .dout = take_shard(crew->q_layout, rank, crew->dout, o),
        .dlse = take_shard(crew->q_layout, rank, crew->dlse, is->q_heads),
        .dq = take_shard(crew->q_layout, rank, NULL, q),
        .dk = take_shard(crew->k_layout, rank, NULL, k),
        .dv = take_shard(crew->k_layout, rank, NULL, v),
    };
}

static void shard_close(struct crew *crew, int rank, struct shard *s, bool give)
{
    const struct crew_case *is = &crew->is;
    if (give) {
        give_shard(crew->q_layout, rank, s->out, (int64_t)is->q_heads * is->value_dim, crew->out);
        give_shard(crew->q_layout, rank, s->lse, is->q_heads, crew->lse);
        give_shard(crew->q_layout, rank, s->dq, (int64_t)is->q_heads * is->dim, crew->dq);
        give_shard(crew->k_layout, rank, s->dk, (int64_t)is->kv_heads * is->dim, crew->dk);
        give_shard(crew->k_layout, rank, s->dv, (int64_t)is->kv_heads * is->value_dim, crew->dv);
    }
    float *all[] = { s->q, s->k, s->v, s->out, s->lse, s->dout, s->dlse, s->dq, s->dk, s->dv };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

static ra_status attend(struct crew_rank *r, ra_plan *plan, const struct shard *s)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(s->q);
    args.k = ra_const_tensor_packed(s->k);
    args.v = ra_const_tensor_packed(s->v);
    args.out = ra_tensor_packed(s->out);
    args.lse = s->lse;
    args.progress = r->progress;
    args.context = r;
    return ra_attend(plan, &args);
}

static ra_status gradient(struct crew_rank *r, ra_plan *plan, const struct shard *s)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = ra_const_tensor_packed(s->q);
    args.k = ra_const_tensor_packed(s->k);
    args.v = ra_const_tensor_packed(s->v);
    args.out = ra_const_tensor_packed(s->out);
    args.lse = s->lse;
    args.dout = ra_const_tensor_packed(s->dout);
    args.dlse = s->dlse;
    args.dq = ra_tensor_packed(s->dq);
    args.dk = ra_tensor_packed(s->dk);
    args.dv = ra_tensor_packed(s->dv);
    args.progress = r->progress;
    args.context = r;
    return ra_gradient(plan, &args);
}

static ra_status run_plan(struct crew_rank *r, ra_plan *plan, const struct shard *s)
{
    ra_status status = RA_OK;
    for (int i = 0; i < r->crew->is.repeat && status == RA_OK; i++) {
        status = attend(r, plan, s);
        if (status == RA_OK && r->options.backward) status = gradient(r, plan, s);
    }
    return status;
}

static void *rank_main(void *argument)
{
    struct crew_rank *r = argument;
    struct crew *crew = r->crew;
    struct shard shard = shard_open(crew, r->rank);
    double start = crew_now();
    ra_plan *plan = NULL;
    r->status = ra_plan_create(r->group, &r->problem, &r->options, &plan);
    if (r->status == RA_OK) r->status = run_plan(r, plan, &shard);
    r->seconds = crew_now() - start;
    snprintf(r->sentence, sizeof r->sentence, "%s", r->status == RA_OK ? "" : ra_last_error());
    if (crew->run_again && plan) r->again = attend(r, plan, &shard);
    ra_plan_destroy(plan);
    shard_close(crew, r->rank, &shard, r->status == RA_OK);
    atomic_store(&r->done, true);
    return NULL;
}

/* ---- All ranks ------------------------------------------------------------------------------- */

void crew_start_rank(struct crew *crew, int rank)
{
    struct crew_rank *r = &crew->at[rank];
    assert_int_equal(pthread_create(&r->thread, NULL, rank_main, r), 0);
    r->started = true;
}

void crew_start(struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++) crew_start_rank(crew, rank);
}

/* Some rank hangs: ends all of them, so that the other tests can go on. */
static void give_up(struct crew *crew)
{
    for (int i = 0; i < crew->is.ranks; i++)
        ra_group_abort(crew->at[i].group, "the test lost patience");
    for (int i = 0; i < crew->is.ranks; i++)
        if (crew->at[i].started) pthread_join(crew->at[i].thread, NULL);
    crew_fail(crew, "a rank hangs");
}

void crew_join_rank(struct crew *crew, int rank)
{
    struct crew_rank *r = &crew->at[rank];
    if (!r->started) return;
    double until = crew_now() + (crew->patience > 0 ? crew->patience : 20);
    while (!atomic_load(&r->done)) {
        if (crew_now() > until) give_up(crew);
        crew_sleep(0.0002);
    }
    pthread_join(r->thread, NULL);
    r->started = false;
}

void crew_join(struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++) crew_join_rank(crew, rank);
}

void crew_run(struct crew *crew)
{
    crew_start(crew);
    crew_join(crew);
}

void crew_fail(const struct crew *crew, const char *why)
{
    const struct crew_case *is = &crew->is;
    print_error("%s n=%lld/%lld ring=%d %s %s: %s\n", is->pattern ? is->pattern : "full",
                (long long)is->q_len, (long long)is->k_len, is->ranks,
                is->partition ? is->partition : "contiguous", is->strategy ? is->strategy : "ring",
                why);
    for (int rank = 0; rank < is->ranks; rank++) {
        const struct crew_rank *r = &crew->at[rank];
        print_error("    rank %d: %s after %.3f s: %s\n", rank, ra_status_name(r->status),
                    r->seconds, r->sentence);
    }
    fail();
}

void crew_expect_ok(const struct crew *crew)
{
    for (int rank = 0; rank < crew->is.ranks; rank++)
        if (crew->at[rank].status != RA_OK) crew_fail(crew, "every rank should have ended well");
}

void crew_expect(const struct crew *crew, int rank, ra_status status, const char *words)
{
    const struct crew_rank *r = &crew->at[rank];
    char why[256];
    snprintf(why, sizeof why, "rank %d should have ended with %s, saying \"%s\"", rank,
             ra_status_name(status), words ? words : "...");
    if (r->status != status || (words && !strstr(r->sentence, words))) crew_fail(crew, why);
}
