/* SPDX-License-Identifier: Apache-2.0 */
/* row.h - one result of a benchmark, and a list of them. row.list names every member; the files
 * hold them as JSON lines and as CSV (docs/BENCHMARKS.md). A member that has no value is "", 0 or
 * NaN here, null in JSON and empty in CSV. */
#ifndef BENCH_ROW_H
#define BENCH_ROW_H

#include "harness/base/complain.h"
#include "spread.h"

enum { ROW_SCHEMA = 1 };

struct row {
#define TEXT(name, bytes, meaning) char name[bytes];
#define WHOLE(name, meaning) int64_t name;
#define REAL(name, meaning) double name;
#include "row.list"
#undef TEXT
#undef WHOLE
#undef REAL
};

struct rows {
    struct row *at;
    int count, capacity;
};

/* Nothing has a value but the schema. */
void row_default(struct row *row);

/* Who measures: device, cores, memory, system, version, commit, time. */
void row_machine(struct row *row, const char *device); /* by name; "": cpu */
int row_check_device(const char *device);              /* refuses one that cannot be used here */
bool row_is_cpu(const struct row *row);
struct device_text {
    char s[128]; /* "AMD EPYC, 2 cores"; "NVIDIA H200" */
};
struct device_text row_device_text(const struct row *row);

int rows_add(struct rows *rows, const struct row *row);
void rows_free(struct rows *rows);

/* Do two rows measure the same thing, wherever and whenever? */
bool row_same(const struct row *a, const struct row *b);
const struct row *rows_find(const struct rows *rows, const struct row *like);

/* Two rows can differ beyond their spread only if both have one: with fewer runs nothing is
 * said. */
enum { ROW_RUNS_FEWEST = 3 };
bool row_has_spread(const struct row *row);

void row_seconds(struct row *row, struct spread spread);
void row_rate(struct row *row, struct spread spread);
void row_share(struct row *row, struct spread spread);
void row_ratio(struct row *row, struct spread spread);

void row_write(FILE *stream, const struct row *row); /* a line of JSON */
void rows_csv(FILE *stream, const struct rows *rows);

/* A line of JSON that row_write() or a later version wrote: members that are unknown are skipped.
 * False where it is no such line. */
bool row_read(const char *line, struct row *row);

/* The members by index, for tables and tests; NULL after the last. */
const char *row_member(int index, const char **meaning);

#endif
