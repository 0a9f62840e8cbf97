/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - what a rank and its links can do, measured by all ranks of a group together: small
 * and large messages to the next rank, as a ring sends them, then a small problem on each rank by
 * itself. Ranks go in step, so that those which share cores or a wire share them here too, and the
 * slowest counts. */
#include <math.h>
#include <stdlib.h>

#include "core/clock.h"
#include "exec/measure.h"

enum {
    SMALL_ROUNDS = 8, /* in a row: one alone is mostly noise */
    LARGE_ROUNDS = 2,
    TIMES = 5 /* after a first one as warm-up; the median counts: a run has the same disturbances */
};

/* A message is long enough if it takes that long, or has that many bytes. */
#define STREAM_SECONDS 8e-3
#define STREAM_BYTES ((size_t)2 << 20)

/* Threads that have just been woken may be on one core together. They are moved apart while they
 * compute, within a few milliseconds, so a probe goes on for longer; at most for so many runs. */
#define PROBE_SECONDS 12e-3
#define PROBE_MOST 64

/* A device that is no CPU is busy only in problems of some size: they grow until one takes so long,
 * or has so many positions, or tensors of so many bytes. */
#define GROWN_SECONDS 2e-3
#define GROWN_BYTES ((size_t)32 << 20)
enum { LENGTH_LEAST = 64, LENGTH_MOST = 8192 };

struct meter {
    const struct ra__rank *rank;
    struct ra__message *messages; /* [2 (ranks - 1)] */
    double *times; /* of the others, then its own: MPI may hold them after a failure */
    char *bytes;   /* what goes out and what comes in, where messages of plans are */
};

