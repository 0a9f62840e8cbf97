/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - Ctrl-C, SIGTERM and SIGHUP. What runs in a handler calls only functions that may be
 * called there (signal-safety(7)); setitimer() is a system call and no more. What handlers share
 * with threads is atomic: a sig_atomic_t is safe only for the thread that was interrupted. */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { GUARDED_MOST = 32, HOLDS_MOST = 20 };
#define HOLD_SECONDS 0.1

static atomic_int caught; /* the signal; 0 = none */
static _Atomic(const char *) guarded[GUARDED_MOST];
static atomic_int holds;
static _Atomic(const char *) left = "nothing was written";

static const struct {
    int signal;
    const char *name;
} signals[] = {
    { SIGINT, "interrupted by Ctrl-C" },
    { SIGTERM, "interrupted by SIGTERM" },
    { SIGHUP, "interrupted by SIGHUP" },
};

static void arm(double seconds)
{
    struct itimerval timer = { .it_value = { .tv_usec = (suseconds_t)(seconds * 1e6) } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_signal(int signal)
{
    atomic_store(&caught, signal);
    arm(INTERRUPT_SECONDS);
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* nobody listens */
}

/* Nobody has ended the work. */
static void on_deadline(int signal)
{
    static atomic_int waited;
    (void)signal;
    if (atomic_load(&holds) > 0 && atomic_fetch_add(&waited, 1) < HOLDS_MOST) {
        arm(HOLD_SECONDS);
        return;
    }
    for (int i = 0; i < GUARDED_MOST; i++) {
        const char *path = atomic_load(&guarded[i]);
        if (path) unlink(path);
    }
    if (isatty(STDERR_FILENO)) say("\r\033[K"); /* a progress line */
    say("ringattn: ");
    say(interrupt_name());
    say("; ");
    say(atomic_load(&left));
    say("\n");
    _exit(EXIT_FAULT);
}

/* A signal that the parent told us to ignore (nohup, a background job) stays ignored. */
static void catch_signal(int number)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND }, old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void interrupt_catch(void)
{
    struct sigaction action = { .sa_handler = on_deadline };
    sigaction(SIGALRM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of write() */
    for (int i = 0; i < COUNT(signals); i++) catch_signal(signals[i].signal);
}

bool interrupt_seen(void) { return atomic_load(&caught) != 0; }

const char *interrupt_name(void)
{
    const int signal = atomic_load(&caught);
    for (int i = 0; i < COUNT(signals); i++)
        if (signals[i].signal == signal) return signals[i].name;
    return "";
}

int interrupt_check(void)
{
    if (!interrupt_seen()) return EXIT_PASS;
    return fault("%s; %s", interrupt_name(), atomic_load(&left));
}

void interrupt_leaves(const char *what) { atomic_store(&left, what); }

void interrupt_guard(const char *path)
{
    for (int i = 0; i < GUARDED_MOST; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&guarded[i], &none, path)) return;
    }
}

void interrupt_release(const char *path)
{
    for (int i = 0; i < GUARDED_MOST; i++) {
        const char *expected = path;
        if (path && atomic_compare_exchange_strong(&guarded[i], &expected, NULL)) return;
    }
}

void interrupt_hold(void) { atomic_fetch_add(&holds, 1); }
void interrupt_resume(void) { atomic_fetch_sub(&holds, 1); }
