/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h - machines by name, for predictions about others than this one. */
#ifndef HARNESS_MACHINES_H
#define HARNESS_MACHINES_H

#include "harness/problem/trial.h"

/* Where a figure comes from: "datasheet", "gemm" (a matrix product was measured), "measured" or
 * "assumed". */
struct machine_figure {
    double value;
    char source[12];
};

struct known_machine {
    char name[32], summary[96];
    struct machine_figure flops, half_flops;  /* per second, f32 and 16 bit */
    struct machine_figure bandwidth, latency; /* bytes per second and rank; seconds */
    struct machine_figure memory;             /* bytes */
    struct machine_figure copy, load;         /* bytes per second: in memory; from the host */
};

/* The rate that a trial of this dtype is predicted with. Was it measured with attention? */
const struct machine_figure *machines_flops(const struct known_machine *machine,
                                            const struct trial *trial);
bool machines_attends(const struct known_machine *machine);

/* Looks a name up in the file, or in the built-in table where there is none (NULL). An unknown name
 * is refused with those there are. */
int machines_find(const char *file, const char *name, struct known_machine *machine);

/* What the trial's predictions are made with becomes the machine's, as far as it was not given. */
void machines_apply(const struct known_machine *machine, struct trial *trial);

/* The built-in table, as a file that machines_find() reads. */
void machines_print(void);

#endif
