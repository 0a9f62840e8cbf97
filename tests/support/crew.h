/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - a small problem that all ranks of a group compute, each on a thread of its own, and
 * what became of every rank. Tests change what they want to break between crew_open() and
 * crew_start(). */
#ifndef TESTS_SUPPORT_CREW_H
#define TESTS_SUPPORT_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ringattn.h"

enum { CREW_MOST = 8 };

/* The problem, f32. Zero means: full, contiguous, ring, 1 KV head per query head. */
struct crew_case {
    const char *pattern, *partition, *strategy;
    int ranks;
    int64_t q_len, k_len;
    int q_heads, kv_heads, dim, value_dim;
    bool forward_only;
    int repeat; /* how often each rank runs it; 0 = once */
};

struct crew_rank {
    struct crew *crew;
    int rank;
    ra_group *group; /* may be replaced, e.g. by one with a custom transport */
    ra_problem problem;
    ra_plan_options options;
    ra_progress_fn progress;
    bool started;
    pthread_t thread;
    atomic_bool done;
    ra_status status; /* these four when done: how it ended */
    ra_status again;  /* of one more run on the same plan */
    char sentence[1024];
    double seconds; /* until it ended, the run after it not counted */
};

struct crew {
    struct crew_case is;
    ra_pattern *pattern;
    ra_layout *q_layout, *k_layout;
    size_t floats; /* of all results together */
    float *q, *k, *v, *dout, *dlse;
    float *results, *out, *lse, *dq, *dk, *dv; /* in global order; the latter inside the first */
    bool run_again;  /* each rank tries once more after it ended, with a status in `again` */
    double patience; /* seconds crew_join() waits before it aborts the group and fails; 0 = 20 */
    struct crew_rank at[CREW_MOST];
};

/* Makes the problem and its data and, unless `options` is NULL, a group: local, or with the
 * transport that RINGATTN_TEST_TRANSPORT names. */
void crew_open(struct crew *crew, const struct crew_case *is, const ra_group_options *options);

/* Starts the threads of all ranks, or of one. */
void crew_start(struct crew *crew);
void crew_start_rank(struct crew *crew, int rank);
void crew_join(struct crew *crew);                /* those that were started */
void crew_join_rank(struct crew *crew, int rank); /* a hang is a failure: see patience */

/* Start and join. */
void crew_run(struct crew *crew);

/* Every rank ended well; otherwise prints what each said and fails the test. */
void crew_expect_ok(const struct crew *crew);

/* This rank ended with `status`, in a sentence that holds `words` (NULL = any). */
void crew_expect(const struct crew *crew, int rank, ra_status status, const char *words);

/* Prints what every rank said and fails the test. */
void crew_fail(const struct crew *crew, const char *why);

/* Destroys everything, and fails the test if the library still holds a byte. */
void crew_close(struct crew *crew);

double crew_now(void);
void crew_sleep(double seconds);

/* RINGATTN_LONG=1: larger grids. */
bool crew_long(void);

/* Ends the program with a sentence if it has not ended by itself: a hang is a failure. */
void crew_watchdog(int seconds);

#endif
