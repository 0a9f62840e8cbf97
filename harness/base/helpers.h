/* SPDX-License-Identifier: Apache-2.0 */
/* helpers.h - threads that share a loop with the thread that calls. */
#ifndef HARNESS_HELPERS_H
#define HARNESS_HELPERS_H

struct helpers;

/* Starts up to `count` threads, fewer where the system has no more. NULL: memory ran out. */
struct helpers *helpers_start(int count);
void helpers_stop(struct helpers *helpers); /* accepts NULL */

int helpers_threads(const struct helpers *helpers); /* with the caller's; 1 for NULL */

/* Calls part(context, i) for i below `parts`, in any order on any of the threads, and returns when
 * all have returned. One call at a time. */
void helpers_run(struct helpers *helpers, int parts, void (*part)(void *context, int index),
                 void *context);

#endif
