/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - one line on the terminal: how far, and how long it will still take. */
#include "progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness/base/machine.h"
#include "text.h"

static struct {
    pthread_mutex_t lock;
    atomic_bool active; /* between begin and end, on a terminal */
    const char *label;
    double start, drawn; /* seconds */
    bool on_screen;
} line = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void wipe(void)
{
    if (line.on_screen) fputs("\r\033[K", stderr);
    line.on_screen = false;
}

void progress_begin(const char *label, bool quiet)
{
    if (quiet || !isatty(STDERR_FILENO)) return;
    line.label = label;
    line.start = line.drawn = machine_seconds();
    before_complaint = wipe;
    atomic_store(&line.active, true);
}

static void draw(double now, double done)
{
    double passed = now - line.start;
    fprintf(stderr, "\r\033[K%s %s %3.0f%%", line.label, text_bar(done, 24).s, 100.0 * done);
    if (done > 0.005 && passed > 0.5)
        fprintf(stderr, "  %s left", text_seconds(passed * (1.0 - done) / done).s);
    fflush(stderr);
    line.on_screen = true;
    line.drawn = now;
}

void progress_update(double done)
{
    if (!atomic_load(&line.active) || pthread_mutex_trylock(&line.lock)) return;
    double now = machine_seconds();
    if (atomic_load(&line.active) && now - line.drawn >= 0.1) draw(now, done);
    pthread_mutex_unlock(&line.lock);
}

void progress_hide(void)
{
    pthread_mutex_lock(&line.lock);
    wipe();
    fflush(stderr);
    pthread_mutex_unlock(&line.lock);
}

void progress_end(void)
{
    if (atomic_exchange(&line.active, false)) progress_hide();
}
