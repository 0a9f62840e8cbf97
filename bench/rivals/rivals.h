/* SPDX-License-Identifier: Apache-2.0 */
/* rivals.h - our kernel and the attention of PyTorch take turns on the same numbers, round after
 * round.
 *
 *     rivals_open()    starts the other process, warms up what it has, and checks its results
 *     rivals_round()   a turn of ours, then one of every rival; as often as you like
 *     rivals_write()   rows: ours, and those of the rivals with ratios
 *     rivals_close()
 *
 * A sustained turn fills a time with calls one after the other, which shows the rate at the clock
 * that power allows. A single shot is one call after a pause. */
#ifndef BENCH_RIVALS_RIVALS_H
#define BENCH_RIVALS_RIVALS_H

#include "row.h"
#include "shared.h"

struct rivals;

enum { RIVALS_ROUNDS_LEAST = 3 };

struct rivals_setup {
    const char *names;     /* separated by commas: cudnn,flash,efficient,flex */
    struct engine *engine; /* of one rank, with `shared` as its inputs; every pass has run once */
    const struct shared *shared;
    const struct row *rows[2]; /* what is known of the problem, forward and backward */
    int passes;
    double seconds; /* for all rounds: so few make turns short; 0 = any */
    double timeout; /* for an answer; 0 = minutes */
};

/* Refuses a list with a name that there is not. */
int rivals_check(const char *names);

/* Refuses problems that only we can do. */
int rivals_check_trial(const struct trial *trial);

/* Is this name in a list, or is the list "all"? */
bool rivals_named(const char *names, const char *name);
const char *rivals_at(int index); /* all that there are; NULL after the last */

/* A rival that is not there, fails or refuses is no failure: its row says why. */
int rivals_open(struct rivals **out, const struct rivals_setup *setup);

/* One round of a pass, the `round`-th from 0 that counts. Sets the seconds of a call of ours. */
int rivals_round(struct rivals *rivals, int pass, int round, double *seconds);

/* Prints the rows of a pass after `rounds` of them: `ours`, to which it adds what it knows. */
void rivals_write(struct rivals *rivals, int pass, int rounds, struct row *ours);

void rivals_close(struct rivals *rivals); /* accepts NULL */

#endif
