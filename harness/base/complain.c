/* SPDX-License-Identifier: Apache-2.0 */
/* complain.c - sentences on stderr, and the exit status that goes with them. */
#include "complain.h"

#include <pthread.h>
#include <stdarg.h>

void (*before_complaint)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next one */
static char last[400];

/* In one piece: several processes may complain at the same time. */
static void complain(const char *format, va_list args)
{
    char text[4096];
    if (before_complaint) before_complaint();
    fflush(stdout);
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "ringattn: %s\n", text);
    pthread_mutex_lock(&lock);
    snprintf(last, sizeof last, "%.*s", (int)sizeof last - 1, text);
    pthread_mutex_unlock(&lock);
}

void last_complaint(char *text, size_t bytes)
{
    pthread_mutex_lock(&lock);
    snprintf(text, bytes, "%s", last);
    pthread_mutex_unlock(&lock);
}

int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    return EXIT_USAGE;
}

int fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    return EXIT_FAULT;
}

int library_failed(ra_status status)
{
    const char *text = ra_last_error();
    if (!text || !*text) text = ra_status_text(status);
    switch (status) {
    case RA_OK: return EXIT_PASS;
    case RA_ERR_ARGUMENT:
    case RA_ERR_UNSUPPORTED:
    case RA_ERR_BUDGET: return refuse("%s", text);
    default: return fault("%s", text);
    }
}
