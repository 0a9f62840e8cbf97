/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - counts instructions by single-stepping: with the trap flag set, the CPU raises SIGTRAP
 * after every instruction, and a handler counts. Needs no debugger and no permission. */
#include "step.h"

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <ucontext.h>
#include <x86intrin.h>

#define TRAP_FLAG 0x100ull

/* Of the program, by the linker. */
extern const char __executable_start, etext;

static volatile int64_t counted;
static volatile uintptr_t last_place;

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    const ucontext_t *interrupted = context;
    uintptr_t place = (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
    if (place == last_place) return; /* the same instruction once more: a repeated one */
    last_place = place;
    if (place >= (uintptr_t)&__executable_start && place < (uintptr_t)&etext) counted = counted + 1;
}

bool step_possible(void) { return true; }

int64_t step_count(void (*body)(void *context), void *context)
{
    struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, before;
    sigaction(SIGTRAP, &action, &before);
    counted = 0;
    last_place = 0;
    __writeeflags(__readeflags() | TRAP_FLAG);
    body(context);
    __writeeflags(__readeflags() & ~TRAP_FLAG);
    sigaction(SIGTRAP, &before, NULL);
    return counted;
}

#else

bool step_possible(void) { return false; }

int64_t step_count(void (*body)(void *context), void *context)
{
    body(context);
    return 0;
}

#endif
