/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.h - how far the clocks of the processes of the world are apart. */
#ifndef HARNESS_CLOCKS_H
#define HARNESS_CLOCKS_H

#include "harness/base/complain.h"

struct clocks {
    double ahead; /* seconds that this process's clock shows more than that of the first */
    double doubt; /* that may be so many seconds too much or too little */
};

/* All processes call it; the clock is machine_seconds(). */
int clocks_compare(struct clocks *out);

#endif
