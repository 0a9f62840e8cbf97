/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - how fast the links of a group and the kernels of its ranks are. */
#ifndef RA__EXEC_MEASURE_H
#define RA__EXEC_MEASURE_H

#include "exec/exec.h"

/* What is measured: this rank and its links, for problems of one dtype and these dims. */
struct ra__subject {
    const struct ra__rank *rank;
    struct ra__shape shape;
    const char *kernel; /* NULL = the best */
    bool backward;      /* too */
};

/* Every rank of the group calls it at the same time, and gets the same figures; 0 where there is
 * nothing to measure. */
ra_status ra__measure(const struct ra__subject *subject, struct ra__machine *out);

/* A small problem that one rank computes by itself, probe.c, of so many positions (0: as many as
 * keep a core busy for milliseconds). Run forward before backward. */
struct ra__probe;
ra_status ra__probe_create(const struct ra__subject *subject, int64_t length,
                           struct ra__probe **out);
ra_status ra__probe_run(struct ra__probe *probe, bool backward, double *flops); /* done by it */
size_t ra__probe_bytes(const struct ra__probe *probe);                          /* of a tensor */
void ra__probe_destroy(struct ra__probe *probe); /* accepts NULL and half-made ones */

#endif
