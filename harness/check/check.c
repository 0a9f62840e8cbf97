/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - compares what an engine computed with the oracle. */
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/oracle/oracle.h"
#include "harness/text/progress.h"
#include "tally.h"
#include "harness/world/world.h"

#define FULL_WORK 3e8 /* pairs x dims that take about a second */
#define MASK_WORK 4.0 /* cost of evaluating the mask, relative to one pair and dim */

/* ---- Everything a worker found --------------------------------------------------------------- */

enum { TALLY_OUT, TALLY_LSE, TALLY_DQ, TALLY_DK, TALLY_DV, TALLY_DSINKS, TALLIES };
static const char *const tally_names[TALLIES] = { "out", "lse", "dq", "dk", "dv", "dsinks" };

struct tallies {
    struct tally tally[TALLIES];
    int64_t rows, nan_rows, keys, pairs;
};

static struct tallies tallies_start(const struct trial *trial)
{
    struct tallies tallies = { .rows = 0 };
    for (int i = 0; i < TALLIES; i++)
        tallies.tally[i].dtype = i == TALLY_LSE || i == TALLY_DSINKS ? RA_F32
                                                                     : (ra_dtype)trial->dtype;
    return tallies;
}

static void tallies_merge(struct tallies *into, const struct tallies *from)
{
    for (int i = 0; i < TALLIES; i++) tally_merge(&into->tally[i], &from->tally[i]);
    into->rows += from->rows;
    into->nan_rows += from->nan_rows;
    into->keys += from->keys;
    into->pairs += from->pairs;
}

/* Where ranks are processes, each compared what it has. */
static int tallies_share(const struct engine *engine, struct tallies *all)
{
    if (!engine->joined) return EXIT_PASS;
    struct tallies *theirs = malloc((size_t)engine->ranks * sizeof *theirs);
    if (!theirs) return fault("out of memory: %d ranks", engine->ranks);
    int status = world_share(all, theirs, sizeof *all);
    *all = tallies_start(engine->trial);
    for (int rank = 0; rank < engine->ranks && !status; rank++) tallies_merge(all, &theirs[rank]);
    free(theirs);
    return status;
}

/* ---- Where numbers come from ----------------------------------------------------------------- */

struct checker {
    const struct engine *engine;
    struct oracle oracle;
    float *packed[TENSOR_COUNT]; /* inputs as f32 in global order; NULL: made row by row */
    int64_t units;               /* pieces of work for the workers */
    int slices;                  /* of the queries of one KV head */
    atomic_llong next;
    atomic_int failed;
    pthread_mutex_t lock;
    struct tallies all;
};

static void show_progress(const struct checker *checker, double done)
{
    if (!checker->engine->setup.quiet) progress_update(done);
}

static int64_t row_index(const struct trial *trial, enum tensor tensor, int64_t batch,
                         int64_t position, int64_t head)
{
    return (batch * tensor_length(trial, tensor) + position) * tensor_heads(trial, tensor) + head;
}

static const float *source_row(void *context, enum tensor tensor, int64_t batch, int64_t position,
                               int64_t head, float *scratch)
{
    const struct checker *checker = context;
    const struct engine *engine = checker->engine;
    const struct trial *trial = engine->trial;
    int64_t dim = tensor_dim(trial, tensor);
    int64_t offset = row_index(trial, tensor, batch, position, head) * dim;
    if (checker->packed[tensor]) return checker->packed[tensor] + offset;
    if (tensor >= TENSOR_OUT) {
        engine_read(engine, tensor, batch, position, head, scratch);
    } else if (!engine->setup.inputs) {
        data_row(trial, tensor, batch, position, head, scratch);
    } else if (engine->setup.inputs->data[tensor]) {
        ra_dtype dtype = tensor_dtype(trial, tensor);
        const char *data = engine->setup.inputs->data[tensor];
        half_to_float(dtype, data + (size_t)offset * half_bytes(dtype), dim, scratch);
    } else if (engine->setup.inputs->files[tensor]) {
        if (npy_read_at(engine->setup.inputs->files[tensor], offset, dim, RA_F32, scratch))
            scratch[0] = NAN; /* no check may pass */
    } else {
        scratch[0] = 0.0f; /* dlse not given */
    }
    return scratch;
}

