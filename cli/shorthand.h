/* shorthand.h - flags that stand for others: --segment-lengths with --dilation-rates, and
 * --system. */
#ifndef CLI_SHORTHAND_H
#define CLI_SHORTHAND_H

#include "cli.h"
#include "flags.h"

/* Writes them out into the trial; what was given by its own flag stays. */
int shorthand_expand(struct options *options);

#endif
