/* SPDX-License-Identifier: Apache-2.0 */
/* fibers.cc - runs the blocks of a grid: one fiber for each thread of a block, barriers and warp
 * collectives, and the order in which fibers run. Knows nothing of streams and memory.
 *
 * Blocks run in gangs: all of a gang at the same time, one gang after the other. A gang is one
 * block, a cluster, or all blocks of a cooperative launch. All state is global: one gang runs at a
 * time, with the lock of the runtime held. Fibers live on from gang to gang and from launch to
 * launch. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "context.h"
#include "internal.h"
#include "products.h"
#include "races.h"

#if EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* Code may declare it at global scope or in namespace ra; both are the same memory. The second name is
 * the assembler's business, because an alias that the compiler knows confuses ASan. TMA wants 1024
 * bytes of alignment, and who looks for races whole pages. */
alignas(4096) unsigned char ra_shared[EMULATED_SHARED_BYTES];
__asm__(".globl _ZN2ra9ra_sharedE\n"
        ".set _ZN2ra9ra_sharedE, ra_shared\n");

namespace emulated
{

constexpr int MAX_WARPS = 32, MAX_GANG = 8; /* of a block; blocks */
constexpr int NAMED_BARRIERS = 16, WHOLE_BLOCK = NAMED_BARRIERS, WHOLE_GANG = WHOLE_BLOCK + 1;
constexpr int UNUSED_BYTE = 0xC3; /* of a lane without a deposit */
constexpr int SHARED_BYTE = 0xFF; /* a NaN in every format */
constexpr int BEYOND_BYTE = 0x5A; /* past the end of shared memory, to see writes there */
constexpr size_t BEYOND_BYTES = 1024;
constexpr int MANY_ROUNDS = 1000; /* of nothing but yield() */

enum fiber_state { RUNNING, AT_BARRIER, AT_COLLECTIVE, RETURNED };

struct block;

struct fiber {
    context where;
    int slot; /* in fibers[]: blocks of a gang one after the other, each in whole warps */
    block *of;
    unsigned thread; /* in its block */
    enum fiber_state state;
    const char *waits_for; /* RUNNING, but it yields until memory changes; or NULL */
    size_t waits_at;       /* in its shared memory, or where else */
    int barrier;           /* AT_BARRIER: which one */
    int predicate_result;
    /* AT_COLLECTIVE: what it called collect() with. */
    enum collective kind;
    uint32_t mask;
    const void *mine;
    size_t bytes;
    const compute_call *call;
    const void *result;
    uint32_t lanes; /* that took part in its last collective */
    int buffer;     /* that `result` points into; -1: none */
};

/* Deposits of one collective, until all its lanes are past them. */
struct buffer {
    int readers;
    std::vector<max_align_t> memory;
};

struct warp_state {
    uint32_t live, ready, yielded, waiting; /* lanes */
    std::vector<buffer> buffers;
};

struct barrier {
    int arrived;  /* threads, those that do not wait included */
    int expected; /* of a named barrier; 0: nobody has come */
    enum reduction what;
    int predicates, waiters;
};

struct block {
    uint3 index;
    fiber *first;
    int live_threads;
    unsigned char *shared;
    barrier barriers[NAMED_BARRIERS + 1];
};

static fiber fibers[MAX_GANG * MAX_WARPS * 32];
static int fibers_made;
static warp_state warps[MAX_GANG * MAX_WARPS];
static block blocks[MAX_GANG];
static barrier gang_barrier;
static context host;
static fiber *current; /* NULL: no kernel runs */
static const launch *running;
static int threads;                  /* of a block */
static int gang;                     /* blocks that run */
static int warp_count, live_threads; /* of the gang */
static int idle_rounds;
static int warp_order[MAX_GANG * MAX_WARPS]; /* who runs first, where the order is random */

static int warps_of_block() { return (threads + 31) / 32; }
static warp_state *warp_of(const fiber *f) { return &warps[f->slot / 32]; }
static barrier *barrier_of(const fiber *f, int id)
{
    return id == WHOLE_GANG ? &gang_barrier : &f->of->barriers[id];
}

[[noreturn]] void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated CUDA: ", stderr);
    if (current)
        fprintf(stderr, "block (%u, %u, %u) thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z,
                threadIdx.x);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* ---- Which fiber runs next. ---- */

static void describe(const fiber *f, char *text, size_t size)
{
    static const char *const kinds[] = { "__syncwarp",  "a shuffle",     "a vote",        "a match",
                                         "a reduction", "a warp gather", "a warp compute" };
    if (f->state == RETURNED) snprintf(text, size, "returned");
    else if (f->state == RUNNING && f->waits_for)
        snprintf(text, size, "waits for %s at %#zx", f->waits_for, f->waits_at);
    else if (f->state == RUNNING) snprintf(text, size, "waits for memory to change");
    else if (f->state == AT_COLLECTIVE)
        snprintf(text, size, "in %s, mask %08x", kinds[f->kind], (unsigned)f->mask);
    else if (f->barrier == WHOLE_GANG) snprintf(text, size, "at the barrier of its cluster");
    else if (f->barrier == WHOLE_BLOCK) snprintf(text, size, "at __syncthreads");
    else
        snprintf(text, size, "at named barrier %d (%d of %d came)", f->barrier,
                 barrier_of(f, f->barrier)->arrived, barrier_of(f, f->barrier)->expected);
}

static void describe_block(const block *b)
{
    fprintf(stderr, "emulated CUDA: block (%u, %u, %u) hangs; its threads:\n", b->index.x,
            b->index.y, b->index.z);
    for (int first = 0; first < threads;) {
        char text[100], other[100];
        describe(&b->first[first], text, sizeof text);
        int end = first + 1;
        for (; end < threads; end++) {
            describe(&b->first[end], other, sizeof other);
            if (strcmp(text, other)) break;
        }
        fprintf(stderr, "    %4d to %4d: %s\n", first, end - 1, text);
        first = end;
    }
}

[[noreturn]] static void deadlock()
{
    for (int i = 0; i < gang; i++)
        if (blocks[i].live_threads) describe_block(&blocks[i]);
    abort();
}

static int next_warp()
{
    if (random_order() && random_below(8)) {
        for (int i = 0; i < warp_count; i++)
            if (warps[warp_order[i]].ready) return warp_order[i];
        return -1;
    }
    const int start = random_order() ? (int)random_below((uint32_t)warp_count)
                      : current      ? current->slot / 32
                                     : 0;
    for (int i = 0; i < warp_count; i++) {
        const int w = start + i < warp_count ? start + i : start + i - warp_count;
        if (warps[w].ready) return w;
    }
    return -1;
}

static int next_lane(uint32_t ready)
{
    if (!random_order()) return __builtin_ctz(ready);
    const uint32_t turn = random_below(32);
    const uint32_t turned = turn ? ready >> turn | ready << (32 - turn) : ready;
    return (int)((__builtin_ctz(turned) + turn) % 32);
}

/* Fibers that yielded run again when no other can, after the copy engine has moved on. */
static bool wake_yielded()
{
    bool any = false;
    if (engine_step()) idle_rounds = 0;
    for (int w = 0; w < warp_count; w++) {
        any |= warps[w].yielded != 0;
        warps[w].ready |= warps[w].yielded;
        warps[w].yielded = 0;
    }
    if (any && ++idle_rounds > MANY_ROUNDS) deadlock();
    return any;
}

static fiber *next_fiber()
{
    for (;;) {
        const int w = next_warp();
        if (w >= 0) {
            const int lane = next_lane(warps[w].ready);
            warps[w].ready &= ~(1u << lane);
            return &fibers[w * 32 + lane];
        }
        if (!wake_yielded()) return nullptr;
    }
}

static void enter(fiber *f)
{
    current = f;
    if (!f) return;
    threadIdx.x = f->thread;
    if (gang > 1) blockIdx = f->of->index;
}

/* Leaves the fiber that runs, whose state says what it waits for. */
static void switch_away()
{
    fiber *self = current, *next = next_fiber();
    if (!next && live_threads) deadlock();
    if (next == self) return;
    enter(next);
    context_switch(&self->where, next ? &next->where : &host);
}

static void make_ready(fiber *f)
{
    f->state = RUNNING;
    warp_of(f)->ready |= 1u << f->slot % 32;
}

void yield() { yield_for(nullptr, 0); }

void yield_for(const char *what, size_t where)
{
    current->waits_for = what;
    current->waits_at = where;
    warp_of(current)->yielded |= 1u << current->slot % 32;
    switch_away();
}

void progress() { idle_rounds = 0; }

/* ---- Barriers of a block. ---- */

static uint64_t barrier_point(const fiber *one, int id)
{
    return point(POINT_BARRIER, id == WHOLE_GANG ? MAX_GANG : (uint64_t)(one->of - blocks),
                 (unsigned)id);
}

/* Of the block of `one`. */
static void open_barrier(const fiber *one, int id)
{
    barrier *b = barrier_of(one, id);
    const uint64_t here = barrier_point(one, id);
    idle_rounds = 0;
    int result = b->predicates;
    if (b->what == REDUCE_OR) result = b->predicates > 0;
    if (b->what == REDUCE_AND) result = b->predicates == b->arrived;
    for (int slot = 0; slot < warp_count * 32 && b->waiters; slot++) {
        fiber *f = &fibers[slot];
        if (f->state != AT_BARRIER || f->barrier != id || barrier_of(f, id) != b) continue;
        f->predicate_result = result;
        race_acquire_for(slot, here);
        make_ready(f);
        b->waiters--;
    }
    race_forget(here);
    memset(b, 0, sizeof *b);
}

static void wait_at(int id)
{
    current->state = AT_BARRIER;
    current->barrier = id;
    barrier_of(current, id)->waiters++;
}

int block_barrier(enum reduction what, int predicate)
{
    barrier *b = barrier_of(current, WHOLE_BLOCK);
    if (b->arrived && b->what != what)
        fail("threads meet at __syncthreads of different kinds (_or, _and, _count)");
    b->what = what;
    b->predicates += predicate != 0;
    b->arrived++;
    race_release(barrier_point(current, WHOLE_BLOCK));
    wait_at(WHOLE_BLOCK);
    if (b->arrived == current->of->live_threads) open_barrier(current, WHOLE_BLOCK);
    switch_away();
    return current->predicate_result;
}

void cluster_barrier()
{
    gang_barrier.arrived++;
    race_release(barrier_point(current, WHOLE_GANG));
    wait_at(WHOLE_GANG);
    if (gang_barrier.arrived == live_threads) open_barrier(current, WHOLE_GANG);
    switch_away();
}

static void arrive_named(int id, int count, bool waits)
{
    if (id < 0 || id >= NAMED_BARRIERS) fail("there is no barrier %d", id);
    if (count <= 0 || count % 32) fail("barrier %d of %d threads: not whole warps", id, count);
    barrier *b = barrier_of(current, id);
    if (b->expected && b->expected != count)
        fail("barrier %d: some come for %d threads and some for %d", id, b->expected, count);
    b->expected = count;
    b->arrived++;
    race_release(barrier_point(current, id));
    if (waits) wait_at(id);
    if (b->arrived == count) open_barrier(current, id);
    if (waits) switch_away();
}

void named_barrier(int id, int count)
{
    if (id == 0 && count == threads) block_barrier(REDUCE_NONE, 0);
    else arrive_named(id, count, true);
}

void named_barrier_arrive(int id, int count) { arrive_named(id, count, false); }

/* ---- Warp collectives. ---- */

uint32_t live_lanes() { return warp_of(current)->live; }
uint32_t collected_lanes() { return current->lanes; }

static bool same_collective(const fiber *a, const fiber *b)
{
    return a->kind == b->kind && a->mask == b->mask && a->bytes == b->bytes && !a->call == !b->call;
}

/* The lanes of the collective that f waits in, where all have come; otherwise 0. */
static uint32_t complete_lanes(const fiber *f)
{
    const warp_state *w = warp_of(f);
    const uint32_t lanes = f->mask & w->live;
    if (lanes & ~w->waiting) return 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        if (!same_collective(f, &fibers[f->slot / 32 * 32 + __builtin_ctz(left)])) return 0;
    return lanes;
}

static int take_buffer(warp_state *w, size_t bytes)
{
    size_t i = 0;
    while (i < w->buffers.size() && w->buffers[i].readers) i++;
    if (i == w->buffers.size()) w->buffers.emplace_back();
    const size_t words = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    if (w->buffers[i].memory.size() < words) w->buffers[i].memory.resize(words);
    return (int)i;
}

static void release_buffer(fiber *f)
{
    if (f->buffer < 0) return;
    warp_of(f)->buffers[(size_t)f->buffer].readers--;
    f->buffer = -1;
}

static void complete(const fiber *f, uint32_t lanes)
{
    warp_state *w = warp_of(f);
    fiber *first = &fibers[f->slot / 32 * 32];
    idle_rounds = 0;
    w->waiting &= ~lanes;
    /* Outputs start where any type may. */
    const size_t in_bytes = (32 * f->bytes + 15) / 16 * 16;
    const size_t bytes = in_bytes + 32 * (f->call ? f->call->out_bytes : 0);
    const int index = bytes ? take_buffer(w, bytes) : -1;
    char *memory = bytes ? reinterpret_cast<char *>(w->buffers[(size_t)index].memory.data())
                         : nullptr;
    if (bytes) w->buffers[(size_t)index].readers = __builtin_popcount(lanes);
    if (bytes && lanes != 0xffffffffu) memset(memory, UNUSED_BYTE, bytes);
    for (uint32_t left = lanes; left; left &= left - 1) {
        fiber *one = &first[__builtin_ctz(left)];
        if (f->bytes) memcpy(memory + __builtin_ctz(left) * f->bytes, one->mine, f->bytes);
        one->result = memory && f->call ? memory + in_bytes : memory;
        one->lanes = lanes;
        one->buffer = index;
        make_ready(one);
    }
    if (f->kind == COLLECTIVE_SYNCWARP) race_meet(first->slot, lanes);
    if (f->call) f->call->run(f->call->context, memory, memory + in_bytes);
}

const void *collect(enum collective kind, uint32_t mask, const void *mine, size_t bytes,
                    const compute_call *call)
{
    fiber *self = current;
    const uint32_t bit = 1u << self->slot % 32;
    release_buffer(self);
    if (!(mask & bit))
        fail("a lane calls a warp collective whose mask %08x omits it", (unsigned)mask);
    self->kind = kind;
    self->mask = mask;
    self->mine = mine;
    self->bytes = bytes;
    self->call = call;
    self->state = AT_COLLECTIVE;
    warp_state *w = warp_of(self);
    w->waiting |= bit;
    const uint32_t lanes = complete_lanes(self);
    if (lanes) complete(self, lanes);
    if (lanes && !(random_order() && random_below(4) == 0)) w->ready &= ~bit; /* goes on at once */
    else switch_away();
    return self->result;
}

/* ---- Fibers and blocks. ---- */

/* A thread that returned counts as arrived wherever it is waited for, named barriers excepted. */
static void thread_returned()
{
    fiber *self = current;
    warp_state *w = warp_of(self);
    check_products();
    release_buffer(self);
    self->state = RETURNED;
    w->live &= ~(1u << self->slot % 32);
    live_threads--;
    self->of->live_threads--;
    const barrier *b = barrier_of(self, WHOLE_BLOCK);
    if (b->arrived && b->arrived == self->of->live_threads) open_barrier(self, WHOLE_BLOCK);
    if (gang_barrier.arrived && gang_barrier.arrived == live_threads)
        open_barrier(self, WHOLE_GANG);
    for (uint32_t left = w->waiting; left; left &= left - 1) {
        const fiber *f = &fibers[self->slot / 32 * 32 + __builtin_ctz(left)];
        if (f->state != AT_COLLECTIVE) continue; /* set free by the one before */
        const uint32_t lanes = complete_lanes(f);
        if (lanes) complete(f, lanes);
    }
}

static void fiber_entry()
{
    context_entered();
    for (;;) {
        running->body();
        thread_returned();
        switch_away(); /* comes back for a thread of another block */
    }
}

static void start_block(block *b, int first_warp)
{
    memset(b->barriers, 0, sizeof b->barriers);
    b->first = &fibers[first_warp * 32];
    b->live_threads = threads;
    for (int w = 0; w < warps_of_block(); w++) {
        warp_state *state = &warps[first_warp + w];
        const int lanes = threads - w * 32;
        state->live = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
        state->ready = state->live;
        state->yielded = state->waiting = 0;
    }
    for (int t = 0; t < warps_of_block() * 32; t++) {
        b->first[t].of = b;
        b->first[t].thread = (unsigned)t;
        b->first[t].state = t < threads ? RUNNING : RETURNED;
        b->first[t].buffer = -1;
    }
}

static void fill_shared(unsigned char *shared)
{
    const size_t used = running->shared_bytes;
#if EMULATED_ASAN
    ASAN_UNPOISON_MEMORY_REGION(shared, EMULATED_SHARED_BYTES);
    memset(shared, SHARED_BYTE, used);
    ASAN_POISON_MEMORY_REGION(shared + used, EMULATED_SHARED_BYTES - used);
#else
    memset(shared, SHARED_BYTE, used);
    memset(shared + used, BEYOND_BYTE, BEYOND_BYTES);
#endif
}

static void check_shared(const block *b)
{
    (void)b;
#if !EMULATED_ASAN
    for (size_t i = 0; i < BEYOND_BYTES; i++)
        if (b->shared[running->shared_bytes + i] != BEYOND_BYTE)
            fail("block (%u, %u, %u) wrote byte %zu of %zu bytes of shared memory", b->index.x,
                 b->index.y, b->index.z, running->shared_bytes + i, running->shared_bytes);
#endif
}

/* The first block of a gang has the memory that code knows by name. The others' has only addresses,
 * which is all that kernels for clusters use. */
alignas(4096) static unsigned char more_shared[MAX_GANG - 1][EMULATED_SHARED_BYTES];

static void start_gang()
{
    live_threads = threads * gang;
    warp_count = warps_of_block() * gang;
    idle_rounds = 0;
    memset(&gang_barrier, 0, sizeof gang_barrier);
    forget_copies(threads);
    forget_products();
    races_start_gang(warp_count * 32, running->early);
    for (int i = 0; i < gang; i++) {
        blocks[i].shared = i == 0 ? ra_shared : more_shared[i - 1];
        races_watch(blocks[i].shared, EMULATED_SHARED_BYTES, WATCHED_SHARED);
        fill_shared(blocks[i].shared);
        start_block(&blocks[i], i * warps_of_block());
    }
    for (int w = 0; w < warp_count; w++) warp_order[w] = w;
    for (int w = warp_count - 1; w > 0 && random_order(); w--)
        std::swap(warp_order[w], warp_order[random_below((uint32_t)w + 1)]);
}

static void run_gang()
{
    start_gang();
    current = nullptr;
    threadIdx = uint3{ 0, 0, 0 };
    blockIdx = blocks[0].index;
    fiber *first = next_fiber();
    enter(first);
    context_switch(&host, &first->where);
    enter(nullptr);
    engine_finish();
    finish_products();
    races_end_gang();
    for (int i = 0; i < gang; i++) check_shared(&blocks[i]);
}

/* Gangs in any order, where that is random: steps of a number without a common divisor with
 * theirs. */
static uint64_t coprime_step(uint64_t gangs)
{
    if (!random_order() || gangs < 3) return 1;
    for (;;) {
        const uint64_t step = 1 +
                              random_below((uint32_t)(gangs < 0xffffffffu ? gangs : 0xffffffffu));
        uint64_t a = gangs, b = step;
        while (b) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return step;
    }
}

static uint3 index_of(uint64_t number, dim3 grid)
{
    return uint3{ (unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                  (unsigned)(number / grid.x / grid.y) };
}

static void make_fibers(int count)
{
    for (; fibers_made < count; fibers_made++) {
        fibers[fibers_made].slot = fibers_made;
        context_create(&fibers[fibers_made].where, fiber_entry);
    }
}

void run_grid(const launch &work)
{
    refresh_seed();
    running = &work;
    gridDim = work.grid;
    blockDim = work.block;
    threads = (int)work.block.x;
    gang = work.gang;
    if (gang > MAX_GANG) fail("%d blocks at the same time: more than %d", gang, MAX_GANG);
    context_adopt_thread(&host);
    make_fibers(gang * warps_of_block() * 32);
    const uint64_t gangs = (uint64_t)work.grid.x * work.grid.y * work.grid.z / (unsigned)gang;
    const uint64_t step = coprime_step(gangs);
    uint64_t index = random_order() ? random_below((uint32_t)gangs) : 0;
    for (uint64_t i = 0; i < gangs; i++, index = (index + step) % gangs) {
        for (int j = 0; j < gang; j++)
            blocks[j].index = index_of(index * (unsigned)gang + (unsigned)j, work.grid);
        run_gang();
    }
    running = nullptr;
}

/* A library that is opened and closed many times must not keep its stacks. */
struct at_unload {
    ~at_unload()
    {
        if (running) return; /* exit() while another OS thread is in a kernel */
        while (fibers_made) context_destroy(&fibers[--fibers_made].where);
    }
};
static at_unload frees_stacks;

/* ---- Shared memory. ---- */

uint32_t shared_address(const void *pointer)
{
    const uintptr_t offset = (uintptr_t)pointer - (uintptr_t)ra_shared;
    if (offset > EMULATED_SHARED_BYTES) fail("%p is not in shared memory", pointer);
    return (uint32_t)offset;
}

void *shared_pointer_of(int rank, uint32_t address, size_t bytes)
{
    if (rank < 0 || rank >= gang) fail("there is no block %d in a cluster of %d", rank, gang);
    if (address > running->shared_bytes || bytes > running->shared_bytes - address)
        fail("%zu bytes at %u of %zu bytes of shared memory", bytes, (unsigned)address,
             running->shared_bytes);
    if (current && !blocks[rank].live_threads)
        fail("shared memory of block %d of a cluster, which has ended", rank);
    return blocks[rank].shared + address;
}

void *shared_pointer(uint32_t address, size_t bytes)
{
    return shared_pointer_of(cluster_rank(), address, bytes);
}

int cluster_rank() { return (int)(current->of - blocks); }
int fiber_slot() { return current->slot; }

} // namespace emulated
