/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - every check of one trial: the oracle, and the truth rules around it. */
#include "verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "harness/run/engine.h"
#include "harness/world/world.h"

__attribute__((format(printf, 2, 3))) static void find_fault(struct verdict *verdict,
                                                             const char *format, ...)
{
    va_list args;
    if (!verdict->passed) return; /* the first one counts */
    verdict->passed = false;
    va_start(args, format);
    vsnprintf(verdict->what, sizeof verdict->what, format, args);
    va_end(args);
}

/* Were bits allowed to differ? Only devices other than the CPU make use of that. */
static bool may_differ(const struct engine *engine)
{
    return engine->trial->any_order && !trial_on_cpu(engine->trial);
}

/* Truth rule 9: a second run has the same bits, but for dq where it was allowed to differ. */
static void compare_runs(const struct engine *engine, const struct digests *a,
                         const struct digests *b, struct verdict *verdict)
{
    const bool any_order = may_differ(engine);
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++)
        if (a->of[i] != b->of[i] && !(i == TENSOR_DQ && any_order))
            find_fault(verdict, "%s has other bits in a second run", tensor_name(i));
    if (a->dsinks != b->dsinks) find_fault(verdict, "dsinks has other bits in a second run");
}

static int run_once(struct engine *engine)
{
    int status = engine_forward(engine);
    if (!status && engine->trial->backward) status = engine_backward(engine);
    return status;
}

/* What the ranks sent, against what their plans say of any run. */
static void check_traffic(const struct engine *engine, struct verdict *verdict)
{
    for (int rank = 0; rank < engine->ranks; rank++) {
        const struct engine_rank *r = &engine->rank[rank];
        const struct forecast_rank *f = &engine->forecast.rank[rank];
        int64_t sent = r->forward.bytes_sent + r->backward.bytes_sent;
        int64_t planned = f->forward.bytes_sent + f->backward.bytes_sent;
        int64_t hops = r->forward.hops + r->backward.hops;
        int64_t planned_hops = f->forward.hops + f->backward.hops;
        if (sent != planned || hops != planned_hops)
            find_fault(verdict,
                       "rank %d sent %" PRId64 " bytes in %" PRId64 " hops, planned were %" PRId64
                       " in %" PRId64,
                       rank, sent, hops, planned, planned_hops);
    }
}

/* Truth rule 4: what the ranks counted against the oracle's pairs and the formulas. */
static void check_counts(const struct engine *engine, struct verdict *verdict)
{
    const struct trial *t = engine->trial;
    int64_t pairs = 0, sent = 0, received = 0;
    double flops = 0.0,
           expected = (double)verdict->check.pairs * 2.0 * (double)(t->dim + t->value_dim);
    for (int rank = 0; rank < engine->ranks; rank++) {
        const struct engine_rank *r = &engine->rank[rank];
        pairs += r->forward.pairs;
        flops += r->forward.flops;
        sent += r->forward.bytes_sent + r->backward.bytes_sent;
        received += r->forward.bytes_received + r->backward.bytes_received;
    }
    if (pairs != verdict->check.pairs)
        find_fault(verdict, "counted %" PRId64 " pairs, there are %" PRId64, pairs,
                   verdict->check.pairs);
    if (flops != expected)
        find_fault(verdict, "counted %.0f FLOPs, there are %.0f", flops, expected);
    if (sent != received)
        find_fault(verdict, "sent %" PRId64 " bytes but received %" PRId64, sent, received);
    if (t->ranks == 1 && sent) find_fault(verdict, "one rank alone sent %" PRId64 " bytes", sent);
    check_traffic(engine, verdict);
}

/* Truth rule 1 on the same problem with V = ones. */
static int check_with_ones(const struct trial *trial, struct wire wire, struct verdict *verdict)
{
    struct trial ones = *trial; /* borrows the pattern */
    struct engine engine;
    double error;
    ones.ones = true;
    ones.backward = false;
    struct engine_setup setup = { .trial = &ones, .wire = wire, .quiet = true };
    int status = engine_open(&engine, &setup);
    if (status) return status;
    status = engine_forward(&engine);
    if (!status && !check_ones(&engine, &error))
        find_fault(verdict, "V = ones gives ones only within %.3g (add the word: ones)", error);
    engine_close(&engine);
    return status;
}

/* Truth rule 9: forward allgather gives the bits of one rank, whatever the ring and the threads. */
static int check_one_rank(const struct engine *ring, const struct digests *digests,
                          struct verdict *verdict)
{
    struct trial alone = *ring->trial;
    struct engine engine;
    alone.ranks = alone.threads = 1;
    strcpy(alone.transport, "local");
    alone.backward = false;
    struct engine_setup setup = { .trial = &alone, .wire = ring->setup.wire, .quiet = true };
    int status = engine_open(&engine, &setup);
    if (status) return status;
    status = engine_forward(&engine);
    if (!status) {
        struct digests of_one = digest_all(&engine, ring);
        for (int i = TENSOR_OUT; i <= TENSOR_LSE; i++)
            if (of_one.of[i] != digests->of[i])
                find_fault(verdict, "allgather: %s has other bits than on one rank",
                           tensor_name(i));
    }
    engine_close(&engine);
    return status;
}

static int check_engine_results(struct engine *engine, struct verdict *verdict)
{
    int status = run_once(engine);
    if (status) return status;
    struct digests digests = digest_all(engine, engine);
    status = run_once(engine);
    if (status) return status;
    struct digests again = digest_all(engine, engine);
    compare_runs(engine, &digests, &again, verdict);
    status = check_engine_fully(engine, &verdict->check);
    if (status) return status;
    verdict->worst = verdict->check.worst;
    if (!verdict->check.passed) find_fault(verdict, "%s", verdict->check.what);
    check_counts(engine, verdict);
    if (engine->ranks == 1 || strcmp(engine->trial->strategy, "allgather") || may_differ(engine))
        return EXIT_PASS;
    return check_one_rank(engine, &digests, verdict);
}

/* Where ranks are processes, what one of them found wrong is wrong for all. */
static int share_verdict(struct verdict *verdict)
{
    struct found {
        bool passed;
        char what[sizeof verdict->what];
    } mine = { .passed = verdict->passed };
    struct found *all = calloc((size_t)world_size(), sizeof *all);
    if (!all) return fault("out of memory: %d ranks", world_size());
    memcpy(mine.what, verdict->what, sizeof mine.what);
    int status = world_share(&mine, all, sizeof mine);
    for (int rank = 0; !status && rank < world_size(); rank++)
        if (!all[rank].passed) find_fault(verdict, "%s", all[rank].what);
    free(all);
    return status;
}

int verify_trial(const struct trial *trial, struct wire wire, struct verdict *verdict)
{
    struct engine engine;
    *verdict = (struct verdict){ .passed = true };
    struct engine_setup setup = { .trial = trial, .wire = wire, .quiet = true };
    int status = engine_open(&engine, &setup);
    if (!status) {
        status = check_engine_results(&engine, verdict);
        engine_close(&engine);
    }
    bool ones = !trial->ones && !trial->sinks && trial->dropout <= 0.0;
    if (!status && ones) status = check_with_ones(trial, wire, verdict);
    if (!status && world_runs(trial)) status = share_verdict(verdict);
    if (status) find_fault(verdict, "it did not run");
    return status;
}
