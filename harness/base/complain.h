/* SPDX-License-Identifier: Apache-2.0 */
/* complain.h - what every file of the harness, the command and the benchmarks shares: exit status
 * and the one way to report an error.
 *
 * The function that finds an error prints its sentence and returns an exit status; its callers pass
 * the status on. */
#ifndef HARNESS_COMPLAIN_H
#define HARNESS_COMPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ringattn.h"

enum exit_status {
    EXIT_PASS = 0,
    EXIT_CHECK = 1, /* a check failed */
    EXIT_USAGE = 2, /* bad usage, input or budget: nothing is written */
    EXIT_FAULT = 3  /* a run-time fault, or the user interrupted */
};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Prints "ringattn: SENTENCE" to stderr and returns EXIT_USAGE or EXIT_FAULT. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The last of these sentences, of any thread; "" if there was none. */
void last_complaint(char *text, size_t bytes);

/* Prints the library's sentence and returns the exit status that belongs to `status`. */
int library_failed(ra_status status);

/* A progress line may be on stderr; errors start by erasing it. Set by progress.c. */
extern void (*before_complaint)(void);

#endif
