/* SPDX-License-Identifier: Apache-2.0 */
/* late.h - a backend and a transport that take every freedom their contracts leave, for tests.
 *
 * The backend's memory cannot be touched outside it: its pointers fault. It has two queues, for
 * copies and for computing, each on a thread of its own, which start every step late, after a
 * random delay; only events keep their order. Inside, steps are run by the CPU backend.
 *
 * The transport has no tags: the n-th send from a to b meets the n-th receive on b from a. It
 * starts a round on a thread of its own, when the events it comes after have passed. */
#ifndef TESTS_SUPPORT_LATE_H
#define TESTS_SUPPORT_LATE_H

#include "api/handles.h"

extern const struct ra__backend late_backend;
extern const struct ra__transport late_transport;

/* Makes the ranks of a group in this process use them. */
void late_use(ra_group **groups, int ranks, bool backend, bool transport);

/* Fails the n-th step that is issued from now on, or the n-th round that is posted; -1: none. */
void late_fail(int step, int round);

/* Device memory that is held, in bytes, and steps in flight. */
size_t late_bytes(void);
int late_in_flight(void);

#endif