static int pack(struct checker *checker, enum tensor tensor)
{
    const struct trial *t = checker->engine->trial;
    int64_t dim = tensor_dim(t, tensor);
    size_t rows = (size_t)(t->batch * tensor_length(t, tensor) * tensor_heads(t, tensor));
    float *packed = malloc(rows * (size_t)dim * sizeof *packed);
    if (!packed) return fault("the oracle is out of memory: %zu rows", rows);
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t p = 0; p < tensor_length(t, tensor); p++)
            for (int64_t h = 0; h < tensor_heads(t, tensor); h++) {
                float *to = packed + row_index(t, tensor, b, p, h) * dim;
                source_row(checker, tensor, b, p, h, to);
            }
    checker->packed[tensor] = packed;
    return EXIT_PASS;
}

/* ---- Work of one worker ---------------------------------------------------------------------- */

struct worker {
    struct checker *checker;
    bool main_thread;
    struct oracle_row row;
    struct triple dk, dv; /* [key, dim] of one KV head, or of one key */
    float *got;
    struct tallies found;
};

static int worker_open(struct worker *worker, struct checker *checker, int64_t keys)
{
    const struct trial *t = checker->engine->trial;
    int64_t dim = t->dim > t->value_dim ? t->dim : t->value_dim;
    *worker = (struct worker){ .checker = checker, .found = tallies_start(t) };
    int status = oracle_row_open(&worker->row, &checker->oracle);
    if (!status) status = triple_open(&worker->dk, (size_t)(keys * t->dim));
    if (!status) status = triple_open(&worker->dv, (size_t)(keys * t->value_dim));
    worker->got = malloc((size_t)dim * sizeof *worker->got);
    return status || worker->got ? status : fault("the oracle is out of memory");
}

static void worker_close(struct worker *worker)
{
    oracle_row_close(&worker->row);
    triple_close(&worker->dk);
    triple_close(&worker->dv);
    free(worker->got);
}

static bool has_nan(const double *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (isnan(numbers[i])) return true;
    return false;
}

/* Must a number of this row be NaN? */
static bool row_has_nan(const struct trial *t, const struct oracle_row *row)
{
    return isnan(row->lse) || has_nan(row->out.exact, t->value_dim) ||
           (t->backward && has_nan(row->dq.exact, t->dim));
}

/* `with_keys`: the oracle's row is needed for its keys in any case. */
static void compare_row(struct worker *w, int64_t batch, int64_t query, int64_t head,
                        bool with_keys)
{
    const struct engine *engine = w->checker->engine;
    const struct trial *t = engine->trial;
    struct tallies *found = &w->found;
    float lse;
    int64_t local;
    bool mine = engine_find(engine, TENSOR_OUT, query, &local) != NULL;
    if (w->main_thread) world_poll();
    if (!mine && !with_keys) return; /* another process's */
    oracle_compute(&w->checker->oracle, batch, query, head, &w->row);
    if (!mine) return;
    engine_read(engine, TENSOR_OUT, batch, query, head, w->got);
    tally_row(&found->tally[TALLY_OUT], w->got, &w->row.out, 0, t->value_dim);
    engine_read(engine, TENSOR_LSE, batch, query, head, &lse);
    tally_add(&found->tally[TALLY_LSE], lse,
              (struct number){ w->row.lse, 1.0, w->row.lse_moved, w->row.naive_lse });
    if (t->backward) {
        engine_read(engine, TENSOR_DQ, batch, query, head, w->got);
        tally_row(&found->tally[TALLY_DQ], w->got, &w->row.dq, 0, t->dim);
    }
    found->pairs += w->row.pairs;
    found->rows++;
    found->nan_rows += row_has_nan(t, &w->row);
}

