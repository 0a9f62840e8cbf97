/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - one line on the terminal: progress, and the time left.
 *
 * Any number of threads report; the first one after a tenth of a second draws. Silent if stderr is
 * not a terminal. */
#ifndef HARNESS_PROGRESS_H
#define HARNESS_PROGRESS_H

#include "harness/base/complain.h"

/* One line at a time; `label` must stay alive. Quiet draws nothing. */
void progress_begin(const char *label, bool quiet);
void progress_update(double done); /* 0 to 1, from any thread */
void progress_hide(void); /* wipes the line until the next update, to print something else */
void progress_end(void);  /* wipes the line for good */

#endif
