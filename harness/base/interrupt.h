/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - Ctrl-C, SIGTERM and SIGHUP: work ends in good order, and soon.
 *
 * From interrupt_catch() on, the first of them sets a flag that loops look at, so that they end in
 * good order. Work that has not ended after INTERRUPT_SECONDS, because it does not look, is ended
 * here: files that are not whole are removed, sentence and exit status are the same. A second
 * signal kills as usual. */
#ifndef HARNESS_INTERRUPT_H
#define HARNESS_INTERRUPT_H

#include "complain.h"

#define INTERRUPT_SECONDS 0.7

void interrupt_catch(void);
bool interrupt_seen(void);

/* After that: "interrupted by Ctrl-C", or by what else. */
const char *interrupt_name(void);

/* EXIT_PASS; once interrupted a sentence that says by what, and what is left. */
int interrupt_check(void);

/* What is left of the work, in words that stay valid: "nothing was written", if nobody says. */
void interrupt_leaves(const char *what);

/* A file to remove if the process is ended, and not any more. The path is borrowed in between. */
void interrupt_guard(const char *path);
void interrupt_release(const char *path);

/* Between these calls files get their names: the end waits for them, though not for ever. They may
 * be nested. */
void interrupt_hold(void);
void interrupt_resume(void);

#endif
