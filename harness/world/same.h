/* SPDX-License-Identifier: Apache-2.0 */
/* same.h - do all processes of the world run the same command? Plans compare their problems by
 * themselves; this is for what only the command knows: files, passes and other work. */
#ifndef HARNESS_SAME_H
#define HARNESS_SAME_H

#include "harness/options/flags.h"

/* All processes call this, first of all that they do together. A sentence that names two ranks and
 * the flag in which they differ. */
int same_command(const struct options *options, const char *verb);

#endif
