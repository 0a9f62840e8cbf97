/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the results of a benchmark, one line at a time: human-readable as they come, and as
 * JSON lines and CSV at the end. */
#ifndef BENCH_RECORD_H
#define BENCH_RECORD_H

#include "harness/base/complain.h"
#include "spread.h"

struct record {
    const char *kind;           /* "ceiling", "attention" or "decode" */
    char name[24];              /* of the ceiling, or of the kernel */
    char absent[96];            /* why there is no figure; "" = there is one */
    int threads, runs;          /* 0 where absent */
    const char *dtype;          /* NULL for a ceiling, as the next two; 0 as the numbers below */
    const char *pass, *pattern; /* "forward" or "backward"; "full" or "causal" */
    int64_t dim, heads, q_len, k_len;
    double work;           /* of a run: FLOPs, or bytes of K and V */
    struct spread seconds; /* of a run */
    const char *unit;      /* of the rates */
    struct spread rate;
    const char *ceiling;        /* by name; NULL = none, and none of the next */
    struct spread ceiling_rate; /* sampled between the runs */
    double peak;                /* of the ceiling, by sampler.h; also of a row that is one */
    struct spread share;        /* rate / ceiling, run by run */
};

struct records {
    struct record *rows;
    int count, capacity;
};

int records_add(struct records *records, const struct record *record);
void records_free(struct records *records);

/* Before work starts: could files of this suite be made in that folder? */
int records_check(const char *folder, const char *suite);

/* FOLDER/SUITE.jsonl and FOLDER/SUITE.csv, both or none. */
int records_write(const struct records *records, const char *folder, const char *suite);

#endif
