/* predict.c - how long a trial would take, from a short measurement of this machine. */
#include "predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "machine.h"

#define PROBE_FLOPS 1e9 /* a few hundredths of a second on a fast core */
#define PROBE_BYTES ((size_t)64 << 20)

/* Threads that really run at once. */
static int busy_threads(const struct forecast *forecast)
{
    int64_t wanted = (int64_t)forecast->threads * forecast->ranks;
    return wanted < machine_cores() ? (int)wanted : machine_cores();
}

/* The same kernel, dims and dtype on a full problem that fits into a moment. */
static struct trial probe_trial(const struct trial *trial, const struct forecast *forecast)
{
    struct trial probe = *trial;
    double per_pair = 2.0 * (double)(trial->dim + trial->value_dim);
    probe.pattern = probe.order = probe.alibi = probe.bias = probe.sinks = NULL;
    probe.slopes = NULL;
    probe.q_heads = busy_threads(forecast);
    probe.kv_heads = probe.q_heads;
    probe.q_len = probe.k_len = (int64_t)fmin(2048.0, fmax(64.0, sqrt(PROBE_FLOPS / per_pair)));
    probe.batch = probe.ranks = 1;
    probe.threads = busy_threads(forecast);
    strcpy(probe.partition, "contiguous");
    strcpy(probe.strategy, "ring");
    return probe;
}

static int measure_rates(const struct trial *trial, const struct forecast *forecast,
                         struct prediction *out)
{
    enum { TIMES = 3 };
    struct trial probe = probe_trial(trial, forecast);
    struct engine engine;
    struct engine_setup setup = { .trial = &probe, .quiet = true };
    double forward = INFINITY, backward = INFINITY;
    int status = engine_open(&engine, &setup);
    if (status) return status;
    for (int i = 0; i < TIMES && !status; i++) {
        status = engine_forward(&engine);
        forward = fmin(forward, engine.forward_seconds);
        if (status || !probe.backward) continue;
        status = engine_backward(&engine);
        backward = fmin(backward, engine.backward_seconds);
    }
    out->forward_gflops = engine.rank[0].forward.flops / forward * 1e-9;
    out->backward_gflops = probe.backward ? engine.rank[0].backward.flops / backward * 1e-9 : 0.0;
    engine_close(&engine);
    return status;
}

static int measure_copy(struct prediction *out)
{
    char *from = malloc(PROBE_BYTES), *to = malloc(PROBE_BYTES);
    double best = INFINITY;
    if (from && to) {
        memset(from, 1, PROBE_BYTES);
        memset(to, 2, PROBE_BYTES);
        for (int i = 0; i < 3; i++) {
            double start = machine_seconds();
            memcpy(to, from, PROBE_BYTES);
            from[i] = to[PROBE_BYTES / 2]; /* the copy is used, so it is made */
            best = fmin(best, machine_seconds() - start);
        }
    }
    bool good = from && to;
    free(from);
    free(to);
    out->copy_bytes_per_second = (double)PROBE_BYTES / best;
    return good ? EXIT_PASS : fault("out of memory: %zu bytes", 2 * PROBE_BYTES);
}

/* One pass: all work at the full rate, the busiest rank at its share, the most bytes of a rank. */
struct pass {
    double flops, rank_flops, rank_bytes;
};

static void add_pass(struct pass *pass, const ra_stats *stats)
{
    pass->flops += stats->flops;
    pass->rank_flops = fmax(pass->rank_flops, stats->flops);
    pass->rank_bytes = fmax(pass->rank_bytes, (double)stats->bytes_sent);
}

static double pass_seconds(const struct pass *pass, double gflops, double share, double copy)
{
    if (pass->flops <= 0.0 || gflops <= 0.0) return 0.0;
    double rate = gflops * 1e9;
    return fmax(fmax(pass->flops / rate, pass->rank_flops / (rate * share)),
                pass->rank_bytes / copy);
}

int predict(const struct trial *trial, const struct forecast *forecast, struct prediction *out)
{
    struct pass forward = { .flops = 0.0 }, backward = { .flops = 0.0 };
    *out = (struct prediction){ .seconds = 0.0 };
    int status = measure_rates(trial, forecast, out);
    if (!status) status = measure_copy(out);
    if (status) return status;
    for (int i = 0; i < forecast->ranks; i++) {
        add_pass(&forward, &forecast->rank[i].forward);
        add_pass(&backward, &forecast->rank[i].backward);
    }
    double share = fmin(1.0, (double)forecast->threads / busy_threads(forecast));
    out->seconds = pass_seconds(&forward, out->forward_gflops, share, out->copy_bytes_per_second) +
                   pass_seconds(&backward, out->backward_gflops, share, out->copy_bytes_per_second);
    return EXIT_PASS;
}
