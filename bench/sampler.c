/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c - measures a ceiling: of a CPU on threads that start together. */
#include "sampler.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/complain.h"
#include "harness/base/machine.h"

#define SAMPLE_SECONDS 0.02
#define MEMORY_BYTES ((size_t)1 << 30) /* larger than caches are */

struct team {
    const struct sampler *sampler;
    atomic_int ready; /* threads that have arrived */
    atomic_bool go;
};

struct member {
    struct team *team;
    int index;
    pthread_t thread;
    double start, end, work;
    double busy; /* seconds on a core, which other programs do not lengthen */
};

/* What the threads of a team did together. */
struct outcome {
    double seconds; /* from the first start to the last end; 0 where a thread could not start */
    double work;
    double busy; /* of the thread that was so longest */
    double peak; /* work per second by the time that each was busy, added up */
};

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *member_main(void *argument)
{
    struct member *self = argument;
    const struct sampler *s = self->team->sampler;
    const unsigned char *data = s->data ? s->data + (size_t)self->index * s->bytes : NULL;
    atomic_fetch_add(&self->team->ready, 1);
    while (!atomic_load(&self->team->go)) sched_yield();
    double busy = thread_seconds();
    self->start = machine_seconds();
    self->work = s->ceiling->work(s->rounds, data, s->bytes);
    self->end = machine_seconds();
    self->busy = thread_seconds() - busy;
    return NULL;
}

static struct outcome run_team(const struct sampler *sampler, struct member *members)
{
    struct outcome outcome = { .seconds = 0.0 };
    struct team team = { .sampler = sampler };
    int started = 0;
    for (int i = 0; i < sampler->threads; i++) members[i] = (struct member){ &team, .index = i };
    while (started < sampler->threads &&
           !pthread_create(&members[started].thread, NULL, member_main, &members[started]))
        started++;
    while (atomic_load(&team.ready) < started) sched_yield();
    atomic_store(&team.go, true);
    double start = 0.0, end = 0.0;
    for (int i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        if (i == 0 || members[i].start < start) start = members[i].start;
        if (i == 0 || members[i].end > end) end = members[i].end;
        if (members[i].busy > outcome.busy) outcome.busy = members[i].busy;
        outcome.work += members[i].work;
        outcome.peak += members[i].work / members[i].busy;
    }
    if (started == sampler->threads) outcome.seconds = end - start;
    return outcome;
}

static int measure(const struct sampler *sampler, struct outcome *outcome)
{
    struct member *members = calloc((size_t)sampler->threads, sizeof *members);
    if (!members) return fault("out of memory: %d threads", sampler->threads);
    *outcome = run_team(sampler, members);
    free(members);
    return outcome->seconds > 0.0 ? EXIT_PASS
                                  : fault("%d threads could not start", sampler->threads);
}

/* The clock of the device counts: it is busy all the time. */
static int take_on_device(struct sampler *sampler, double *rate)
{
    const char *why = sampler->maker->use(sampler->device);
    if (!why) why = sampler->maker->sample(sampler->device_ceiling, sampler->bytes, rate);
    if (why) return fault("the ceiling %s: %s", sampler->name, why);
    sampler->peak = fmax(sampler->peak, *rate);
    return EXIT_PASS;
}

int sampler_take(struct sampler *sampler, double *rate)
{
    struct outcome outcome;
    if (sampler->maker) return take_on_device(sampler, rate);
    int status = measure(sampler, &outcome);
    if (status) return status;
    *rate = outcome.work / outcome.seconds * 1e-9;
    sampler->peak = fmax(sampler->peak, outcome.peak * 1e-9);
    return EXIT_PASS;
}

/* Rounds for a sample, by doubling. */
static int calibrate(struct sampler *sampler)
{
    struct outcome outcome;
    for (sampler->rounds = 1;; sampler->rounds *= 2) {
        int status = measure(sampler, &outcome);
        if (status || outcome.busy >= SAMPLE_SECONDS / 2) return status;
    }
}

/* Numbers that differ, in pages that are there. */
static int fill_data(struct sampler *sampler)
{
    const size_t page = (size_t)1 << 21; /* so large that the memory begins with one */
    size_t bytes = sampler->bytes * (size_t)sampler->threads;
    sampler->data = machine_tensor(bytes > page ? bytes : page);
    if (!sampler->data) return fault("out of memory: %zu bytes to read", bytes);
    uint32_t seed = 1;
    for (size_t i = 0; i < bytes; i += sizeof seed) {
        seed = seed * 1664525u + 1013904223u;
        __builtin_memcpy(sampler->data + i, &seed, sizeof seed);
    }
    return EXIT_PASS;
}

int sampler_open(struct sampler *sampler, const struct ceiling *ceiling, int threads, size_t bytes)
{
    *sampler = (struct sampler){ .name = ceiling->name,
                                 .unit = ceiling->unit,
                                 .ceiling = ceiling,
                                 .threads = threads,
                                 .bytes = ceiling->bytes };
    if (ceiling->bytes == CEILING_MEMORY) {
        size_t lines = (bytes ? bytes : MEMORY_BYTES) / (size_t)threads / CEILING_LINE;
        sampler->bytes = (lines ? lines : 1) * CEILING_LINE;
    }
    int status = sampler->bytes ? fill_data(sampler) : EXIT_PASS;
    if (!status) status = calibrate(sampler);
    if (status) sampler_close(sampler);
    return status;
}

int sampler_open_device(struct sampler *sampler, const char *device, const char *name, size_t bytes)
{
    const struct maker *maker = maker_open(device);
    const char *why = maker ? maker->use(maker_number(device)) : NULL;
    *sampler = (struct sampler){ .threads = 1, .bytes = bytes };
    if (why) return fault("%s: %s", device, why);
    for (int i = 0; maker && maker->ceiling_at(i); i++) {
        const struct maker_ceiling *ceiling = maker->ceiling_at(i);
        if (strcmp(ceiling->name, name)) continue;
        sampler->name = ceiling->name;
        sampler->unit = ceiling->unit;
        sampler->maker = maker;
        sampler->device = maker_number(device);
        sampler->device_ceiling = i;
    }
    return EXIT_PASS;
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->data);
    *sampler = (struct sampler){ .threads = 0 };
}
