/* SPDX-License-Identifier: Apache-2.0 */
/* rivals.c - our kernel and the attention of PyTorch take turns. */
#include "rivals.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "child.h"
#include "gauge.h"
#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/check/check.h"
#include "harness/text/text.h"

#define TURN_SECONDS 0.5   /* of a sustained turn: long enough for the clock to follow the power */
#define TURN_LEAST 0.02    /* where little time is given for all */
#define BATCH_SECONDS 0.02 /* of calls between two looks at the clock, as in rivals.py */
#define PAUSE_SECONDS 0.05 /* before a single shot, unless turns are shorter */
#define WRONG 10.0         /* times the bound of our own results: another mask is far beyond it */

enum { SHOTS = 5 /* of a turn */, BATCH_MOST = 1000, NAMES = 4 };
static const char *const names[NAMES] = { "cudnn", "flash", "efficient", "flex" };
static const char *const passes[] = { "forward", "backward" };

/* What an implementation did in each round of a pass. */
struct turns {
    double seconds[CASE_RUNS_MOST]; /* of a call in a row of them */
    double singles[CASE_RUNS_MOST]; /* of one call after a pause, median of a few */
    double clocks[CASE_RUNS_MOST], powers[CASE_RUNS_MOST];
};

/* One pass of one rival. */
struct contest {
    const char *name;
    int pass;
    char absent[240]; /* why there are no figures; "": there are */
    bool checked;
    double error, error_bound;
    struct turns turns;
};

struct rivals {
    struct rivals_setup setup;
    struct child child;
    struct gauge *gauge; /* NULL: none */
    struct turns ours[2];
    struct contest contests[2 * NAMES];
    int count;
    double turn_seconds, pause_seconds;
    char library[64];
    struct row rows[2];
};

/* ---- Names ----------------------------------------------------------------------------------- */

const char *rivals_at(int index) { return index >= 0 && index < NAMES ? names[index] : NULL; }

bool rivals_named(const char *list, const char *name)
{
    const size_t length = strlen(name);
    if (!strcmp(list, "all")) return true;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, name, length)) return true;
    return false;
}

static int refuse_name(const char *name)
{
    struct string known = { .lost = false };
    for (int i = 0; i < NAMES; i++) string_add(&known, "%s, ", names[i]);
    int status = refuse("--rivals: there is no rival \"%.40s\"; there are %sall and no", name,
                        known.s ? known.s : "");
    string_free(&known);
    return status;
}

int rivals_check(const char *list)
{
    char name[24];
    if (!strcmp(list, "all") || !strcmp(list, "no")) return EXIT_PASS;
    for (const char *at = list;; at += strcspn(at, ",") + 1) {
        int known = 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        for (int i = 0; i < NAMES; i++) known += !strcmp(names[i], name);
        if (!known) return refuse_name(name);
        if (!at[strcspn(at, ",")]) return EXIT_PASS;
    }
}

int rivals_check_trial(const struct trial *t)
{
    const bool terms = t->alibi || t->bias || t->sinks || t->softcap > 0.0 || t->dropout > 0.0;
    const bool plain = t->ranks == 1 && !t->order && !t->seqs && !t->query_offset && !terms;
    if (!plain || t->value_dim != t->dim || t->scale > 0.0 || t->strides != STRIDES_PACKED ||
        !strncmp(t->strategy, "stream", 6))
        return refuse("--rivals: one rank, packed tensors in sequential order, one dim, and no "
                      "score terms");
    return EXIT_PASS;
}

/* ---- The other process ----------------------------------------------------------------------- */

static void lose(struct contest *contest, const struct row *answer)
{
    snprintf(contest->absent, sizeof contest->absent, "%s", answer->absent);
}

static void lose_all(struct rivals *r, const struct row *answer)
{
    for (int i = 0; i < r->count; i++)
        if (!*r->contests[i].absent) lose(&r->contests[i], answer);
}

static bool any_left(const struct rivals *r)
{
    for (int i = 0; i < r->count; i++)
        if (!*r->contests[i].absent) return true;
    return false;
}

static int start(struct rivals *r)
{
    const struct trial *t = r->setup.engine->trial;
    const struct child_setup setup = { .device = *t->device ? t->device : "cpu",
                                       .threads = r->setup.engine->threads,
                                       .file = r->setup.shared->file,
                                       .timeout = r->setup.timeout };
    struct row answer;
    int status = child_start(&r->child, &setup, &answer);
    if (!status && r->child.alive) {
        snprintf(r->library, sizeof r->library, "%s", answer.library);
        status = child_ask(&r->child, &answer,
                           "problem %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                           " %" PRId64 " %d\n",
                           t->pattern ? t->pattern : "full", half_name((ra_dtype)t->dtype),
                           t->batch, t->q_len, t->k_len, t->q_heads, t->kv_heads, t->dim,
                           t->backward);
    }
    if (!status && *answer.absent) {
        lose_all(r, &answer);
        child_stop(&r->child);
    }
    return status;
}

