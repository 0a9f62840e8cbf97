/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - ranks of this process over a link of a given speed: a message arrives when such a link
 * would have delivered it, while both sides compute. A blocking link delivers inside the post, so
 * that nothing overlaps: what overlap is worth is the difference. */
#ifndef HARNESS_LINK_H
#define HARNESS_LINK_H

#include "harness/base/complain.h"

struct link_setup {
    double bandwidth; /* bytes per second that a rank sends; 0 = no such link */
    double latency;   /* seconds */
    bool blocking;
};

/* Groups for all ranks; the last one destroyed takes the link with it. */
ra_status link_groups(const struct link_setup *setup, int ranks, const ra_group_options *options,
                      ra_group **groups);

#endif
