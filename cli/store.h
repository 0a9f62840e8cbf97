/* store.h - the results of a run into files: all of them, or none. */
#ifndef CLI_STORE_H
#define CLI_STORE_H

#include "cli.h"
#include "engine.h"
#include "flags.h"

int store_check(const struct options *options); /* before work starts: can they be written? */
int store_results(const struct options *options, const struct engine *engine);

#endif