/* The longest time of all ranks; no rank continues before all have arrived here. */
static ra_status slowest(struct meter *meter, double mine, double *out)
{
    const int others = meter->rank->ranks - 1;
    meter->times[others] = *out = mine;
    if (others > 0)
        RA__TRY(ra__control_share(meter->rank, meter->messages, ra__reserved_tag(RA__RESERVED_TIME),
                                  &meter->times[others], meter->times, sizeof mine));
    for (int i = 0; i < others; i++) *out = fmax(*out, meter->times[i]);
    return RA_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double times[TIMES])
{
    qsort(times, TIMES, sizeof *times, compare);
    return times[TIMES / 2];
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* To the next rank, and as much from the one before. */
static ra_status pass_on(struct meter *meter, size_t bytes)
{
    const struct ra__rank *rank = meter->rank;
    int tag = ra__reserved_tag(RA__RESERVED_MEASUREMENT);
    struct ra__message send = {
        .peer = (rank->rank + 1) % rank->ranks, .tag = tag, .data = meter->bytes, .bytes = bytes
    };
    struct ra__message recv = { .peer = (rank->rank + rank->ranks - 1) % rank->ranks,
                                .tag = tag,
                                .data = meter->bytes + STREAM_BYTES,
                                .bytes = bytes };
    struct ra__round round = { .sends = &send, .recvs = &recv, .send_count = 1, .recv_count = 1 };
    RA__TRY(rank->transport->post(rank->link, &round));
    return rank->transport->wait(rank->link, &round);
}

/* Seconds of a round on the slowest rank. */
static ra_status time_rounds(struct meter *meter, size_t bytes, int rounds, double *seconds)
{
    RA__TRY(slowest(meter, 0.0, seconds));
    double start = ra__now();
    for (int i = 0; i < rounds; i++) RA__TRY(pass_on(meter, bytes));
    return slowest(meter, (ra__now() - start) / rounds, seconds);
}

/* The median. */
static ra_status time_often(struct meter *meter, size_t bytes, int rounds, double *seconds)
{
    double times[TIMES], first;
    RA__TRY(time_rounds(meter, bytes, rounds, &first));
    for (int i = 0; i < TIMES; i++) RA__TRY(time_rounds(meter, bytes, rounds, &times[i]));
    *seconds = median(times);
    return RA_OK;
}

/* Messages grow until the time they take is worth looking at; then they are repeated, since the
 * first bytes after a pause may travel faster than a link can go on for long. */
static ra_status measure_bandwidth(struct meter *meter, double latency, double *bandwidth)
{
    double seconds;
    size_t bytes = (size_t)32 << 10;
    do {
        bytes *= 2;
        RA__TRY(time_rounds(meter, bytes, 1, &seconds));
    } while (bytes < STREAM_BYTES && seconds < STREAM_SECONDS);
    RA__TRY(time_often(meter, bytes, LARGE_ROUNDS, &seconds));
    *bandwidth = (double)bytes / fmax(seconds - latency, 0.5 * seconds);
    return RA_OK;
}

static ra_status measure_links(struct meter *meter, struct ra__machine *machine)
{
    if (meter->rank->ranks == 1) return RA_OK; /* nothing travels */
    RA__TRY(time_often(meter, 1, SMALL_ROUNDS, &machine->latency));
    return measure_bandwidth(meter, machine->latency, &machine->bandwidth);
}

/* ---- Kernel ---------------------------------------------------------------------------------- */

/* From when all begin until all are done, seconds for one run: ranks that share a core share it
 * here too. */
static ra_status time_probe(struct meter *meter, struct ra__probe *probe, bool backward, int runs,
                            double *seconds, double *work)
{
    double all;
    RA__TRY(slowest(meter, 0.0, &all));
    const double start = ra__now();
    for (int i = 0; i < runs; i++) RA__TRY(ra__probe_run(probe, backward, work));
    RA__TRY(slowest(meter, 0.0, &all));
    return slowest(meter, (ra__now() - start) / runs, seconds);
}

static ra_status make_probe(struct meter *meter, const struct ra__subject *subject,
                            struct ra__probe **probe)
{
    double seconds, work;
    if (meter->rank->backend->host) return ra__probe_create(subject, 0, probe);
    for (int64_t length = LENGTH_LEAST;; length *= 2) {
        RA__TRY(ra__probe_create(subject, length, probe));
        for (int i = 0; i < 2; i++) /* the first one loads kernels */
            RA__TRY(time_probe(meter, *probe, false, 1, &seconds, &work));
        const bool large = 2 * ra__probe_bytes(*probe) > GROWN_BYTES;
        if (seconds > GROWN_SECONDS || large || length >= LENGTH_MOST) return RA_OK;
        ra__probe_destroy(*probe);
        *probe = NULL;
    }
}

static ra_status measure_pass(struct meter *meter, struct ra__probe *probe, bool backward,
                              double *flops)
{
    double times[TIMES], first, work;
    RA__TRY(time_probe(meter, probe, backward, 1, &first, &work));
    const int runs = (int)fmin(PROBE_MOST, ceil(PROBE_SECONDS / first));
    for (int i = 0; i < TIMES; i++)
        RA__TRY(time_probe(meter, probe, backward, runs, &times[i], &work));
    *flops = work / median(times);
    return RA_OK;
}

static ra_status measure_kernel(struct meter *meter, struct ra__probe *probe, bool backward,
                                struct ra__machine *machine)
{
    RA__TRY(measure_pass(meter, probe, false, &machine->flops));
    return backward ? measure_pass(meter, probe, true, &machine->backward_flops) : RA_OK;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool is_on_device(const struct ra__rank *rank)
{
    return rank->reaches && !rank->backend->host;
}

static void *take_bytes(const struct ra__rank *rank)
{
    if (is_on_device(rank)) return rank->backend->alloc(rank->device, 2 * STREAM_BYTES);
    return ra__alloc_array(NULL, RA__FOR_TRAVEL, 2, STREAM_BYTES);
}

static void give_bytes(const struct ra__rank *rank, void *bytes)
{
    if (!is_on_device(rank)) ra__free(bytes);
    else if (bytes) rank->backend->free(rank->device, bytes, 2 * STREAM_BYTES);
}

static ra_status open_meter(struct meter *meter, const struct ra__rank *rank)
{
    size_t others = (size_t)rank->ranks - 1;
    meter->rank = rank;
    meter->messages = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 2 * others + 1,
                                      sizeof *meter->messages);
    meter->times = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, others + 1, sizeof *meter->times);
    meter->bytes = take_bytes(rank);
    if (!meter->messages || !meter->times || !meter->bytes)
        return ra__fail(RA_ERR_MEMORY, "measure: %zu bytes", 2 * STREAM_BYTES);
    if (!rank->transport->reserve) return RA_OK;
    return rank->transport->reserve(rank->link, (int)(2 * others + 2));
}

/* What the transport still holds after a failure stays. */
static void close_meter(struct meter *meter, bool failed)
{
    if (failed && ra__rank_retains(meter->rank)) return;
    ra__free(meter->messages);
    ra__free(meter->times);
    give_bytes(meter->rank, meter->bytes);
}

ra_status ra__measure(const struct ra__subject *subject, struct ra__machine *out)
{
    struct meter meter = { .rank = NULL };
    struct ra__probe *probe = NULL;
    ra_status status = open_meter(&meter, subject->rank);
    *out = (struct ra__machine){ .latency = 0.0 };
    if (status == RA_OK) status = make_probe(&meter, subject, &probe);
    if (status == RA_OK) status = measure_links(&meter, out);
    if (status == RA_OK) status = measure_kernel(&meter, probe, subject->backward, out);
    ra__probe_destroy(probe);
    close_meter(&meter, status != RA_OK);
    return status;
}
