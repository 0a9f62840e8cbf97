/* SPDX-License-Identifier: Apache-2.0 */
/* system.h - systems by name: what they stand for, filled into a trial. */
#ifndef HARNESS_SYSTEM_H
#define HARNESS_SYSTEM_H

#include "harness/base/complain.h"
#include "trial.h"

/* A system by the name that reports know it by, and what it stands for here. */
struct system {
    const char *name;
    const char *summary;                                            /* one line */
    const char *pattern, *order, *strategy, *partition, *transport; /* NULL: left open */
    const char *missing; /* what to say while its transport is not there */
};

const struct system *system_find(const char *name); /* in any case; NULL if there is none */
const struct system *system_at(int index);          /* NULL after the last one */

/* NULL, or what the system needs that is not here. */
const char *system_missing(const struct system *system);

/* EXIT_PASS if there is a system of that name and it can be used; otherwise a sentence. */
int system_check(const char *what, const char *name);

enum { SYSTEM_FIELDS = 5 };

/* What a system may fix, as keys of problem strings: pattern, order, strategy, partition,
 * transport. The flags are the same with two dashes. */
extern const char *const system_keys[SYSTEM_FIELDS];

/* Sets what the trial's system fixes and `given` leaves open. */
int system_apply(struct trial *trial, const bool given[SYSTEM_FIELDS]);

/* "system NAME: FLAGS" for the trial, if it has one, with the flags as they are in force. */
void system_print(const struct trial *trial);

/* The members "system" and "system_flags", null where there is none. */
struct json;
void system_json(struct json *json, const struct trial *trial);

/* Everything there is, as a table or as the member "systems". */
void system_print_all(void);
void system_json_all(struct json *json);

#endif
