/* SPDX-License-Identifier: Apache-2.0 */
/* copies.cc - asynchronous copies into shared memory (cp.async). They run when a thread waits for
 * them, and what is there before is wiped at once: who reads too early, or starts a copy into memory
 * that is still read, computes with NaN. */
#include <string.h>

#include <vector>

#include "internal.h"
#include "races.h"

namespace emulated
{

constexpr int WIPED_BYTE = 0xFF;

struct async_copy {
    uint32_t to;
    const void *from;
    size_t bytes, copied;
    int group;
};

struct thread_copies {
    std::vector<async_copy> pending; /* in order */
    int committed;                   /* groups */
};

static std::vector<thread_copies> threads;

void forget_copies(int count)
{
    threads.resize((size_t)count);
    for (thread_copies &t : threads) {
        t.pending.clear();
        t.committed = 0;
    }
}

static void run_copy(const async_copy &c)
{
    char *to = static_cast<char *>(shared_pointer(c.to, c.bytes));
    race_access(to, c.bytes, ACCESS_WRITE);
    if (c.copied) memcpy(to, c.from, c.copied);
    memset(to + c.copied, 0, c.bytes - c.copied);
}

void copy_async(uint32_t to, const void *from, size_t bytes, size_t copied)
{
    const race_place here(__builtin_return_address(0));
    if (copied > bytes) fail("cp.async copies %zu of %zu bytes", copied, bytes);
    if (to % bytes || (copied && (uintptr_t)from % bytes))
        fail("cp.async of %zu bytes from %p to %u: misaligned", bytes, from, (unsigned)to);
    thread_copies &mine = threads[threadIdx.x];
    const async_copy c = { to, from, bytes, copied, mine.committed };
    race_access(from, copied, ACCESS_READ);
    race_access(shared_pointer(to, bytes), bytes, ACCESS_WRITE); /* from now on at any time */
    memset(shared_pointer(to, bytes), WIPED_BYTE, bytes);
    if (random_order() && random_below(4) == 0) run_copy(c); /* fast, for once */
    else mine.pending.push_back(c);
}

void copies_commit() { threads[threadIdx.x].committed++; }

void copies_wait(int pending)
{
    const race_place here(__builtin_return_address(0));
    thread_copies &mine = threads[threadIdx.x];
    size_t done = 0;
    while (done < mine.pending.size() && mine.pending[done].group < mine.committed - pending)
        run_copy(mine.pending[done++]);
    mine.pending.erase(mine.pending.begin(), mine.pending.begin() + (ptrdiff_t)done);
}

} // namespace emulated
