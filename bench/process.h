/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - starts a command in a process group of its own and reads what it prints. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include "harness/base/complain.h"
#include "harness/text/text.h"

struct process_end {
    int status;        /* its exit status; 128 + the signal that ended it */
    bool own;          /* ringattn itself has printed a sentence ("ringattn: ...") */
    char last[240];    /* the last such sentence, or the first line of somebody else */
    struct string out; /* lines that begin with '{'; to be freed */
};

/* `arguments` ends with NULL; the first is a path, or a name in PATH. An interruption of this
 * process ends the other one, with all that it started, within half a second. EXIT_FAULT where it
 * could not be started or this process was interrupted; `end` is then empty. */
int process_run(char *const *arguments, struct process_end *end);

#endif
