/* SPDX-License-Identifier: Apache-2.0 */
/* products.cc - products of a warpgroup: D (64 x n) = A (64 x 16) B (16 x n) [+ D], 16 rows a warp.
 * They run late: see wgmma.cuh. */
#include "products.h"

#include <string.h>

#include <deque>
#include <map>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "internal.h"
#include "races.h"

namespace emulated
{

struct issued {
    product what;
    const void *place; /* in the code of the kernel */
    int group;
};
struct thread_products {
    std::vector<issued> pending; /* in order */
    int committed;               /* groups */
};

enum step_kind { FENCE, ISSUE, COMMIT, WAIT };
struct step {
    step_kind kind;
    int pending;  /* WAIT: how many groups it leaves */
    product what; /* ISSUE */
};

/* What a warpgroup does: all four warps the same, in the same order, waits included. */
struct group_steps {
    std::vector<step> done;
    size_t counts[4]; /* by warp: how many of them */
};
static std::map<int, group_steps> groups; /* by the slot of the first thread */

static std::deque<thread_products> threads; /* by slot; stay where they are when more come */

static thread_products &mine()
{
    if (threads.size() <= (size_t)fiber_slot()) threads.resize((size_t)fiber_slot() + 1);
    return threads[(size_t)fiber_slot()];
}

void forget_products()
{
    groups.clear();
    for (thread_products &t : threads) {
        t.pending.clear();
        t.committed = 0;
    }
}

void check_products()
{
    if (!mine().pending.empty()) fail("a thread returned before its products were done");
}

void finish_products()
{
    for (const auto &group : groups)
        for (const size_t count : group.second.counts)
            if (count != group.second.done.size())
                fail("a warp did %zu steps of products (fences, issues, commits, waits), its "
                     "warpgroup %zu",
                     count, group.second.done.size());
}

static bool is_same(const step &one, const step &other)
{
    const product &a = one.what, &b = other.what;
    return one.kind == other.kind && one.pending == other.pending && a.n == b.n && a.add == b.add &&
           a.bf16 == b.bf16 && !a.a_words == !b.a_words && a.a == b.a && a.b == b.b &&
           a.a_transposed == b.a_transposed && a.b_transposed == b.b_transposed;
}

/* What the warp does next is what its warpgroup does. */
static void check_group(const step &one)
{
    if (lane() != 0) return;
    group_steps &group = groups[fiber_slot() - (int)(threadIdx.x % 128)];
    const size_t number = group.counts[threadIdx.x % 128 / 32]++;
    if (number == group.done.size()) group.done.push_back(one);
    if (!is_same(one, group.done[number]))
        fail("the warps of a warpgroup issue different products, or wait for them at different "
             "places");
}

/* ---- One product ---- */

static float number(uint16_t bits, bool bf16)
{
    return bf16 ? bfloat16_value(bits) : half_value(bits);
}

/* Eight numbers of a matrix, `column` a multiple of 8: its rows have 128 bytes, 64 numbers, further
 * columns are in other panels, and the 16-byte pieces of a row have changed places. */
static void read_piece(uint64_t matrix, int row, int column, bool bf16, float (&to)[8])
{
    const uint32_t panel = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    const uint32_t at = ((uint32_t)(matrix & 0x3fff) << 4) + (uint32_t)row * 128 +
                        (uint32_t)(column / 64) * panel + (uint32_t)(column % 64) * 2;
    uint16_t bits[8];
    const void *place = shared_pointer(at ^ (at >> 7 & 7) << 4, sizeof bits);
    race_access(place, sizeof bits, ACCESS_READ | ACCESS_ASYNC);
    memcpy(bits, place, sizeof bits);
    for (int i = 0; i < 8; i++) to[i] = number(bits[i], bf16);
}

/* A matrix of `count` by 16, of which the sum runs over the 16: its columns, or its rows. */
static void read_matrix(uint64_t matrix, bool transposed, int first, int count, bool bf16,
                        float (&to)[16][256])
{
    float piece[8];
    for (int i = 0; i < count && !transposed; i++)
        for (int k = 0; k < 16; k += 8) {
            read_piece(matrix, first + i, k, bf16, piece);
            for (int j = 0; j < 8; j++) to[k + j][i] = piece[j];
        }
    for (int k = 0; k < 16 && transposed; k++)
        for (int i = 0; i < count; i += 8) {
            read_piece(matrix, k, first + i, bf16, piece);
            memcpy(&to[k][i], piece, sizeof piece);
        }
}

/* What a lane deposits: where its numbers are. Lanes lie still meanwhile, so the one that computes
 * reads and writes them for all. */
struct deposit {
    const product *what;
    const void *place;
    int warp_row; /* of A, in shared memory */
};

static void read_words(const deposit *lanes, float (&a)[16][256])
{
    for (int lane = 0; lane < 32; lane++)
        for (int word = 0; word < 4; word++)
            for (int e = 0; e < 2; e++)
                a[2 * (lane % 4) + e + 8 * (word / 2)][lane / 4 + 8 * (word % 2)] = number(
                    (uint16_t)(lanes[lane].what->a_words[word] >> 16 * e), lanes[0].what->bf16);
}

/* What lies in shared memory, of A the rows of this warp. */
static void read_shared(const product &p, int warp_row, float (&a)[16][256], float (&b)[16][256])
{
    if (!p.a_words) read_matrix(p.a, p.a_transposed, warp_row, 16, p.bf16, a);
    read_matrix(p.b, p.b_transposed, 0, p.n, p.bf16, b);
}

static void multiply(const deposit *lanes)
{
    const race_place there(lanes[0].place);
    const product &p = *lanes[0].what;
    float a[16][256], b[16][256];
    if (p.a_words) read_words(lanes, a);
    read_shared(p, lanes[0].warp_row, a, b);
    for (int row = 0; row < 16; row++) {
        float sum[256] = {};
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < p.n; n++) sum[n] += a[k][row] * b[k][n];
        for (int n = 0; n < p.n; n++) {
            const product &of = *lanes[row % 8 * 4 + n % 8 / 2].what;
            float *d = &of.d[n / 8 * 4 + row / 8 * 2 + n % 2];
            *d = p.add ? *d + sum[n] : sum[n];
        }
    }
}

static int warp_row() { return (int)(threadIdx.x % 128 / 32 * 16); }

/* From now on the product may read, so what it reads is to be there: the first lane looks. */
void product_issue(const product &one)
{
    const race_place here(__builtin_return_address(0));
    check_group({ ISSUE, 0, one });
    if (EMULATED_RACES && lane() == 0) {
        float a[16][256], b[16][256];
        read_shared(one, warp_row(), a, b);
    }
    mine().pending.push_back({ one, __builtin_return_address(0), mine().committed });
}

static void run_until(int group)
{
    thread_products &t = mine();
    size_t done = 0;
    for (; done < t.pending.size() && t.pending[done].group < group; done++) {
        const deposit at = { &t.pending[done].what, t.pending[done].place, warp_row() };
        emulated_warp_compute<int>(at, [](const deposit *in, int *) { multiply(in); });
    }
    t.pending.erase(t.pending.begin(), t.pending.begin() + (ptrdiff_t)done);
}

void products_fence() { check_group({ FENCE, 0, {} }); }

void products_commit()
{
    check_group({ COMMIT, 0, {} });
    mine().committed++;
    const int early = random_order() && random_below(4) == 0;
    if (random_order() && emulated_warp_gather(early)[0]) run_until(mine().committed);
}

void products_wait(int pending)
{
    check_group({ WAIT, pending, {} });
    run_until(mine().committed - pending);
}

} // namespace emulated
