/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h - machines by name, for predictions about others than this one. */
#ifndef HARNESS_MACHINES_H
#define HARNESS_MACHINES_H

#include "harness/problem/trial.h"

struct known_machine {
    char name[32], source[16]; /* "datasheet" or "measured" */
    double flops, half_flops;  /* per second, f32 and 16 bit */
    double bandwidth, latency; /* bytes per second and rank; seconds */
    double memory;             /* bytes */
    char summary[96];
};

/* Looks a name up in the file, or in the built-in table where there is none (NULL). An unknown name
 * is refused with those there are. */
int machines_find(const char *file, const char *name, struct known_machine *machine);

/* What the trial's predictions are made with becomes the machine's, as far as it was not given. */
void machines_apply(const struct known_machine *machine, struct trial *trial);

/* The built-in table, as a file that machines_find() reads. */
void machines_print(void);

#endif
