/* SPDX-License-Identifier: Apache-2.0 */
/* products.cc - products of a warpgroup: D (64 x n) = A (64 x 16) B (16 x n) [+ D], 16 rows a warp.
 * They run late: see wgmma.cuh. */
#include "products.h"

#include <string.h>

#include <deque>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "internal.h"

namespace emulated
{

struct issued {
    product what;
    int group;
};
struct thread_products {
    std::vector<issued> pending; /* in order */
    int committed;               /* groups */
};

static std::deque<thread_products> threads; /* by slot; stay where they are when more come */

static thread_products &mine()
{
    if (threads.size() <= (size_t)fiber_slot()) threads.resize((size_t)fiber_slot() + 1);
    return threads[(size_t)fiber_slot()];
}

void forget_products()
{
    for (thread_products &t : threads) {
        t.pending.clear();
        t.committed = 0;
    }
}

void product_issue(const product &one) { mine().pending.push_back({ one, mine().committed }); }

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
    memcpy(bits, shared_pointer(at ^ (at >> 7 & 7) << 4, sizeof bits), sizeof bits);
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

static void multiply(const deposit *lanes)
{
    const product &p = *lanes[0].what;
    float a[16][256], b[16][256];
    if (p.a_words) read_words(lanes, a);
    else read_matrix(p.a, p.a_transposed, lanes[0].warp_row, 16, p.bf16, a);
    read_matrix(p.b, p.b_transposed, 0, p.n, p.bf16, b);
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

static void run_until(int group)
{
    thread_products &t = mine();
    size_t done = 0;
    for (; done < t.pending.size() && t.pending[done].group < group; done++) {
        const deposit at = { &t.pending[done].what, (int)(threadIdx.x % 128 / 32 * 16) };
        emulated_warp_compute<int>(at, [](const deposit *in, int *) { multiply(in); });
    }
    t.pending.erase(t.pending.begin(), t.pending.begin() + (ptrdiff_t)done);
}

void products_commit()
{
    mine().committed++;
    const int early = random_order() && random_below(4) == 0;
    if (random_order() && emulated_warp_gather(early)[0]) run_until(mine().committed);
}

void products_wait(int pending) { run_until(mine().committed - pending); }

} // namespace emulated
