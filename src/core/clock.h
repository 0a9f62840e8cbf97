/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the monotonic clock: seconds, and condition variables with deadlines on it. */
#ifndef RA__CORE_CLOCK_H
#define RA__CORE_CLOCK_H

#include <pthread.h>
#include <time.h>

static inline double ra__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A moment between two looks at something that began at `since`. Most waits are short; a longer
 * one leaves the core to others. */
#define RA__SHORT_WAIT 200e-6
static inline void ra__backoff(double since)
{
    if (ra__now() - since < RA__SHORT_WAIT) return;
    nanosleep(&(struct timespec){ 0, 50000 }, NULL);
}

/* A condition variable whose deadlines are on this clock; see ra__deadline. */
static inline void ra__cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* This many seconds from now. */
static inline struct timespec ra__deadline(double seconds)
{
    double at = ra__now() + seconds;
    time_t whole = (time_t)at;
    return (struct timespec){ whole, (long)((at - (double)whole) * 1e9) };
}

#endif