/* Gradients of a key against the values at `index` in dk and dv. */
static void compare_key(struct worker *w, int64_t batch, int64_t key, int64_t kv_head,
                        int64_t index)
{
    const struct engine *engine = w->checker->engine;
    const struct trial *t = engine->trial;
    struct tallies *found = &w->found;
    int64_t local;
    if (!engine_find(engine, TENSOR_DK, key, &local)) return; /* another process's */
    engine_read(engine, TENSOR_DK, batch, key, kv_head, w->got);
    tally_row(&found->tally[TALLY_DK], w->got, &w->dk, index * t->dim, t->dim);
    engine_read(engine, TENSOR_DV, batch, key, kv_head, w->got);
    tally_row(&found->tally[TALLY_DV], w->got, &w->dv, index * t->value_dim, t->value_dim);
    found->keys++;
}

static void round_sums(const struct trial *t, struct triple *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum->naive[i] = half_round((ra_dtype)t->dtype, sum->naive[i]);
}

/* One unit: the queries of a slice for the query heads of one KV head, then its keys. */
static void compare_unit(struct worker *w, int64_t unit)
{
    const struct trial *t = w->checker->engine->trial;
    int slices = w->checker->slices, slice = (int)(unit % slices);
    int64_t kv_head = unit / slices % t->kv_heads, batch = unit / slices / t->kv_heads;
    int64_t group = t->q_heads / t->kv_heads;
    if (t->backward) {
        triple_clear(&w->dk, t->k_len * t->dim);
        triple_clear(&w->dv, t->k_len * t->value_dim);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t query = slice; query < t->q_len; query += slices) {
            if (interrupt_seen()) return;
            compare_row(w, batch, query, head, t->backward);
            if (t->backward) oracle_add_keys(&w->checker->oracle, &w->row, &w->dk, &w->dv);
        }
    if (!t->backward) return;
    round_sums(t, &w->dk, t->k_len * t->dim);
    round_sums(t, &w->dv, t->k_len * t->value_dim);
    for (int64_t key = 0; key < t->k_len; key++) compare_key(w, batch, key, kv_head, key);
}

/* ---- All rows -------------------------------------------------------------------------------- */

static void compare_units(struct checker *checker, bool main_thread)
{
    const struct trial *t = checker->engine->trial;
    struct worker worker;
    if (worker_open(&worker, checker, t->backward ? t->k_len : 1)) {
        atomic_store(&checker->failed, 1);
    } else {
        int64_t unit;
        worker.main_thread = main_thread;
        while ((unit = atomic_fetch_add(&checker->next, 1)) < checker->units) {
            compare_unit(&worker, unit);
            show_progress(checker, (double)unit / (double)checker->units);
        }
    }
    pthread_mutex_lock(&checker->lock);
    tallies_merge(&checker->all, &worker.found);
    pthread_mutex_unlock(&checker->lock);
    worker_close(&worker);
}

static void *work(void *context)
{
    compare_units(context, false);
    return NULL;
}

static int compare_all(struct checker *checker)
{
    enum { THREADS_MOST = 64 };
    const struct trial *t = checker->engine->trial;
    int threads = machine_cores() < THREADS_MOST ? machine_cores() : THREADS_MOST, started = 0;
    pthread_t ids[THREADS_MOST];
    for (int i = 0; i <= TENSOR_DLSE; i++) {
        int status = tensor_is_backward(i) && !t->backward ? EXIT_PASS : pack(checker, i);
        if (status) return status;
    }
    checker->slices = t->backward ? 1 : threads; /* sums over queries stay with one worker */
    checker->units = t->batch * t->kv_heads * checker->slices;
    while (started < threads - 1 && !pthread_create(&ids[started], NULL, work, checker)) started++;
    compare_units(checker, true);
    for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
    return atomic_load(&checker->failed) ? EXIT_FAULT : interrupt_check();
}

