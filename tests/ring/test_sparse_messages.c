/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse_messages.c - the messages and the memory of dilated and blocks patterns, against
 * formulas written here: nothing is asked of the library but its forecast. Some cases are run as
 * well; the lab holds what they counted against the forecast. */
#include "support/ask.h"
#include "support/fixture.h"

#include <stdlib.h>

/* ---- Messages of dilated --------------------------------------------------------------------- */

/* d=8 dv=12 bf16: bytes of a key of one KV head, and of its gradients in f32. */
#define WIDTHS "d=8 dv=12 bf16"

enum { CELL = 20 * 2, CELL_GRADIENT = 20 * 4 };

/* Every segment inside a shard: no rank sends anything, and there is no buffer for it. */
static void segments_inside_shards_send_nothing(void **state)
{
    (void)state;
    static const char *const patterns[] = { "dilated:64/1,32/2",       "dilated:64/4;causal",
                                            "dilated:16/3,32/5;dedup", "dilated:64/1,32/2;groups",
                                            "blocks:32;local=0",       "blocks:64;random=0" };
    for (int i = 0; i < 2 * TEST_COUNT(patterns); i++) {
        struct answer a;
        answer_open(&a, "%s n=256 h=8/4 " WIDTHS " ring=4 %s backward", patterns[i / 2],
                    i % 2 ? "allgather" : "ring");
        for (int rank = 0; rank < 4; rank++) {
            answer_expect_traffic(&a, rank, false, 0, 0);
            answer_expect_traffic(&a, rank, true, 0, 0);
            const ra_memory *m = &a.forecast.rank[rank].memory;
            if (i % 2) continue;
            ask_expect(a.problem, rank, "travel", (int64_t)m->travel, 0);
            ask_expect(a.problem, rank, "state", (int64_t)m->state, 0);
        }
        answer_close(&a);
    }
}

/* One branch of n = P x 64 positions at rate 4: KV heads whose query heads have `offsets` different
 * offsets need so many quarters of a shard. */
static void expect_share(const char *heads, int64_t kv_heads, int64_t offsets, int ranks,
                         const char *strategy)
{
    struct answer a;
    int64_t cells = (ranks - 1) * 16 * offsets * kv_heads;
    answer_open(&a, "dilated:%d/4 n=%d h=%s " WIDTHS " ring=%d %s backward", 64 * ranks, 64 * ranks,
                heads, ranks, strategy);
    for (int rank = 0; rank < ranks; rank++) {
        bool ring = !strcmp(strategy, "ring");
        int64_t hops = ring ? ranks == 2 ? 2 : ranks + 1 : 2 * (ranks - 1);
        answer_expect_traffic(&a, rank, false, ranks - 1, cells * CELL);
        answer_expect_traffic(&a, rank, true, hops, cells * (CELL + CELL_GRADIENT));
    }
    answer_close(&a);
}

static void a_dilated_ring_sends_what_is_selected(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather" };
    for (int s = 0; s < TEST_COUNT(strategies); s++)
        for (int ranks = 2; ranks <= 8; ranks += 2) {
            expect_share("8", 8, 1, ranks, strategies[s]);   /* a quarter of the dense bytes */
            expect_share("8/4", 4, 2, ranks, strategies[s]); /* two heads, two offsets: a half */
            expect_share("8/2", 2, 4, ranks, strategies[s]); /* all four offsets: everything */
            expect_share("16/2", 2, 4, ranks, strategies[s]);
            expect_share("2/1", 1, 2, ranks, strategies[s]);
            expect_share("1", 1, 1, ranks, strategies[s]);
        }
}

/* A quarter of what the dense ring sends, in numbers of the library's own. */
static void dilation_divides_the_bytes(void **state)
{
    (void)state;
    for (int rate = 1; rate <= 16; rate *= 2) {
        struct answer sparse, dense;
        answer_open(&sparse, "dilated:512/%d n=512 h=16 " WIDTHS " ring=4 backward", rate);
        answer_open(&dense, "full n=512 h=16 " WIDTHS " ring=4 backward");
        for (int rank = 0; rank < 4; rank++)
            for (int back = 0; back < 2; back++)
                ask_expect(sparse.problem, rank, "bytes",
                           answer_stats(&sparse, rank, back)->bytes_sent * rate,
                           answer_stats(&dense, rank, back)->bytes_sent);
        answer_close(&sparse);
        answer_close(&dense);
    }
}

