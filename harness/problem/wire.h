/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - how the messages between ranks are looked after. */
#ifndef HARNESS_WIRE_H
#define HARNESS_WIRE_H

#include "harness/base/complain.h"

struct wire {
    double timeout; /* seconds; 0 = the library's default */
    bool checksum;  /* of every message */
};

static inline ra_group_options wire_options(struct wire wire)
{
    ra_group_options options = ra_group_options_default();
    options.timeout = wire.timeout;
    options.checksum = wire.checksum;
    return options;
}

#endif
