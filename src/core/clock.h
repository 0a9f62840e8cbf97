/* clock.h - seconds on the monotonic clock. */
#ifndef RA__CORE_CLOCK_H
#define RA__CORE_CLOCK_H

#include <time.h>

static inline double ra__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