/* ---- Sampled rows ---------------------------------------------------------------------------- */

static int compare_sample(struct checker *checker)
{
    const struct trial *t = checker->engine->trial;
    const int rows = data_sample_count(TENSOR_OUT), keys = data_sample_count(TENSOR_DK);
    struct worker w;
    int status = worker_open(&w, checker, 1);
    w.main_thread = true;
    for (int i = 0; i < rows && !status; i++) {
        compare_row(&w, i % t->batch, data_sample(i, rows, t->q_len), (i * 5 + i / 3) % t->q_heads,
                    false);
        show_progress(checker, (double)i / rows);
        status = interrupt_check();
    }
    /* A key alone needs the output and LSE of all queries, which no process of several has. */
    bool with_keys = t->backward && t->k_len > 0 && !checker->engine->joined;
    for (int i = 0; i < keys && with_keys && !status; i++) {
        int64_t key = data_sample(i, keys, t->k_len), kv_head = i * 3 % t->kv_heads;
        oracle_key(&checker->oracle, i % t->batch, key, kv_head, &w.row, &w.dk, &w.dv);
        compare_key(&w, i % t->batch, key, kv_head, 0);
        status = interrupt_check();
    }
    checker->all = w.found;
    worker_close(&w);
    return status;
}

/* ---- Sinks ----------------------------------------------------------------------------------- */

/* The gradient of every sink over the queries of this process. */
static int sum_sinks(const struct checker *checker, struct number *sums)
{
    const struct engine *engine = checker->engine;
    const struct trial *t = engine->trial;
    struct oracle_row row;
    int64_t local;
    int status = oracle_row_open(&row, &checker->oracle);
    for (int64_t query = 0; query < t->q_len && !status; query++) {
        world_poll();
        if (!engine_find(engine, TENSOR_OUT, query, &local)) continue; /* another process's */
        for (int64_t i = 0; i < t->batch * t->q_heads; i++)
            oracle_add_sink(&checker->oracle, i / t->q_heads, query, i % t->q_heads, &row,
                            &sums[i % t->q_heads]);
        status = interrupt_check();
    }
    oracle_row_close(&row);
    return status;
}

/* Adds up sums[rank][head], where ranks are processes. */
static int share_sinks(const struct engine *engine, struct number *sums)
{
    int64_t heads = engine->trial->q_heads;
    struct number *all = calloc((size_t)(engine->ranks * heads), sizeof *all);
    if (!all) return fault("the oracle is out of memory: %" PRId64 " sinks", heads);
    int status = world_share(sums, all, (size_t)heads * sizeof *sums);
    memset(sums, 0, (size_t)heads * sizeof *sums);
    for (int64_t i = 0; i < engine->ranks * heads; i++) {
        struct number *sum = &sums[i % heads];
        sum->exact += all[i].exact;
        sum->terms += all[i].terms;
        sum->moved += all[i].moved;
        sum->naive += all[i].naive;
    }
    free(all);
    return status;
}

/* All of them always, from the run's own out and LSE. */
static int compare_sinks(struct checker *checker)
{
    const struct engine *engine = checker->engine;
    int64_t heads = engine->trial->q_heads;
    if (!engine->dsinks) return EXIT_PASS;
    struct number *sums = calloc((size_t)heads, sizeof *sums);
    if (!sums) return fault("the oracle is out of memory: %" PRId64 " sinks", heads);
    int status = sum_sinks(checker, sums);
    if (!status && engine->joined) status = share_sinks(engine, sums);
    for (int64_t h = 0; h < heads && !status; h++)
        tally_add(&checker->all.tally[TALLY_DSINKS], engine->dsinks[h], sums[h]);
    free(sums);
    return status;
}

/* ---- Verdict --------------------------------------------------------------------------------- */

