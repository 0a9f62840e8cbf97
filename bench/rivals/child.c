/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - the Python process that runs PyTorch's attention. */
#include "child.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "assets.h"
#include "harness/base/interrupt.h"

const char *child_python(void)
{
    const char *named = getenv("RINGATTN_TORCH_PYTHON");
    return named && *named ? named : "python3";
}

/* No answer: why, in the words of the process itself if it had any. */
static void lose(struct child *child, struct row *answer)
{
    static const char own[] = "ringattn: ";
    const struct process *p = &child->process;
    const char *last = p->last + (strncmp(p->last, own, sizeof own - 1) ? 0 : sizeof own - 1);
    if (p->ended)
        snprintf(answer->absent, sizeof answer->absent, "its process ended%s%.200s",
                 *last ? ": " : "", last);
    else snprintf(answer->absent, sizeof answer->absent, "no answer for %g s", child->timeout);
    child_stop(child);
}

static int ask(struct child *child, struct row *answer, const char *command)
{
    struct string text = { .lost = false };
    int status = process_ask(&child->process, command, child->timeout, &text);
    if (interrupt_seen()) status = interrupt_check();
    row_default(answer);
    if (!status && !text.s) {
        lose(child, answer);
    } else if (!status && !row_read(text.s, answer)) {
        row_default(answer);
        snprintf(answer->absent, sizeof answer->absent, "not understood: %.200s", text.s);
        child_stop(child);
    }
    string_free(&text);
    return status;
}

/* The script is a part of this program: it is never of another version, and needs no folder. */
int child_start(struct child *child, const struct child_setup *setup, struct row *answer)
{
    char threads[16], file[16];
    char *arguments[] = { (char *)child_python(),
                          "-c",
                          (char *)asset_rivals,
                          (char *)setup->device,
                          threads,
                          file,
                          NULL };
    snprintf(threads, sizeof threads, "%d", setup->threads);
    snprintf(file, sizeof file, "%d", setup->file);
    *child = (struct child){ .timeout = setup->timeout > 0.0 ? setup->timeout : CHILD_TIMEOUT };
    int status = process_open(&child->process, arguments);
    if (status) return status;
    child->alive = true;
    status = ask(child, answer, NULL);
    if (!status && *answer->absent) child_stop(child);
    return status;
}

int child_ask(struct child *child, struct row *answer, const char *format, ...)
{
    char *command = NULL;
    va_list values;
    va_start(values, format);
    int length = vasprintf(&command, format, values);
    va_end(values);
    if (length < 0) return fault("out of memory");
    int status = ask(child, answer, command);
    free(command);
    return status;
}

void child_stop(struct child *child)
{
    process_close(&child->process);
    child->alive = false;
}
