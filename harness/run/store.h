/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the results of a run into files: all of them, or none. */
#ifndef HARNESS_STORE_H
#define HARNESS_STORE_H

#include "harness/base/complain.h"
#include "engine.h"
#include "harness/options/flags.h"

int store_check(const struct options *options); /* before work starts: can they be written? */
int store_results(const struct options *options, const struct engine *engine);

#endif
