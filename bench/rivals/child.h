/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - the Python process that runs PyTorch's attention (rivals.py, which has the commands).
 *
 * The process is asked one command at a time. It may end or never answer; then it is stopped, and
 * the answer says why in `absent`, as it does where the process lives and refuses. */
#ifndef BENCH_RIVALS_CHILD_H
#define BENCH_RIVALS_CHILD_H

#include "process.h"
#include "row.h"

struct child {
    struct process process;
    double timeout; /* seconds until an answer */
    bool alive;
};

struct child_setup {
    const char *device; /* "cpu", "cuda:0" */
    int threads;
    int file;       /* tensors: shared.h; -1: none */
    double timeout; /* 0 = CHILD_TIMEOUT */
};

/* Importing PyTorch and compiling FlexAttention for both passes take a minute each on slow
 * machines. */
#define CHILD_TIMEOUT 300.0

/* The Python that is used: the one that RINGATTN_TORCH_PYTHON names, or python3. */
const char *child_python(void);

/* A command ends with its line. EXIT_FAULT where this process was interrupted, or memory ran out.
 * The first answer says which PyTorch it is (`library`). */
int child_start(struct child *child, const struct child_setup *setup, struct row *answer);
int child_ask(struct child *child, struct row *answer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void child_stop(struct child *child); /* accepts one that is not alive */

#endif
