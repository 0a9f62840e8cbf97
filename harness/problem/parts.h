/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - names the library knows, by kind ("kernel", "transport", "partition", "strategy"), and
 * the errors for other names. Nothing here lists the parts of the library: it asks. */
#ifndef HARNESS_PARTS_H
#define HARNESS_PARTS_H

#include "harness/base/complain.h"

/* True, with the entry, if there is a part of that kind whose name is the first `length`
 * letters. */
bool parts_find(const char *kind, const char *name, size_t length, ra_part *out);

/* EXIT_PASS if it exists and is usable; otherwise a sentence that names it. Names of parts that a
 * later version has are distinguished from unknown ones. */
int parts_check(const char *kind, const char *what, const char *name);

/* True for a name of that kind which this version knows of but does not have. */
bool parts_is_later(const char *kind, const char *name);

#endif
