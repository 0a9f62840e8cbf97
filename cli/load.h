/* load.h - the tensors of a run from files. The shapes of the files become the trial. */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

#include "cli.h"
#include "engine.h"
#include "flags.h"

/* True if any file to read was named. */
bool load_wanted(const struct options *options);

/* Reads, compares shapes and converts to the trial's dtype. `inputs` needs load_free() also after a
 * failure. */
int load_inputs(struct options *options, struct inputs *inputs);
void load_free(struct inputs *inputs);

#endif
