/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - the tensors of a run from files. The shapes of the files become the trial. */
#ifndef HARNESS_LOAD_H
#define HARNESS_LOAD_H

#include "harness/base/complain.h"
#include "engine.h"
#include "harness/options/flags.h"

/* True if any file to read was named. */
bool load_wanted(const struct options *options);

/* Compares shapes and reads everything, converted to the trial's dtype; `in_parts`: only opens the
 * files, and the ranks read what they need. `inputs` needs load_free() also after a failure. */
int load_inputs(struct options *options, bool in_parts, struct inputs *inputs);
void load_free(struct inputs *inputs);

#endif