static bool is_compared(const struct engine *engine, bool sampled, int tally)
{
    const struct trial *trial = engine->trial;
    if (tally == TALLY_DSINKS) return trial->backward && trial->sinks;
    if (tally > TALLY_DQ && sampled && engine->joined) return false;
    return tally < TALLY_DQ || trial->backward;
}

static void judge(const struct engine *engine, const struct tallies *all, struct check *check)
{
    check->passed = true;
    for (int i = 0; i < TALLIES; i++) {
        if (!is_compared(engine, check->sampled, i)) continue;
        const struct tally *tally = &all->tally[i];
        struct check_line *line = &check->lines[check->count++];
        struct deviation shown = tally_offender(tally);
        *line = (struct check_line){ tally_names[i], shown.error, tally_bound(tally, shown) };
        check->worst = fmax(check->worst, tally_worst(tally));
        if (!tally_passed(tally) && check->passed)
            snprintf(check->what, sizeof check->what, "%s is off by %.3g, allowed %.3g%s",
                     line->name, line->error, line->bound, tally_remark(tally));
        check->passed = check->passed && tally_passed(tally);
    }
    check->rows = all->rows;
    check->nan_rows = all->nan_rows;
    check->keys = all->keys;
    check->pairs = check->sampled ? -1 : all->pairs;
}

static int check_with(const struct engine *engine, bool sampled, struct check *check)
{
    struct checker checker = { .engine = engine,
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .all = tallies_start(engine->trial) };
    struct source source = { source_row, &checker, &engine->terms };
    *check = (struct check){ .sampled = sampled };
    int status = oracle_open(&checker.oracle, engine->trial, source);
    if (status) return status;
    progress_begin("checking ", engine->setup.quiet);
    status = sampled ? compare_sample(&checker) : compare_all(&checker);
    if (!status) status = compare_sinks(&checker);
    if (!engine->setup.quiet) progress_end();
    if (!status) status = tallies_share(engine, &checker.all);
    if (!status) judge(engine, &checker.all, check);
    for (int i = 0; i < TENSOR_COUNT; i++) free(checker.packed[i]);
    oracle_close(&checker.oracle);
    return status;
}

int check_engine_fully(const struct engine *engine, struct check *check)
{
    return check_with(engine, false, check);
}

int check_engine(const struct engine *engine, struct check *check)
{
    const struct trial *t = engine->trial;
    double pairs = (double)engine->forecast.pairs * (t->backward ? 3.0 : 1.0);
    double questions = (double)(t->batch * t->q_heads) * (double)t->q_len * (double)t->k_len;
    double work = pairs * (double)(t->dim + t->value_dim) + MASK_WORK * questions;
    const bool sampled = engine->streaming && streaming_is_sampled(engine->streaming);
    return check_with(engine, sampled || work > FULL_WORK, check);
}

bool check_ones(const struct engine *engine, double *error)
{
    const struct trial *t = engine->trial;
    double allowed = half_unit((ra_dtype)t->dtype) + 64.0 * 0x1p-24;
    float lse, *row = malloc((size_t)t->value_dim * sizeof *row);
    *error = row ? 0.0 : INFINITY;
    for (int64_t i = 0; row && i < t->batch * t->q_len * t->q_heads; i++) {
        int64_t head = i % t->q_heads, query = i / t->q_heads % t->q_len;
        int64_t batch = i / t->q_heads / t->q_len, local;
        if (!engine_find(engine, TENSOR_OUT, query, &local)) continue; /* another process's */
        engine_read(engine, TENSOR_LSE, batch, query, head, &lse);
        engine_read(engine, TENSOR_OUT, batch, query, head, row);
        double expected = isinf(lse) && lse < 0 ? 0.0 : 1.0;
        for (int64_t d = 0; d < t->value_dim; d++) {
            double difference = fabs((double)row[d] - expected);
            if (!(difference <= *error)) *error = isnan(difference) ? INFINITY : difference;
        }
    }
    free(row);
    return *error <= allowed;
}
