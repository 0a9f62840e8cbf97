/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - what fits into so much memory per rank: the smallest ring, and the longest sequence. */
#ifndef HARNESS_FIT_H
#define HARNESS_FIT_H

#include "harness/problem/trial.h"

struct fit_answer {
    int64_t memory;    /* the limit, bytes per rank */
    int64_t ring;      /* the smallest that fits the trial's tokens; 0: none up to 4096 */
    double ring_bytes; /* of its rank that needs most */
    int64_t tokens;    /* the most that fit the trial's ring; 0: not even one, -1: fixed */
    double tokens_bytes;
};

/* Asks the library for plans, without running. */
int fit_find(const struct trial *trial, int64_t memory, struct fit_answer *answer);

#endif
