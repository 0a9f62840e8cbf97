/* SPDX-License-Identifier: Apache-2.0 */
/* context.cc - see context.h. */
#include "context.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#if EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulated
{

/* Fragments of a kernel that an optimising compiler keeps in registers lie on the stack in a debug
 * build, and a sanitizer multiplies them. Pages that are not touched cost nothing. */
constexpr size_t STACK_BYTES = 512 * 1024;

/* Who was left at the last switch: the sanitizer tells that one's stack only on arrival. */
static context *left;

#if defined(__x86_64__)
extern "C" void emulated_switch_stacks(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".globl emulated_switch_stacks\n"
        ".hidden emulated_switch_stacks\n"
        ".type emulated_switch_stacks, @function\n"
        "emulated_switch_stacks:\n"
        "    endbr64\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emulated_switch_stacks, . - emulated_switch_stacks\n");

/* As emulated_switch_stacks left it: six registers, then where to return to. At entry() the stack is
 * aligned as after a call. */
static void prepare(context *made, void (*entry)())
{
    void **top = (void **)((char *)made->bottom + made->size);
    top[-1] = nullptr;
    memcpy(&top[-2], &entry, sizeof entry);
    for (int i = 3; i <= 8; i++) top[-i] = nullptr;
    made->stack_pointer = &top[-8];
}

static void switch_stacks(context *from, context *to)
{
    emulated_switch_stacks(&from->stack_pointer, to->stack_pointer);
}
#else
static void prepare(context *made, void (*entry)())
{
    getcontext(&made->machine);
    made->machine.uc_stack.ss_sp = made->bottom;
    made->machine.uc_stack.ss_size = made->size;
    made->machine.uc_link = nullptr;
    makecontext(&made->machine, entry, 0);
}

static void switch_stacks(context *from, context *to) { swapcontext(&from->machine, &to->machine); }
#endif

void context_create(context *made, void (*entry)())
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the stack of a fiber");
    mprotect(memory, page, PROT_NONE); /* a stack that overflows stops the program */
    made->bottom = (char *)memory + page;
    made->size = STACK_BYTES;
    made->asan_stack = nullptr;
    made->tsan_fiber = nullptr;
#if defined(__SANITIZE_THREAD__)
    made->tsan_fiber = __tsan_create_fiber(0);
#endif
    prepare(made, entry);
}

void context_destroy(context *made)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
#if EMULATED_ASAN
    ASAN_UNPOISON_MEMORY_REGION(made->bottom, made->size); /* others may get these addresses */
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(made->tsan_fiber);
#endif
    munmap((char *)made->bottom - page, made->size + page);
}

void context_adopt_thread(context *host)
{
    memset(host, 0, sizeof *host);
#if defined(__SANITIZE_THREAD__)
    host->tsan_fiber = __tsan_get_current_fiber();
#endif
}

/* On the new stack: `self` is NULL for a context that runs for the first time. */
static void arrived(context *self)
{
#if EMULATED_ASAN
    const void *bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(self ? self->asan_stack : nullptr, &bottom, &size);
    left->bottom = const_cast<void *>(bottom);
    left->size = size;
#else
    (void)self;
#endif
}

void context_entered() { arrived(nullptr); }

void context_switch(context *from, context *to)
{
    left = from;
#if EMULATED_ASAN
    __sanitizer_start_switch_fiber(&from->asan_stack, to->bottom, to->size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    switch_stacks(from, to);
    arrived(from);
}

} // namespace emulated
