/* SPDX-License-Identifier: Apache-2.0 */
/* late_parts.h - what late.c, late_backend.c and late_transport.c know of one another; tests
 * include late.h. */
#ifndef TESTS_SUPPORT_LATE_PARTS_H
#define TESTS_SUPPORT_LATE_PARTS_H

#include "support/late.h"

/* Is this the step, or the round, that late_fail() asked for? */
bool late_step_fails(void);
bool late_round_fails(void);

/* Sleeps for a random time, or not at all. */
void late_delay(unsigned *seed);

/* Returns when an event of a device has passed. */
void late_await(const struct ra__event *event);

#endif
