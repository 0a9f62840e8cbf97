/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - runs one trial and holds everything against it: the oracle, and the truth rules
 * around it. */
#ifndef HARNESS_VERDICT_H
#define HARNESS_VERDICT_H

#include "check.h"
#include "harness/base/complain.h"
#include "harness/problem/trial.h"
#include "harness/problem/wire.h"

/* What one case came to. */
struct verdict {
    bool passed;
    double worst;   /* largest error / bound */
    char what[200]; /* what differed */
    struct check check;
};

/* Everything about one trial. A trial that does not run has failed too; the exit status says
 * why. */
int verify_trial(const struct trial *trial, struct wire wire, struct verdict *verdict);

#endif
