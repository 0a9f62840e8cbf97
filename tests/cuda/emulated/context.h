/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - a stack of its own and the switch to it: x86-64 by a few instructions, elsewhere by
 * ucontext. Tells the sanitizers about every switch. */
#ifndef EMULATED_CONTEXT_H
#define EMULATED_CONTEXT_H

#include <stddef.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated
{

struct context {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t machine;
#endif
    void *bottom; /* lowest address of the stack, and its size */
    size_t size;
    void *asan_stack, *tsan_fiber;
};

/* Gives it a stack, on which entry() will run; entry() must not return. */
void context_create(context *made, void (*entry)());
void context_destroy(context *made);
/* For the context of an OS thread: what was learnt about the thread that used it before is
 * wrong. */
void context_adopt_thread(context *host);
/* The first thing that entry() does. */
void context_entered();
void context_switch(context *from, context *to);

} // namespace emulated

#endif