/* Segments over two of eight ranks: each has one partner, met on the way out and on the way
 * back. */
static void only_ranks_of_one_segment_exchange(void **state)
{
    (void)state;
    for (int rate = 1; rate <= 4; rate *= 2) {
        struct answer a;
        int64_t cells = 32 / rate * 8;
        answer_open(&a, "dilated:64/%d n=256 h=8 " WIDTHS " ring=8 backward", rate);
        for (int rank = 0; rank < 8; rank++) {
            answer_expect_traffic(&a, rank, false, 2, cells * CELL);
            answer_expect_traffic(&a, rank, true, 4, cells * (CELL + CELL_GRADIENT));
            ask_expect(a.problem, rank, "bytes received",
                       answer_stats(&a, rank, true)->bytes_received,
                       cells * (CELL + CELL_GRADIENT));
        }
        answer_close(&a);
    }
}

/* ---- Messages of blocks ---------------------------------------------------------------------- */

/* Eight shards of 32; what rank `reader` sees of the keys of rank `owner`, in rows of all heads. */
enum { RANKS = 8, SHARD = 32, ROW = 4 * CELL, ROW_GRADIENT = 4 * CELL_GRADIENT };

typedef int64_t (*rows_fn)(int64_t size, int64_t g, int reader, int owner);

static int64_t rows_of_local(int64_t size, int64_t g, int reader, int owner)
{
    int64_t between = (abs(reader - owner) - 1) * SHARD; /* rows of the ranks between them */
    return least(SHARD, most(0, g * size - between));
}

static int64_t rows_of_causal(int64_t size, int64_t g, int reader, int owner)
{
    return reader > owner ? rows_of_local(size, g, reader, owner) : 0;
}

/* Block 0 sees all and all see it. */
static int64_t rows_of_global(int64_t size, int64_t g, int reader, int owner)
{
    if (reader == 0) return SHARD;
    int64_t near = rows_of_local(size, g, reader, owner);
    return owner == 0 ? least(SHARD, near + size) : near;
}

/* Blocks as long as shards: only whole multiples of the rate meet. */
static int64_t rows_of_combs(int64_t size, int64_t g, int reader, int owner)
{
    (void)size;
    return abs(reader - owner) % g == 0 ? SHARD : 0;
}

static bool meets(rows_fn rows, int64_t size, int64_t g, int rank, int h)
{
    int next = (rank + h) % RANKS, last = (rank + RANKS - h % RANKS) % RANKS;
    return h >= 1 && h < RANKS && (rows(size, g, next, rank) || rows(size, g, rank, last));
}

static void check_blocks(const char *pattern, rows_fn rows, int64_t size, int64_t g)
{
    struct answer a;
    answer_open(&a, "%s n=%d h=8/4 " WIDTHS " ring=%d backward", pattern, RANKS * SHARD, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        int64_t hops = 0, back_hops = 0, sent = 0, seen = 0;
        for (int h = 1; h <= RANKS + 1; h++) {
            hops += meets(rows, size, g, rank, h);
            back_hops += meets(rows, size, g, rank, h) || meets(rows, size, g, rank, h - 2);
        }
        for (int other = 0; other < RANKS; other++) {
            if (other == rank) continue;
            sent += rows(size, g, other, rank);
            seen += rows(size, g, rank, other);
        }
        answer_expect_traffic(&a, rank, false, hops, sent * ROW);
        answer_expect_traffic(&a, rank, true, back_hops, sent * ROW + seen * ROW_GRADIENT);
        ask_expect(a.problem, rank, "bytes received", answer_stats(&a, rank, false)->bytes_received,
                   seen * ROW);
    }
    answer_close(&a);
}

static void blocks_send_what_is_in_reach(void **state)
{
    (void)state;
    char pattern[96];
    for (int size = 4; size <= SHARD; size *= 2)
        for (int g = 0; g <= 9; g += 3) {
            snprintf(pattern, sizeof pattern, "blocks:%d;local=%d", size, g);
            check_blocks(pattern, rows_of_local, size, g);
            snprintf(pattern, sizeof pattern, "blocks:%d;local=%d;causal", size, g);
            check_blocks(pattern, rows_of_causal, size, g);
            snprintf(pattern, sizeof pattern, "blocks:%d;local=%d;global=1", size, g);
            check_blocks(pattern, rows_of_global, size, g);
        }
}