/* Its results are where the engine's would be, for the time of a look at them. */
static int check_results(struct rivals *r, int pass, struct check *check)
{
    static const enum tensor results[2][3] = { { TENSOR_OUT, TENSOR_OUT, TENSOR_OUT },
                                               { TENSOR_DQ, TENSOR_DK, TENSOR_DV } };
    struct view *views = r->setup.engine->rank[0].views;
    char *ours[3];
    for (int i = 0; i < 3; i++) ours[i] = views[results[pass][i]].data;
    for (int i = 0; i < 3; i++)
        views[results[pass][i]].data = r->setup.shared->views[results[pass][i]].data;
    int status = check_engine(r->setup.engine, check);
    for (int i = 0; i < 3; i++) views[results[pass][i]].data = ours[i];
    return status;
}

static int judge(struct rivals *r, struct contest *contest)
{
    struct check check;
    int status = check_results(r, contest->pass, &check);
    if (status) return status;
    for (int i = 0; i < check.count; i++)
        if (!strcmp(check.lines[i].name, contest->pass ? "dq" : "out")) {
            contest->error = check.lines[i].error;
            contest->error_bound = check.lines[i].bound;
        }
    contest->checked = true;
    const bool no_number = !check.passed && check.worst <= 1.0; /* NaN where one is due */
    if (check.worst > WRONG || no_number)
        snprintf(contest->absent, sizeof contest->absent, "its result is wrong: %.160s",
                 check.what);
    return EXIT_PASS;
}

/* Calls, compiled and warmed up, and whether they compute what we do. */
static int prepare(struct rivals *r, struct contest *contest)
{
    struct row answer;
    int status = child_ask(&r->child, &answer, "prepare %s %s\n", contest->name,
                           passes[contest->pass]);
    if (!status && *answer.absent) lose(contest, &answer);
    else if (!status && !contest->checked) status = judge(r, contest);
    return status;
}

/* A process that ended is started again for the rivals that are left: what ended it has lost its
 * place, so this comes to an end. */
static int make_ready(struct rivals *r)
{
    int status = EXIT_PASS;
    while (!r->child.alive && any_left(r) && !status) {
        status = start(r);
        for (int i = 0; i < r->count && r->child.alive && !status; i++)
            if (!*r->contests[i].absent) status = prepare(r, &r->contests[i]);
    }
    return status;
}

/* ---- Turns ----------------------------------------------------------------------------------- */

/* Seconds of one of the calls that fill the time. */
static int sustain(struct rivals *r, int pass, double *seconds)
{
    double elapsed = 0.0, spent = 0.0;
    int calls = 0, status = engine_repeat(r->setup.engine, pass == 1, 1, &spent);
    const int batch = (int)fmin(fmax(BATCH_SECONDS / spent, 1.0), (double)BATCH_MOST);
    while (!status && (elapsed < r->turn_seconds || calls < 2)) {
        status = engine_repeat(r->setup.engine, pass == 1, batch, &spent);
        if (!status) status = interrupt_check();
        elapsed += spent;
        calls += batch;
    }
    *seconds = elapsed / calls;
    return status;
}

static int shoot(struct rivals *r, int pass, double *seconds)
{
    double shots[SHOTS];
    int status = EXIT_PASS;
    for (int i = 0; i < SHOTS && !status; i++) {
        usleep((useconds_t)(r->pause_seconds * 1e6));
        status = engine_repeat(r->setup.engine, pass == 1, 1, &shots[i]);
        if (!status) status = interrupt_check();
    }
    if (!status) *seconds = spread_of(shots, SHOTS).median;
    return status;
}

static int turn_of_ours(struct rivals *r, int pass, int round)
{
    struct turns *turns = &r->ours[pass];
    gauge_start(r->gauge);
    int status = sustain(r, pass, &turns->seconds[round]);
    struct gauge_reading reading = gauge_stop(r->gauge);
    turns->clocks[round] = reading.clock_mhz;
    turns->powers[round] = reading.power_watts;
    return status ? status : shoot(r, pass, &turns->singles[round]);
}

static void demand_seconds(struct row *answer)
{
    if (!*answer->absent && !(answer->seconds > 0.0))
        snprintf(answer->absent, sizeof answer->absent, "an answer without seconds");
}

static int turn_of_theirs(struct rivals *r, struct contest *contest, int round)
{
    struct turns *turns = &contest->turns;
    const char *pass = passes[contest->pass];
    struct row answer;
    gauge_start(r->gauge);
    int status = child_ask(&r->child, &answer, "sustained %s %s %g\n", contest->name, pass,
                           r->turn_seconds);
    struct gauge_reading reading = gauge_stop(r->gauge);
    turns->clocks[round] = reading.clock_mhz;
    turns->powers[round] = reading.power_watts;
    turns->seconds[round] = answer.seconds;
    demand_seconds(&answer);
    if (!status && !*answer.absent)
        status = child_ask(&r->child, &answer, "single %s %s %g %d\n", contest->name, pass,
                           r->pause_seconds, SHOTS);
    turns->singles[round] = answer.seconds;
    demand_seconds(&answer);
    if (!status && *answer.absent) lose(contest, &answer);
    return status;
}

