/* SPDX-License-Identifier: Apache-2.0 */
/* suite.h - a suite is a file of suites/ that lists configurations, and a line of suite.list.
 *
 * A configuration is a problem string and flags of `ringattn bench case`; runner.c starts a process
 * for each. */
#ifndef BENCH_SUITE_H
#define BENCH_SUITE_H

#include "harness/base/complain.h"
#include "harness/options/flags.h"

struct configuration {
    char section[24], name[40]; /* of the table that its row belongs to; and of its line there */
    char problem[320];
    char options[96];
};

struct configurations {
    const struct options *wishes; /* of the command line */
    bool quick;
    struct configuration *at;
    int count, capacity;
    bool lost;      /* memory ran out, or a text is too long */
    char note[480]; /* what is left out, and why; "": nothing */
};

struct suite {
    const char *name, *summary;
    const char *scripts; /* of the reports, that it stands for; NULL: none */
    double seconds;      /* that the runs of a configuration may take; more make no further ones */
    double quick_seconds;
    void (*list)(struct configurations *list);
    /* Of those that --match has left, leaves out what this machine lacks; NULL: nothing. */
    int (*trim)(struct configurations *list);
    bool takes_wishes; /* --tokens, --heads, --kernel, --threads */
};

/* The entries of suite.list; NULL after the last. */
const struct suite *suite_at(int index);
const struct suite *suite_find(const char *name); /* NULL if there is none */

/* For list(): does the library take this problem here, by a kernel of `device` (NULL: any)? */
bool suite_serves(const struct configurations *list, const char *device, const char *problem);

/* For list(): another device than the CPU, by name; NULL: the CPU. For as much time as a CPU
 * it needs problems of several times the tokens. */
const char *suite_device(const struct configurations *list);
const char *suite_dtype(const struct configurations *list); /* that it does best */
int suite_tokens(const struct configurations *list, int tokens);

/* For list(): adds a configuration unless it is there already. What a device does not do is left
 * out: the baseline, processes, limits of time, links, ceilings. */
void suite_add(struct configurations *list, const char *section, const char *name,
               const char *options, const char *problem, ...) __attribute__((format(printf, 5, 6)));

#endif
