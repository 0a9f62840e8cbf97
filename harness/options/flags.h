/* SPDX-License-Identifier: Apache-2.0 */
/* flags.h - one table of flags that feeds parsing and help of every verb. */
#ifndef HARNESS_FLAGS_H
#define HARNESS_FLAGS_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"
#include "harness/problem/wire.h"

/* Bits for the table: which verbs take a flag. */
enum verb_bit {
    VERB_RUN = 1,
    VERB_VERIFY = 2,
    VERB_PLAN = 4,
    VERB_INFO = 8,
    VERB_DEMO = 16,
    VERB_BENCH = 32,
    VERB_REPORT = 64
};

enum { FLAGS_MOST = 96 };

/* Its fields are many because the command has many flags: one field for each that is no word of a
 * problem string. */
struct options {
    struct trial trial;
    const char *q, *k, *v, *dout, *dlse;           /* files to read */
    const char *out, *lse, *dq, *dk, *dv, *dsinks; /* files to write; out: a folder for bench */
    const char *data; /* host or device: where rows of a stream are made; NULL: either */
    const char *trace, *mask, *rings, *match;
    const char *subset;             /* of the grid: I/N; NULL: all of it */
    const char *rivals;             /* names separated by commas, all or no; NULL: not given */
    const char *machine, *machines; /* by name; the file of the table */
    const char *head;               /* of the mask: a number, or "all" */
    const char *segment_lengths, *dilation_rates; /* another way to write a pattern */
    int64_t memory;                               /* bytes per rank; 0 = no limit */
    int64_t fit;                                  /* bytes per rank; 0 = not asked */
    int64_t rank, warmup, runs;
    int64_t pool;          /* bytes; -1 = no pool, 0 = the library's default */
    double seconds, limit; /* of all runs of a benchmark, and of one */
    struct wire wire;
    bool resume, json, quiet, verify, predict, list, quick, explain, systems, deterministic;
    bool standard, replan, list_machines, blocking, digest;
    double link;  /* bytes per second between ranks that are threads; 0 = as fast as they are */
    char **words; /* arguments that are not flags, in order; borrowed */
    int word_count;
    bool given[FLAGS_MOST]; /* by index in the table */
};

struct verb {
    const char *name;
    enum verb_bit bit;
    const char *usage;   /* after the name */
    const char *summary; /* one line, for the list of verbs */
    const char *about;   /* a paragraph, for its own help */
    int (*run)(struct options *options);
    void (*more)(void); /* prints what its help has after the paragraph; NULL: nothing */
};

/* Reads argv after the verb. The options need options_clear() also after a failure. `*help` is set
 * if help was asked for instead. */
int flags_parse(const struct verb *verb, int argc, char **argv, struct options *options,
                bool *help);
void options_clear(struct options *options);

/* True where auto chooses a strategy and may not look at a clock for it. */
bool options_fixed_choice(const struct options *options);

/* True if the flag (e.g. "--tokens") stood on the command line. */
bool flags_given(const struct options *options, const char *name);

/* Prints the help of one verb to stdout. */
void flags_help(const struct verb *verb);

#endif
