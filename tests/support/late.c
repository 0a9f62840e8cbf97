/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - see late.h: failures, delays, and groups that use both. */
#include "support/late_parts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_int steps_left = -1, rounds_left = -1; /* until one fails */

void late_fail(int step, int round)
{
    atomic_store(&steps_left, step);
    atomic_store(&rounds_left, round);
}

static bool fails_now(atomic_int *left)
{
    return atomic_load(left) >= 0 && atomic_fetch_sub(left, 1) == 0;
}

bool late_step_fails(void) { return fails_now(&steps_left); }
bool late_round_fails(void) { return fails_now(&rounds_left); }

void late_delay(unsigned *seed)
{
    struct timespec t = { 0, (long)(rand_r(seed) % 200) * 1000 };
    if (rand_r(seed) % 3 == 0) nanosleep(&t, NULL);
}

void late_use(ra_group **groups, int ranks, bool backend, bool transport)
{
    void *links[64];
    if (ranks > RA__COUNT(links)) abort();
    if (transport && late_transport.open(ranks, NULL, links) != RA_OK) abort();
    for (int i = 0; i < ranks; i++) {
        struct ra__rank *rank = &groups[i]->rank;
        const struct ra__device_options options = { .threads = 1 };
        if (transport) {
            rank->transport->close(rank->link);
            rank->transport = &late_transport;
            rank->link = links[i];
        }
        if (!backend) continue;
        ra__buffers_destroy(rank->buffers);
        rank->backend->close(rank->device);
        rank->backend = &late_backend;
        if (late_backend.open(&options, &rank->device) != RA_OK) abort();
        const struct ra__buffer_source source = { late_backend.alloc, late_backend.free,
                                                  rank->device };
        if (ra__buffers_create((size_t)1 << 20, source, &rank->buffers) != RA_OK) abort();
    }
}
