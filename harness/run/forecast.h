/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h - what every rank of a trial would need and do, asked of the library without
 * running. */
#ifndef HARNESS_FORECAST_H
#define HARNESS_FORECAST_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"

struct forecast_rank {
    ra_memory memory;
    ra_stats forward, backward; /* backward: zeros unless the trial is one */
};

struct forecast {
    int ranks;
    struct forecast_rank *rank;
    char kernel[24];
    char strategy[32], why[400]; /* the one chosen */
    char figures[192];           /* what the prediction is made with */
    int threads;                 /* of each rank */
    double flops;                /* over all ranks, backward included */
    int64_t pairs;               /* of the forward pass */
    double density;
    int64_t hops;        /* of the rank with most, both ways added up */
    double seconds;      /* predicted: the slowest rank of each pass */
    double wait_seconds; /* of that, for messages */
    double total_bytes;  /* memory over all ranks */
    int64_t block;       /* of a stream: positions of a block; 0 for other strategies */
    int64_t units[2];    /* of a stream: forward, backward */
    int asked;           /* ranks that were planned; the others are interpolated */
};

/* What predictions are usually off by: the median over the grids of tools/forecast and of
 * tests/plan, which fail when they drift. */
#define FORECAST_MEMORY_ERROR 0.03
#define FORECAST_TIME_ERROR 0.10

/* Ranks to ask at most, of thousands: the first and the last ones, which differ most, and others
 * spread between them. */
enum { FORECAST_MANY = 256, FORECAST_FEW = 4 };

/* The plan of one rank, without a group: it can be asked, not run. */
int forecast_plan(const struct trial *trial, int64_t memory, int rank, ra_plan **out);

/* Sets whether the library supports the trial: a kernel may not support a dtype. Other failures
 * occur again, and are reported, when it is run. */
int forecast_serves(const struct trial *trial, bool *serves);

/* Asks every rank, up to FORECAST_MANY of them; a budget too small is refused with the bytes
 * needed. `memory` 0 = no limit. */
int forecast_open(struct forecast *forecast, const struct trial *trial, int64_t memory);
int forecast_open_some(struct forecast *forecast, const struct trial *trial, int64_t memory,
                       int most);
void forecast_close(struct forecast *forecast);

/* The same from plans that are made for a run: a place for every rank, what each plan says, and
 * then the sums over all. */
int forecast_begin(struct forecast *forecast, int ranks);
ra_status forecast_take(struct forecast *forecast, const ra_plan *plan, int rank, bool backward);
void forecast_total(struct forecast *forecast, const struct trial *trial);

#endif
