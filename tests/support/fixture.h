/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.h - runs one trial through the public API over a group in this process.
 *
 *     fixture_open()      reads a problem string, makes synthetic inputs in global order
 *     fixture_start()     cuts shards, makes the group and its plans
 *     fixture_forward()   fills out and lse in global order
 *     fixture_backward()  fills dq, dk, dv likewise
 *     fixture_stop()      destroys plans and group; the numbers stay
 *     fixture_close()
 *
 * Any failure prints the problem string, to be pasted after `ringattn verify`. Every run is
 * compared with its forecast, outputs are poisoned before, and gaps between strides must stay
 * untouched. */
#ifndef TESTS_SUPPORT_FIXTURE_H
#define TESTS_SUPPORT_FIXTURE_H

#include "support/test.h"

#include "harness/data/data.h"
#include "harness/data/terms.h"
#include "harness/problem/trial.h"

struct fixture_rank {
    ra_plan *plan;
    int64_t counts[2];     /* positions: queries, keys */
    int64_t *positions[2]; /* where the tokens of the shards are in original order */
    void *bias;            /* rows of this rank's queries, or NULL */
    float *dsinks;         /* [q_heads], of this rank's queries */
    struct view shards[TENSOR_COUNT];
    size_t shard_bytes[TENSOR_COUNT];
    ra_stats forward, backward; /* as counted */
    ra_memory memory;
};

struct fixture {
    struct trial trial;
    char *line; /* the problem string */
    ra_pattern *pattern;
    ra_order *order;       /* NULL: sequential, as the next */
    int64_t *origin;       /* original position of every index */
    struct terms terms;    /* sinks and bias, in original order */
    float *dsinks;         /* [q_heads], over all ranks, after a backward pass with sinks */
    ra_layout *layouts[2]; /* by the trial's partition, or the test's own */
    bool custom;           /* the test gave them */
    bool no_lse;           /* forward without an LSE array */
    struct view
        whole[TENSOR_COUNT]; /* packed, in global order; inputs may be changed before start */
    ra_group **groups;
    struct fixture_rank *rank;
    size_t pool_threshold;                         /* of the group; 0 = the library's */
    void (*regroup)(ra_group **groups, int ranks); /* changes the group once it is made; NULL */
    const struct fixture *host; /* a started lab whose group this one joins; NULL: one of its own */
};

void fixture_open(struct fixture *fixture, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Instead of the trial's partition; takes over both (keys may be NULL where as long as queries). */
void fixture_use_layouts(struct fixture *fixture, ra_layout *queries, ra_layout *keys);

void fixture_start(struct fixture *fixture);
void fixture_forward(struct fixture *fixture);
void fixture_backward(struct fixture *fixture);
/* Both, where some rank may fail: the status of the first that did. */
ra_status lab_try(struct fixture *fixture);
void fixture_stop(struct fixture *fixture);
void fixture_close(struct fixture *fixture); /* also of a started one */

/* All of it: start, forward, backward if the trial is one, stop. */
void fixture_run(struct fixture *fixture);

/* Fails the test with the problem string and a sentence. */
void fixture_fail(const struct fixture *fixture, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One number of a tensor in global order. */
double fixture_number(const struct fixture *fixture, enum tensor tensor, int64_t batch,
                      int64_t position, int64_t head, int64_t d);

/* Numbers and bytes of a whole tensor. */
int64_t fixture_count(const struct fixture *fixture, enum tensor tensor);
size_t fixture_bytes(const struct fixture *fixture, enum tensor tensor);

/* Do both hold the same bits? */
bool fixture_same(const struct fixture *a, const struct fixture *b, enum tensor tensor);

#endif
