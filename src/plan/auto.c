/* auto.c - the strategy that stands for whichever other one is predicted to be fastest. The choice
 * is made above plans, by asking plans of each. */
#include "plan/plan.h"

const struct ra__strategy ra__strategy_auto = {
    .name = "auto",
    .summary = "whichever is predicted to be fastest, from latency, bandwidth and FLOP/s; says why",
    .chooses = true,
};
