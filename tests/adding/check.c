/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - attention by the public API against a plain double-precision loop, over every
 * partition, strategy and a few rank counts: is a new pattern, kernel or transport used, and
 * right?
 * usage: check PATTERN KERNEL TRANSPORT      "-" = the default */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ringattn.h"

enum { N = 53, HEADS = 4, KV_HEADS = 2, DIM = 12, VALUE_DIM = 6, MOST_RANKS = 4 };
enum {
    Q = N * HEADS * DIM,
    K = N * KV_HEADS * DIM,
    V = N * KV_HEADS * VALUE_DIM,
    O = N * HEADS * VALUE_DIM
};

static float q[Q], k[K], v[V], dout[O];                        /* global order */
static float out[O], dq[Q], dk[K], dv[V];                      /* what the library says */
static double want_out[O], want_dq[Q], want_dk[K], want_dv[V]; /* what is true */
static const char *kernel, *transport;
static const ra_pattern *pattern;

static void stop(const char *what)
{
    fprintf(stderr, "check: %s: %s\n", what, ra_last_error());
    exit(1);
}

static void fill(float *x, int count, unsigned seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int)seed / 2147483648.0f;
    }
}

/* ---- The truth ------------------------------------------------------------------------------- */

/* One query and head: weights over all keys, then its output and gradients. */
static void attend_row(int i, int h, const uint8_t *seen)
{
    double p[N], sum = 0, delta = 0, scale = 1 / sqrt(DIM);
    int g = h * KV_HEADS / HEADS;
    const float *qi = q + (i * HEADS + h) * DIM, *doi = dout + (i * HEADS + h) * VALUE_DIM;
    double *oi = want_out + (i * HEADS + h) * VALUE_DIM;
    for (int j = 0; j < N; j++) {
        double x = 0;
        for (int d = 0; d < DIM; d++) x += (double)qi[d] * k[(j * KV_HEADS + g) * DIM + d];
        sum += p[j] = seen[j] * exp(x * scale);
    }
    for (int j = 0; j < N; j++)
        for (int d = 0; d < VALUE_DIM && sum > 0; d++)
            oi[d] += (p[j] /= d ? 1 : sum) * v[(j * KV_HEADS + g) * VALUE_DIM + d];
    for (int d = 0; d < VALUE_DIM; d++) delta += oi[d] * doi[d];
    for (int j = 0; j < N; j++) {
        double dp = 0;
        for (int d = 0; d < VALUE_DIM; d++) dp += doi[d] * v[(j * KV_HEADS + g) * VALUE_DIM + d];
        double ds = p[j] * (dp - delta) * scale;
        for (int d = 0; d < VALUE_DIM; d++)
            want_dv[(j * KV_HEADS + g) * VALUE_DIM + d] += p[j] * doi[d];
        for (int d = 0; d < DIM; d++) {
            want_dk[(j * KV_HEADS + g) * DIM + d] += ds * qi[d];
            want_dq[(i * HEADS + h) * DIM + d] += ds * k[(j * KV_HEADS + g) * DIM + d];
        }
    }
}

/* The example's pattern has its formula here once more; others are taken from the library. */
static void check_example(const char *text, int i, const uint8_t *seen)
{
    long a, b;
    if (sscanf(text, "distances:%ld,%ld", &a, &b) != 2 || strchr(text, ';')) return;
    for (int j = 0; j < N; j++)
        if (seen[j] != (i - j == a || i - j == b)) stop("the pattern sees other keys");
}

static ra_problem make_problem(void)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern, problem.q_len = N, problem.q_heads = HEADS,
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM, problem.value_dim = VALUE_DIM;
    return problem;
}

static void find_truth(const char *text)
{
    ra_problem problem = make_problem();
    for (int i = 0; i < N; i++)
        for (int h = 0; h < HEADS; h++) {
            uint8_t seen[N];
            if (ra_problem_row(&problem, h, i, seen) != RA_OK) stop("row");
            check_example(text, i, seen);
            attend_row(i, h, seen);
        }
}

/* ---- The library ----------------------------------------------------------------------------- */

struct choice {
    const char *partition, *strategy;
    const ra_layout *layout;
};

/* The example's transport is slow: a run that took less time went another way. */
static void check_wire(const ra_plan *plan)
{
    ra_stats stats = ra_stats_default();
    if (!transport || strcmp(transport, "paced")) return;
    if (ra_plan_stats(plan, &stats) != RA_OK) stop("stats");
    if (stats.seconds < 1e-6 * (double)stats.bytes_received / 2) stop("another transport was used");
}

