/* SPDX-License-Identifier: Apache-2.0 */
/* engine.cc - mbarriers, and the engine that copies to and from shared memory by itself (TMA).
 *
 * Its work waits in a list and runs when no thread can go on, the newest first, or with a seed at
 * random, earlier too: as late as it may, so that who does not wait for it computes with what was
 * there before. */
#include <string.h>

#include <vector>

#include "internal.h"
#include "races.h"

namespace emulated
{

/* ---- mbarriers ---- */

struct mbarrier {
    int32_t bytes;                      /* that are still to come */
    uint16_t pending;                   /* arrivals */
    uint16_t arrivals : 15, parity : 1; /* of each phase; of the one that runs */
};
static_assert(sizeof(mbarrier) == 8, "as on the device");

static mbarrier *mbarrier_at(int rank, uint32_t address)
{
    if (address % 8) fail("an mbarrier at %u: misaligned", (unsigned)address);
    return static_cast<mbarrier *>(shared_pointer_of(rank, address, sizeof(mbarrier)));
}

/* What was released there goes to those who wait for the phase, when it ends. */
static uint64_t phase_point(int rank, uint32_t address)
{
    return point(POINT_PHASE, (uint64_t)rank, address);
}
static uint64_t done_point(int rank, uint32_t address)
{
    return point(POINT_PHASES_DONE, (uint64_t)rank, address);
}

/* Some arrivals or bytes have come. */
static void came(int rank, uint32_t address, int arrivals, int bytes)
{
    mbarrier *b = mbarrier_at(rank, address);
    race_access(b, sizeof *b, ACCESS_CHANGE);
    race_release(phase_point(rank, address));
    progress();
    b->bytes -= bytes;
    b->pending = (uint16_t)(b->pending - arrivals);
    if (b->pending || b->bytes) return;
    b->pending = b->arrivals;
    b->parity ^= 1;
    race_pass_on(phase_point(rank, address), done_point(rank, address));
}

void mbarrier_init(uint32_t address, int arrivals)
{
    const race_place here(__builtin_return_address(0));
    mbarrier *b = mbarrier_at(cluster_rank(), address);
    race_access(b, sizeof *b, ACCESS_WRITE);
    b->bytes = 0;
    b->pending = b->arrivals = (uint16_t)arrivals;
    b->parity = 0;
}

void mbarrier_arrive(int rank, uint32_t address, int expected)
{
    const race_place here(__builtin_return_address(0));
    const mbarrier *b = mbarrier_at(rank, address);
    if (!b->pending || b->pending > b->arrivals)
        fail("the mbarrier at %u has %d of %d arrivals left", (unsigned)address, b->pending,
             b->arrivals);
    came(rank, address, 1, -expected);
}

void mbarrier_complete(int rank, uint32_t address, int bytes) { came(rank, address, 0, bytes); }

void mbarrier_wait(uint32_t address, uint32_t parity)
{
    const mbarrier *b = mbarrier_at(cluster_rank(), address);
    if (random_order() && random_below(8) == 0) engine_step();
    race_access(b, sizeof *b, ACCESS_READ | ACCESS_ATOMIC);
    while (b->parity == (parity & 1))
        yield_for(parity & 1 ? "an odd phase of the mbarrier" : "an even phase of the mbarrier",
                  address);
    race_acquire(done_point(cluster_rank(), address));
}

/* ---- The engine ---- */

struct posted {
    engine_work work;
    int slot; /* of the fiber that posted it */
    bool was_read;
};

static std::vector<posted> list;

void engine_post(engine_work work) { list.push_back({ std::move(work), fiber_slot(), false }); }

bool engine_step()
{
    if (list.empty()) return false;
    const size_t i = random_order() ? random_below((uint32_t)list.size()) : list.size() - 1;
    if (!list[i].was_read) {
        list[i].was_read = true;
        if (list[i].work.read) {
            list[i].work.read();
            return true;
        }
    }
    const posted last = std::move(list[i]);
    list.erase(list.begin() + (ptrdiff_t)i);
    last.work.write();
    return true;
}

void engine_finish()
{
    for (const posted &one : list) {
        if (!one.work.out) fail("a copy into shared memory was under way when its block ended");
        if (!one.was_read) fail("a sum was not read when its block ended");
    }
    while (engine_step()) continue;
}

static bool is_pending(bool unread_only)
{
    for (const posted &one : list)
        if (one.work.out && one.slot == fiber_slot() && !(unread_only && one.was_read)) return true;
    return false;
}

void bulk_wait_read()
{
    while (is_pending(true)) yield_for("its sums to be read", 0);
    race_acquire(point(POINT_READ, (uint64_t)fiber_slot()));
}

void bulk_wait()
{
    while (is_pending(false)) yield_for("its sums to be written", 0);
    race_acquire(point(POINT_READ, (uint64_t)fiber_slot()));
    race_acquire(point(POINT_WRITTEN, (uint64_t)fiber_slot()));
}

/* ---- Turns in device memory ---- */

void turn_wait(const int *turn, int value)
{
    while (*(const volatile int *)turn != value) yield_for("a turn", (size_t)turn);
    race_access(turn, sizeof *turn, ACCESS_READ | ACCESS_ATOMIC);
    race_acquire(point(POINT_TURN, (uintptr_t)turn / sizeof *turn & 0xffffffffff));
    race_publish();
}

void turn_pass(int *turn)
{
    progress();
    race_publish();
    race_access(turn, sizeof *turn, ACCESS_CHANGE);
    race_release(point(POINT_TURN, (uintptr_t)turn / sizeof *turn & 0xffffffffff));
    ++*turn;
}

} // namespace emulated
