/* SPDX-License-Identifier: Apache-2.0 */
/* spread.h - the middle and the ends of some numbers. */
#ifndef BENCH_SPREAD_H
#define BENCH_SPREAD_H

struct spread {
    double median, least, most;
};

/* Sorts them; there is at least one. */
struct spread spread_of(double *numbers, int count);

#endif