/* One rank: its shards, forward, backward, and its results back in global order. */
static ra_status run_rank(ra_group *group, void *context)
{
    const struct choice *choice = context;
    int rank = ra_group_rank(group);
    static const size_t wide = HEADS * DIM * sizeof(float), narrow = KV_HEADS * DIM * sizeof(float);
    static const size_t values = KV_HEADS * VALUE_DIM * sizeof(float),
                        rows = HEADS * VALUE_DIM * sizeof(float);
    float sq[Q], sk[K], sv[V], so[O], sdo[O], sdq[Q], sdk[K], sdv[V], lse[N * HEADS];
    ra_array in[] = {
        { q, sq, 1, wide }, { k, sk, 1, narrow }, { v, sv, 1, values }, { dout, sdo, 1, rows }
    };
    ra_array back[] = {
        { so, out, 1, rows }, { sdq, dq, 1, wide }, { sdk, dk, 1, narrow }, { sdv, dv, 1, values }
    };
    ra_problem problem = make_problem();
    ra_plan_options options = ra_plan_options_default();
    options.partition = choice->partition, options.strategy = choice->strategy;
    options.kernel = kernel, options.backward = 1;
    ra_plan *plan;
    ra_status status = ra_layout_take(choice->layout, rank, in, 4);
    if (status == RA_OK) status = ra_plan_create(group, &problem, &options, &plan);
    if (status != RA_OK) return status;
    if (kernel && strcmp(ra_plan_kernel(plan), kernel)) stop("another kernel was used");
    ra_attend_args a = ra_attend_args_default();
    a.q = ra_const_tensor_packed(sq), a.k = ra_const_tensor_packed(sk);
    a.v = ra_const_tensor_packed(sv);
    a.out = ra_tensor_packed(so), a.lse = lse;
    status = ra_attend(plan, &a);
    if (status == RA_OK) check_wire(plan);
    ra_gradient_args b = ra_gradient_args_default();
    b.q = a.q, b.k = a.k, b.v = a.v, b.out = ra_tensor_read(a.out), b.lse = lse;
    b.dout = ra_const_tensor_packed(sdo);
    b.dq = ra_tensor_packed(sdq), b.dk = ra_tensor_packed(sdk), b.dv = ra_tensor_packed(sdv);
    if (status == RA_OK) status = ra_gradient(plan, &b);
    if (status == RA_OK) status = ra_layout_give(choice->layout, rank, back, 1);
    if (status == RA_OK) status = ra_layout_give(choice->layout, rank, back + 1, 1);
    if (status == RA_OK) status = ra_layout_give(choice->layout, rank, back + 2, 2);
    ra_plan_destroy(plan);
    return status;
}

static void compare(const char *name, const float *got, const double *want, int count)
{
    for (int i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) < 2e-5)) {
            fprintf(stderr, "check: %s[%d] is %.9g, should be %.9g\n", name, i, got[i], want[i]);
            exit(1);
        }
}

static void run_ranks(const struct choice *given, int ranks)
{
    ra_group *groups[MOST_RANKS];
    ra_layout *layout;
    struct choice choice = *given;
    if (ra_group_create(transport, ranks, NULL, groups) != RA_OK) stop("group");
    if (ra_layout_create(choice.partition, N, ranks, pattern, &layout) != RA_OK) stop("layout");
    choice.layout = layout;
    if (ra_group_run(groups, ranks, run_rank, &choice) != RA_OK) stop("run");
    for (int rank = 0; rank < ranks; rank++) ra_group_destroy(groups[rank]);
    ra_layout_destroy(layout);
    compare("out", out, want_out, O);
    compare("dq", dq, want_dq, Q);
    compare("dk", dk, want_dk, K);
    compare("dv", dv, want_dv, V);
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    const char *text = strcmp(argv[1], "-") ? argv[1] : "causal";
    kernel = strcmp(argv[2], "-") ? argv[2] : NULL;
    transport = strcmp(argv[3], "-") ? argv[3] : NULL;
    ra_pattern *parsed;
    if (ra_pattern_parse(text, &parsed) != RA_OK) stop("pattern");
    pattern = parsed;
    fill(q, Q, 1), fill(k, K, 2), fill(v, V, 3), fill(dout, O, 4);
    find_truth(text);
    ra_part partition = ra_part_default(), strategy = ra_part_default();
    int runs = 0;
    for (int p = 0; ra_part_at("partition", p, &partition) == RA_OK; p++)
        for (int s = 0; ra_part_at("strategy", s, &strategy) == RA_OK; s++)
            for (int ranks = 1; ranks <= (strcmp(strategy.name, "stream") ? MOST_RANKS : 1);
                 ranks++, runs++)
                run_ranks(&(struct choice){ partition.name, strategy.name, NULL }, ranks);
    ra_pattern_destroy(parsed);
    if (ra_allocated_bytes()) stop("memory is still held");
    printf("%s %s %s: %d runs agree\n", argv[1], argv[2], argv[3], runs);
    return 0;
}
