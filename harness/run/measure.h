/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - what this machine and the links of a trial can do, for predictions. */
#ifndef HARNESS_MEASURE_H
#define HARNESS_MEASURE_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"
#include "harness/problem/wire.h"

/* Fills *machine and lends it to the trial, unless all figures for predictions were given. If ranks
 * are the processes of the world, all of them call this together. */
int measure(struct trial *trial, struct wire wire, ra_machine *machine);

#endif
