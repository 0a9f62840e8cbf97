/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - sets of positions as ranges, ascending and apart; as many as it takes. */
#ifndef RA__PLAN_SPANS_H
#define RA__PLAN_SPANS_H

#include "plan/plan.h"

struct ra__spans {
    struct ra__range *at; /* owned */
    int64_t count;
};

ra_status ra__spans_add(struct ra__spans *spans, struct ra__range range);
ra_status ra__spans_add_all(struct ra__spans *spans, const struct ra__range *ranges, int64_t count);
void ra__spans_clear(struct ra__spans *spans);

/* The tokens of `owner`'s block whose positions are in the set, as a few ranges. */
struct ra__ranges ra__spans_tokens(const struct ra__spans *spans, const ra_layout *layout,
                                   int owner);

#endif
