/* SPDX-License-Identifier: Apache-2.0 */
/* auto.c - the strategy that stands for the one that is predicted to be fastest; choose.c makes
 * that choice. */
#include "plan/plan.h"

const struct ra__strategy ra__strategy_auto = {
    .name = "auto",
    .summary = "whichever is predicted to be fastest, from latency, bandwidth and FLOP/s; says why",
    .chooses = true,
};
