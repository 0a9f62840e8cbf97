/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h - what a streamed run is, as text: version, problem, plan, outputs, and the files that
 * are read, by size and time. A journal belongs to runs with the same text. */
#ifndef HARNESS_IDENTITY_H
#define HARNESS_IDENTITY_H

#include "streaming.h"

/* To be freed; NULL if memory ran out. */
char *identity_of(const struct streaming_setup *setup);

#endif