int rivals_round(struct rivals *r, int pass, int round, double *seconds)
{
    int status = turn_of_ours(r, pass, round);
    *seconds = r->ours[pass].seconds[round];
    for (int i = 0; i < r->count && !status; i++) {
        if (r->contests[i].pass != pass || *r->contests[i].absent) continue;
        status = make_ready(r);
        if (!status && !*r->contests[i].absent) status = turn_of_theirs(r, &r->contests[i], round);
    }
    return status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void list_contests(struct rivals *r)
{
    for (int i = 0; i < NAMES * r->setup.passes; i++)
        if (rivals_named(r->setup.names, names[i / r->setup.passes]))
            r->contests[r->count++] = (struct contest){ .name = names[i / r->setup.passes],
                                                        .pass = i % r->setup.passes };
}

int rivals_open(struct rivals **out, const struct rivals_setup *setup)
{
    struct rivals *r = *out = calloc(1, sizeof *r);
    if (!r) return fault("out of memory: the rounds of rivals");
    r->setup = *setup;
    for (int pass = 0; pass < setup->passes; pass++) r->rows[pass] = *setup->rows[pass];
    list_contests(r);
    const double turns = RIVALS_ROUNDS_LEAST * (r->count + setup->passes);
    r->turn_seconds = TURN_SECONDS;
    if (setup->seconds > 0.0)
        r->turn_seconds = fmax(fmin(0.5 * setup->seconds / turns, TURN_SECONDS), TURN_LEAST);
    r->pause_seconds = fmin(PAUSE_SECONDS, r->turn_seconds);
    if (!trial_on_cpu(setup->engine->trial)) r->gauge = gauge_open(setup->engine->trial->device);
    return make_ready(r);
}

void rivals_close(struct rivals *r)
{
    if (!r) return;
    child_stop(&r->child);
    gauge_close(r->gauge);
    free(r);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Of those that are known; NaN where none is. A copy is sorted: the rounds of two implementations
 * belong together. */
static double median(const double *numbers, int count)
{
    double sorted[CASE_RUNS_MOST];
    int known = 0;
    for (int i = 0; i < count; i++)
        if (isfinite(numbers[i])) sorted[known++] = numbers[i];
    return known ? spread_of(sorted, known).median : NAN;
}

static void fill_turns(struct row *row, const struct turns *turns, int rounds)
{
    row->single_seconds = median(turns->singles, rounds);
    row->clock_mhz = median(turns->clocks, rounds);
    row->power_watts = median(turns->powers, rounds);
}

/* Above 1 ours is faster. */
static struct spread ratios(const double *theirs, const double *ours, int rounds)
{
    double numbers[CASE_RUNS_MOST];
    for (int i = 0; i < rounds; i++) numbers[i] = theirs[i] / ours[i];
    return spread_of(numbers, rounds);
}

static void fill_rates(struct row *row, const double *seconds, int rounds)
{
    double numbers[CASE_RUNS_MOST];
    memcpy(numbers, seconds, (size_t)rounds * sizeof *seconds);
    row_seconds(row, spread_of(numbers, rounds));
    for (int i = 0; i < rounds; i++) numbers[i] = row->work / seconds[i] * 1e-9;
    row_rate(row, spread_of(numbers, rounds));
    row->tokens_per_second = (double)row->batch * (double)row->queries / row->seconds;
}

/* The problem is the same, and so is its work. */
static void fill_rival(struct row *row, const struct rivals *r, const struct contest *contest,
                       int rounds, const struct row *ours)
{
    const struct turns *turns = &contest->turns;
    row->threads = ours->threads;
    row->warmup = ours->warmup;
    row->runs = rounds;
    row->work = ours->work;
    row->pairs = ours->pairs;
    row->density = ours->density;
    row->error = contest->error;
    row->error_bound = contest->error_bound;
    row->rows_checked = ours->rows_checked;
    snprintf(row->unit, sizeof row->unit, "%s", ours->unit);
    fill_rates(row, turns->seconds, rounds);
    fill_turns(row, turns, rounds);
    row_ratio(row, ratios(turns->seconds, r->ours[contest->pass].seconds, rounds));
    row->single_ratio = ratios(turns->singles, r->ours[contest->pass].singles, rounds).median;
}

void rivals_write(struct rivals *r, int pass, int rounds, struct row *ours)
{
    fill_turns(ours, &r->ours[pass], rounds);
    row_write(stdout, ours);
    for (int i = 0; i < r->count; i++) {
        const struct contest *contest = &r->contests[i];
        struct row row = r->rows[pass];
        if (contest->pass != pass) continue;
        snprintf(row.kind, sizeof row.kind, "rival");
        snprintf(row.name, sizeof row.name, "%s", contest->name);
        snprintf(row.absent, sizeof row.absent, "%s", contest->absent);
        snprintf(row.library, sizeof row.library, "%s", r->library);
        if (!*contest->absent) fill_rival(&row, r, contest, rounds, ours);
        row_write(stdout, &row);
    }
}
