/* SPDX-License-Identifier: Apache-2.0 */
/* test_counts.c - hops and bytes of every rank against closed formulas, for dense patterns under
 * each strategy. ring/census counts by brute force. */
#include "support/ask.h"

static void expect_hops(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask_stats(problem, rank, backward).hops;
    ask_expect(problem, rank, backward ? "backward hops" : "hops", got, want);
}

static void expect_bytes(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask_stats(problem, rank, backward).bytes_sent;
    ask_expect(problem, rank, backward ? "backward bytes" : "bytes", got, want);
}

/* Where block `rank` of `ranks` starts among n positions. */
static int64_t cut(int64_t n, int ranks, int rank) { return rank * n / ranks; }

/* ASK_SHAPE: bytes of a row of K and V, and of its gradients in f32. */
enum { ROW = 3 * 2 * (8 + 12) * 2, ROW_GRADIENT = 3 * 2 * (8 + 12) * 4 };

static const int lengths[] = { 8, 16, 31, 64, 97, 240 };

static void full_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l];
                int next = (rank + 1) % ranks;
                int64_t of_next = cut(n, ranks, next + 1) - cut(n, ranks, next);
                int64_t own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                int64_t keys = ranks > 1 ? (n - of_next) * ROW : 0;
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d backward", (long long)n,
                         ASK_SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, keys);
                expect_hops(problem, rank, 1, ranks == 1 ? 0 : ranks == 2 ? 2 : ranks + 1);
                /* Every block but its own passes through, and its gradients leave once. */
                expect_bytes(problem, rank, 1, keys + (n - own) * ROW_GRADIENT);
                if (ranks > 1 && n % ranks == 0) /* (P-1)(2c + 2c in f32) */
                    expect_bytes(problem, rank, 1, (ranks - 1) * n / ranks * (ROW + ROW_GRADIENT));
            }
}

static void causal_contiguous_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                bool is_last = rank == ranks - 1;
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d", lengths[l], ASK_SHAPE,
                         ranks);
                /* A rank sends its own block and those before it; there is no rank after the
                 * last. */
                expect_bytes(problem, rank, 0,
                             is_last ? 0 : cut(lengths[l], ranks, rank + 1) * ROW);
                expect_hops(problem, rank, 0, is_last ? ranks - 1 : rank + 1);
            }
}

/* What the queries of `reader` see of the block of `owner`, a rank before it. */
static int64_t window_rows(int64_t n, int ranks, int owner, int reader, int64_t left)
{
    if (owner < 0 || reader >= ranks) return 0;
    int64_t first = cut(n, ranks, reader), start = cut(n, ranks, owner);
    if (first == cut(n, ranks, reader + 1)) return 0; /* it has no queries */
    return most(cut(n, ranks, owner + 1) - most(start, first - left), 0);
}

static void window_contiguous_ring(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 5, 8, 13, 30, 1000 };
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int w = 0; w < TEST_COUNT(lefts); w++)
            for (int ranks = 1; ranks <= 8; ranks++)
                for (int rank = 0; rank < ranks; rank++) {
                    int64_t n = lengths[l], rows = 0, hops = 0;
                    for (int h = 1; h < ranks; h++) { /* to rank + h, from rank - h */
                        int64_t sent = window_rows(n, ranks, rank, rank + h, lefts[w]);
                        rows += sent;
                        hops += sent > 0 || window_rows(n, ranks, rank - h, rank, lefts[w]) > 0;
                    }
                    snprintf(problem, sizeof problem, "window:%d n=%lld %s ring=%d", lefts[w],
                             (long long)n, ASK_SHAPE, ranks);
                    expect_bytes(problem, rank, 0, rows * ROW);
                    expect_hops(problem, rank, 0, hops);
                }
}

/* With P dividing n: ceil(L / block) hops, and only the tokens inside the window. */
static void window_reaches_no_further_than_it_must(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 15, 16, 17, 40, 111 };
    char problem[128];
    int64_t block = 16;
    for (int w = 0; w < TEST_COUNT(lefts); w++) {
        int64_t rows = 0, hops = (lefts[w] + block - 1) / block;
        for (int64_t h = 0; h < hops; h++) rows += least(block, lefts[w] - h * block);
        snprintf(problem, sizeof problem, "window:%d n=128 %s ring=8", lefts[w], ASK_SHAPE);
        expect_hops(problem, 0, 0, hops);
        expect_bytes(problem, 0, 0, rows * ROW);
    }
}

