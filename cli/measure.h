/* measure.h - what this machine and the links of a trial can do, for predictions. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "cli.h"
#include "trial.h"
#include "wire.h"

/* Fills *machine and lets the trial borrow it, unless all that predictions need was given. Where
 * ranks are the processes of the world, all of them call this together. */
int measure(struct trial *trial, struct wire wire, ra_machine *machine);

#endif
