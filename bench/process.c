/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - commands as processes: started, read from, waited for. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/base/interrupt.h"
#include "harness/base/machine.h"

enum { POLL_MILLISECONDS = 50 };
#define GRACE_SECONDS 0.2 /* between asking a process to end and ending it */

/* ---- Starting and ending --------------------------------------------------------------------- */

static void child(char *const *arguments, int input, int output)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive this process */
    if (input >= 0) dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(arguments[0], arguments);
    fprintf(stderr, "ringattn: %s cannot be started: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

/* Reads from `input`, which is closed here. */
static int start(char *const *arguments, int input, pid_t *id, int *from)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        if (input >= 0) close(input);
        return fault("no pipe: %s", strerror(errno));
    }
    fflush(stdout);
    *id = fork();
    if (*id == 0) child(arguments, input, ends[1]);
    if (input >= 0) close(input);
    close(ends[1]);
    *from = ends[0];
    if (*id > 0) {
        setpgid(*id, *id);
        return EXIT_PASS;
    }
    close(ends[0]);
    return fault("no process: %s", strerror(errno));
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

/* ---- Reading --------------------------------------------------------------------------------- */

/* Lines as they come: `take` gets each without its end. */
struct reader {
    struct string *part;
    void (*take)(void *context, const char *line);
    void *context;
};

static int end_line(struct reader *r)
{
    if (r->part->lost) return fault("out of memory: a line of %zu bytes", r->part->length);
    r->take(r->context, r->part->s ? r->part->s : "");
    string_free(r->part);
    return EXIT_PASS;
}

static int read_letters(struct reader *r, const char *letters, size_t count)
{
    int status = EXIT_PASS;
    while (count && !status) {
        const char *end = memchr(letters, '\n', count);
        size_t length = end ? (size_t)(end - letters) : count;
        string_add(r->part, "%.*s", (int)length, letters);
        if (end) status = end_line(r);
        letters += length + (end != NULL);
        count -= length + (end != NULL);
    }
    return status;
}

/* What is there within a moment. `*open` becomes false when the other side has closed; EXIT_FAULT
 * when this process was interrupted. */
static int read_some(int input, struct reader *reader, bool *open)
{
    char buffer[4096];
    struct pollfd poll_input = { .fd = input, .events = POLLIN };
    if (interrupt_seen()) return EXIT_FAULT;
    if (poll(&poll_input, 1, POLL_MILLISECONDS) <= 0) return EXIT_PASS;
    ssize_t bytes = read(input, buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) return EXIT_PASS;
    *open = bytes > 0;
    return bytes > 0 ? read_letters(reader, buffer, (size_t)bytes) : EXIT_PASS;
}

/* ---- A command that runs to its end ---------------------------------------------------------- */

/* What a line of output means. Other programs (mpirun) print what they like. */
static void take_line(void *context, const char *line)
{
    static const char own[] = "ringattn: ";
    struct process_end *end = context;
    if (*line == '{') {
        string_add(&end->out, "%s\n", line);
    } else if (!strncmp(line, own, sizeof own - 1)) {
        snprintf(end->last, sizeof end->last, "%s", line + sizeof own - 1);
        end->own = true;
    } else if (*line && *line != '-' && !*end->last) { /* mpirun draws lines of dashes */
        snprintf(end->last, sizeof end->last, "%s", line);
    }
}

int process_run(char *const *arguments, struct process_end *end)
{
    pid_t id = -1;
    int from = -1;
    bool open_side = true;
    struct string part = { .lost = false };
    *end = (struct process_end){ .status = -1 };
    struct reader reader = { &part, take_line, end };
    int status = start(arguments, open("/dev/null", O_RDONLY | O_CLOEXEC), &id, &from);
    if (status) return status;
    while (open_side && !status) status = read_some(from, &reader, &open_side);
    if (status) stop(id);
    else end->status = wait_for(id);
    if (!status && part.length) status = end_line(&reader);
    close(from);
    string_free(&part);
    if (status) string_free(&end->out);
    return status;
}

/* ---- A command that is asked ----------------------------------------------------------------- */

int process_open(struct process *process, char *const *arguments)
{
    int ends[2]; /* sockets, since writing to one whose other side is gone need raise no signal */
    *process = (struct process){ .to = -1, .from = -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return fault("no sockets: %s", strerror(errno));
    process->to = ends[0];
    int status = start(arguments, ends[1], &process->id, &process->from);
    if (!status) return EXIT_PASS;
    close(process->to);
    *process = (struct process){ .to = -1, .from = -1 };
    return status;
}

struct listener {
    struct process *process;
    struct string *answer;
};

static void take_answer(void *context, const char *line)
{
    struct listener *l = context;
    if (*line == '{' && !l->answer->s) string_add(l->answer, "%s", line);
    else if (*line) snprintf(l->process->last, sizeof l->process->last, "%s", line);
}

int process_ask(struct process *process, const char *line, double seconds, struct string *answer)
{
    const double deadline = machine_seconds() + seconds;
    struct listener listener = { process, answer };
    struct reader reader = { &process->part, take_answer, &listener };
    bool open_side = true;
    int status = EXIT_PASS;
    /* If it has ended, its last words are still to be read, so a failure to send is none. */
    if (line) (void)send(process->to, line, strlen(line), MSG_NOSIGNAL);
    while (!status && open_side && !answer->s && machine_seconds() < deadline)
        status = read_some(process->from, &reader, &open_side);
    process->ended = !open_side;
    return status;
}

void process_close(struct process *process)
{
    if (!process->id) return;
    stop(process->id);
    close(process->to);
    close(process->from);
    string_free(&process->part);
    *process = (struct process){ .to = -1, .from = -1 };
}