static void causal_zigzag_and_striped_take_all_hops(void **state)
{
    (void)state;
    static const char *const partitions[] = { "zigzag", "striped" };
    char problem[128];
    for (int p = 0; p < TEST_COUNT(partitions); p++)
        for (int ranks = 2; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d %s", 16 * ranks,
                         ASK_SHAPE, ranks, partitions[p]);
                expect_hops(problem, rank, 0, ranks - 1);
            }
}

/* Zigzag and striped give every rank the same causal work, to within a part in the block. */
static void causal_work_is_balanced(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 2; ranks <= 8; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            int64_t n = 16 * ranks, all = n * (n + 1) / 2 * 6 * 3;
            snprintf(problem, sizeof problem, "causal n=%lld %s ring=%d zigzag", (long long)n,
                     ASK_SHAPE, ranks);
            int64_t pairs = ask_stats(problem, rank, 0).pairs;
            ask_expect(problem, rank, "pairs", pairs, all / ranks);
        }
}

static void full_allgather(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l], own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d allgather backward",
                         (long long)n, ASK_SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, (ranks - 1) * own * ROW);
                expect_hops(problem, rank, 1, 2 * (ranks - 1));
                expect_bytes(problem, rank, 1, (ranks - 1) * own * ROW + (n - own) * ROW_GRADIENT);
            }
}

/* A rank sends (P - 1) / P of everything, before and after, and nothing more: h=8/4 d=8 dv=12 b=3
 * bf16, so that every rank has some heads, and 2 or 4 of them the same number. */
static void full_ulysses(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int64_t n = 8; n <= 64; n *= 2)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t q = 3 * n / ranks * 8 / ranks, k = 3 * n / ranks * 4 / ranks;
                snprintf(problem, sizeof problem,
                         "full n=%lld h=8/4 d=8 dv=12 b=3 bf16 ring=%d ulysses backward",
                         (long long)n, ranks);
                expect_hops(problem, rank, 0, 2 * (ranks - 1));
                expect_hops(problem, rank, 1, 2 * (ranks - 1));
                expect_bytes(problem, rank, 0,
                             (ranks - 1) * (q * (8 * 2 + 12 * 2 + 4) + k * 20 * 2));
                expect_bytes(problem, rank, 1,
                             (ranks - 1) * (q * (20 * 2 + 8 + 8 * 2) + k * 2 * 20 * 2));
            }
}

/* Both: all-to-all among U members, and a ring of R teams with U times as many tokens, 1 / U of the
 * heads. */
static void full_2d(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 4 }, { 2, 2 }, { 4, 1 }, { 2, 3 }, { 2, 4 }, { 4, 2 } };
    char problem[128];
    for (int i = 0; i < TEST_COUNT(sizes); i++)
        for (int rank = 0; rank < sizes[i][0] * sizes[i][1]; rank++) {
            int64_t u = sizes[i][0], r = sizes[i][1], n = 96;
            int64_t q = 3 * n / (u * r) * 8 / u, k = 3 * n / (u * r) * 4 / u;
            int64_t block = 3 * n / r * 4 / u * 20; /* numbers of K and V of a team */
            snprintf(problem, sizeof problem,
                     "full n=%lld h=8/4 d=8 dv=12 b=3 bf16 ring=%d 2d:%dx%d backward", (long long)n,
                     (int)(u * r), (int)u, (int)r);
            expect_hops(problem, rank, 0, 2 * (u - 1) + r - 1);
            expect_bytes(problem, rank, 0,
                         (u - 1) * (q * (8 * 2 + 12 * 2 + 4) + k * 20 * 2) + (r - 1) * block * 2);
            expect_hops(problem, rank, 1, 2 * (u - 1) + (r == 1 ? 0 : r == 2 ? 2 : r + 1));
            expect_bytes(problem, rank, 1,
                         (u - 1) * (q * (20 * 2 + 8 + 8 * 2) + k * 2 * 20 * 2) +
                             (r - 1) * block * (2 + 4));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_ring),
        cmocka_unit_test(causal_contiguous_ring),
        cmocka_unit_test(window_contiguous_ring),
        cmocka_unit_test(window_reaches_no_further_than_it_must),
        cmocka_unit_test(causal_zigzag_and_striped_take_all_hops),
        cmocka_unit_test(causal_work_is_balanced),
        cmocka_unit_test(full_allgather),
        cmocka_unit_test(full_ulysses),
        cmocka_unit_test(full_2d),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
