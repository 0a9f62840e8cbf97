/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h - measures a ceiling, as often as wanted: of a CPU on some threads, or of a device. */
#ifndef BENCH_SAMPLER_H
#define BENCH_SAMPLER_H

#include "ceilings/ceiling.h"
#include "harness/device/maker.h"

struct sampler {
    const char *name, *unit;       /* of the ceiling; NULL: there is none */
    const struct ceiling *ceiling; /* of a CPU, or */
    const struct maker *maker;     /* of a device, whose number */
    int device, device_ceiling;    /* and ceiling these are */
    int threads;
    int64_t rounds;      /* of a sample on each thread: some hundredths of a second */
    unsigned char *data; /* for reading, a share for each thread; NULL for those that read none */
    size_t bytes;        /* of one share */
    double peak; /* the best of all samples so far, by the time its threads were on a core: what
                          * the machine could do if it were ours alone */
};

/* `bytes` are to be read over all threads, where that is for the caller to say; 0 = enough to be in
 * no cache. Returns an exit status. */
int sampler_open(struct sampler *sampler, const struct ceiling *ceiling, int threads, size_t bytes);

/* The ceiling of that name of a device, e.g. "cuda:0"; without one the sampler has no name. */
int sampler_open_device(struct sampler *sampler, const char *device, const char *name,
                        size_t bytes);

int sampler_take(struct sampler *sampler, double *rate); /* in the ceiling's unit */
void sampler_close(struct sampler *sampler);

#endif
