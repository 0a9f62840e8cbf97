/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - one command at a time: started, read from until it closes its output, waited for. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/base/interrupt.h"
#include "harness/base/machine.h"

enum { POLL_MILLISECONDS = 50 };
#define GRACE_SECONDS 0.2 /* between asking a process to end and ending it */

/* What a line of output means. Other programs (mpirun) print what they like. */
static void take_line(struct process_end *end, const char *line)
{
    static const char own[] = "ringattn: ";
    if (*line == '{') {
        string_add(&end->out, "%s\n", line);
    } else if (!strncmp(line, own, sizeof own - 1)) {
        snprintf(end->last, sizeof end->last, "%s", line + sizeof own - 1);
        end->own = true;
    } else if (*line && *line != '-' && !*end->last) { /* mpirun draws lines of dashes */
        snprintf(end->last, sizeof end->last, "%s", line);
    }
}

struct reader {
    struct process_end *end;
    char *line;
    size_t length, capacity;
};

static int read_letter(struct reader *r, char letter)
{
    if (r->length + 1 >= r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 4096;
        char *line = realloc(r->line, capacity);
        if (!line) return fault("out of memory: a line of %zu bytes", capacity);
        r->line = line;
        r->capacity = capacity;
    }
    r->line[r->length] = letter == '\n' ? 0 : letter;
    if (letter != '\n') {
        r->length++;
        return EXIT_PASS;
    }
    take_line(r->end, r->line);
    r->length = 0;
    return EXIT_PASS;
}

static void child(char *const *arguments, int output)
{
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive this process */
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(arguments[0], arguments);
    fprintf(stderr, "ringattn: %s cannot be started: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

static int start(char *const *arguments, pid_t *id, int *input)
{
    int ends[2];
    if (pipe(ends)) return fault("no pipe: %s", strerror(errno));
    fflush(stdout);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    *id = fork();
    if (*id == 0) child(arguments, ends[1]);
    close(ends[1]);
    *input = ends[0];
    if (*id > 0) {
        setpgid(*id, *id);
        return EXIT_PASS;
    }
    close(ends[0]);
    return fault("no process: %s", strerror(errno));
}

/* Until the other side closes, or this process is interrupted. */
static int read_all(int input, struct reader *reader)
{
    char buffer[4096];
    struct pollfd poll_input = { .fd = input, .events = POLLIN };
    for (int status;;) {
        if (interrupt_seen()) return EXIT_FAULT;
        int ready = poll(&poll_input, 1, POLL_MILLISECONDS);
        if (ready <= 0) continue;
        ssize_t bytes = read(input, buffer, sizeof buffer);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) return EXIT_PASS;
        for (ssize_t i = 0; i < bytes; i++)
            if ((status = read_letter(reader, buffer[i]))) return status;
    }
}

static void stop(pid_t id)
{
    double deadline = machine_seconds() + GRACE_SECONDS;
    kill(-id, SIGTERM);
    while (machine_seconds() < deadline && waitpid(id, NULL, WNOHANG) == 0) usleep(5000);
    kill(-id, SIGKILL);
    waitpid(id, NULL, 0);
}

static int wait_for(pid_t id)
{
    int state = 0;
    while (waitpid(id, &state, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

int process_run(char *const *arguments, struct process_end *end)
{
    pid_t id = -1;
    int input = -1;
    *end = (struct process_end){ .status = -1 };
    struct reader reader = { .end = end };
    int status = start(arguments, &id, &input);
    if (status) return status;
    status = read_all(input, &reader);
    if (status) stop(id);
    else end->status = wait_for(id);
    if (!status && reader.length) status = read_letter(&reader, '\n');
    close(input);
    free(reader.line);
    if (status) string_free(&end->out);
    return status;
}
