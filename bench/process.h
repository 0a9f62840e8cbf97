/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - starts a command in a process group of its own, and reads what it prints: all of it,
 * or an answer for each line that it is sent. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <sys/types.h>

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

/* A process that is asked. It ends at the latest when the thread that started it does. */
struct process {
    pid_t id; /* 0: it does not run */
    int to, from;
    bool ended;         /* by itself, when it was asked last */
    struct string part; /* of a line that has not ended */
    char last[240];     /* the last line that was no answer: why it ended, as a rule */
};

/* Its standard output and error are read alike. EXIT_FAULT where it could not be started. */
int process_open(struct process *process, char *const *arguments);

/* Sends a line, unless it is NULL, and waits for an answer: a line that begins with '{'. `answer`
 * stays empty where the process ended, or the time did. EXIT_FAULT where this process was
 * interrupted. */
int process_ask(struct process *process, const char *line, double seconds, struct string *answer);

/* Ends it, with all that it started; accepts one that was never opened. */
void process_close(struct process *process);

#endif