/* Ranks p and p + 4 meet in hop 4; the other six hops do not take place. */
static void hops_nobody_needs_are_skipped(void **state)
{
    (void)state;
    struct answer a;
    check_blocks("blocks:32;dilated=2/9", rows_of_combs, 32, 2);
    check_blocks("blocks:32;dilated=3/9", rows_of_combs, 32, 3);
    check_blocks("blocks:32;dilated=4/1", rows_of_combs, 32, 4);
    answer_open(&a, "blocks:32;dilated=4/1 n=256 h=8/4 " WIDTHS " ring=8");
    for (int rank = 0; rank < 8; rank++) answer_expect_traffic(&a, rank, false, 1, SHARD * ROW);
    answer_close(&a);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Two buffers for what arrives, one for what is packed, none larger than what one reader needs; and
 * as many for gradients. */
static void buffers_are_as_large_as_the_needs(void **state)
{
    (void)state;
    for (int rate = 1; rate <= 8; rate *= 2) {
        struct answer a;
        int64_t cells = 64 / rate * 8; /* of one shard, for one reader */
        answer_open(&a, "dilated:256/%d n=256 h=8 " WIDTHS " ring=4 backward", rate);
        for (int rank = 0; rank < 4; rank++) {
            const ra_memory *m = &a.forecast.rank[rank].memory;
            ask_expect(a.problem, rank, "travel", (int64_t)m->travel, 3 * cells * CELL);
            ask_expect(a.problem, rank, "gradient", (int64_t)m->gradient,
                       64 * 8 * (8 + 1) * 4 + (64 * 8 + 3 * cells) * CELL_GRADIENT);
        }
        answer_close(&a);
    }
}

/* With nothing but a band of 4 across each border, buffers hold that, however long the shards. Hops
 * 1 and 3 share one buffer; the other is not needed. */
static void buffers_of_a_band_do_not_grow(void **state)
{
    (void)state;
    for (int64_t n = 256; n <= 32768; n *= 128) {
        struct answer a;
        answer_open(&a, "blocks:4;local=1 n=%lld h=8/4 " WIDTHS " ring=4", (long long)n);
        for (int rank = 1; rank < 3; rank++) {
            const ra_memory *m = &a.forecast.rank[rank].memory;
            ask_expect(a.problem, rank, "travel", (int64_t)m->travel, 4 * ROW + 4 * ROW);
        }
        answer_close(&a);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The lab fails where a run counts other hops, bytes or pairs than were forecast. */
static void runs_count_what_was_forecast(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "dilated:64/1,32/2 n=256 h=8/4 ring=4",
        "dilated:256/4 n=256 h=8 ring=4",
        "dilated:256/4 n=256 h=8/4 ring=4 allgather",
        "dilated:64/2 n=256 h=8 ring=8",
        "dilated:64/2,96/3;dedup;causal n=251 h=6/2 ring=7 zigzag",
        "dilated:20/1,50/3,100/7;groups n=251 h=5/1 ring=5 striped",
        "blocks:16;local=3 n=256 h=8/4 ring=8",
        "blocks:16;local=3;global=1 n=256 h=8/4 ring=8",
        "blocks:32;dilated=4/1 n=256 h=8/4 ring=8",
        "blocks:16;random=0.1;seed=5 n=256 h=4/2 ring=8 allgather",
        "window:20 n=256 h=4/2 ring=8",
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct fixture fixture;
        fixture_open(&fixture, "%s " WIDTHS " backward", cases[i]);
        fixture_run(&fixture);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_inside_shards_send_nothing),
        cmocka_unit_test(a_dilated_ring_sends_what_is_selected),
        cmocka_unit_test(dilation_divides_the_bytes),
        cmocka_unit_test(only_ranks_of_one_segment_exchange),
        cmocka_unit_test(blocks_send_what_is_in_reach),
        cmocka_unit_test(hops_nobody_needs_are_skipped),
        cmocka_unit_test(buffers_are_as_large_as_the_needs),
        cmocka_unit_test(buffers_of_a_band_do_not_grow),
        cmocka_unit_test(runs_count_what_was_forecast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
