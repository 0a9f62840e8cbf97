/* SPDX-License-Identifier: Apache-2.0 */
/* engine.cc - mbarriers, and the engine that copies to and from shared memory by itself (TMA).
 *
 * Its work waits in a list and runs when no thread can go on, the newest first, or with a seed at
 * random, earlier too: as late as it may, so that who does not wait for it computes with what was
 * there before. */
#include <string.h>

#include <vector>

#include "internal.h"

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

static void end_phase(mbarrier *b)
{
    if (b->pending || b->bytes) return;
    b->pending = b->arrivals;
    b->parity ^= 1;
}

void mbarrier_init(uint32_t address, int arrivals)
{
    mbarrier *b = mbarrier_at(cluster_rank(), address);
    b->bytes = 0;
    b->pending = b->arrivals = (uint16_t)arrivals;
    b->parity = 0;
}

void mbarrier_arrive(int rank, uint32_t address, int expected)
{
    mbarrier *b = mbarrier_at(rank, address);
    if (!b->pending || b->pending > b->arrivals)
        fail("the mbarrier at %u has %d of %d arrivals left", (unsigned)address, b->pending,
             b->arrivals);
    b->bytes += expected;
    b->pending--;
    end_phase(b);
}

void mbarrier_complete(int rank, uint32_t address, int bytes)
{
    mbarrier *b = mbarrier_at(rank, address);
    b->bytes -= bytes;
    end_phase(b);
}

void mbarrier_wait(uint32_t address, uint32_t parity)
{
    const mbarrier *b = mbarrier_at(cluster_rank(), address);
    if (random_order() && random_below(8) == 0) engine_step();
    while (b->parity == (parity & 1)) yield();
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
    for (const posted &one : list)
        if (!one.work.out) fail("a copy into shared memory was under way when its block ended");
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
    while (is_pending(true)) yield();
}

void bulk_wait()
{
    while (is_pending(false)) yield();
}

} // namespace emulated
