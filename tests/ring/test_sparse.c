/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse.c - the work, the messages and the memory of dilated and blocks patterns, against
 * formulas written here: nothing is asked of the library but its forecast. Some cases are run as
 * well; the lab holds what they counted against the forecast. */
#include "support/fixture.h"

#include <math.h>
#include <stdlib.h>

#include "harness/run/forecast.h"

/* ---- Asking ---------------------------------------------------------------------------------- */

static void expect_equal(const char *problem, int rank, const char *what, int64_t got, int64_t want)
{
    if (got == want) return;
    print_error("%s of rank %d: %lld, but %lld is right\n  ringattn verify \"%s\"\n", what, rank,
                (long long)got, (long long)want, problem);
    fail();
}

/* Every rank of a problem, forward and backward. */
struct answer {
    char problem[256];
    struct trial trial;
    struct forecast forecast;
};

static void ask(struct answer *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void ask(struct answer *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->problem, sizeof a->problem, format, args);
    va_end(args);
    assert_int_equal(trial_parse(&a->trial, a->problem), 0);
    assert_int_equal(forecast_open(&a->forecast, &a->trial, 0), 0);
}

static void answer_close(struct answer *a)
{
    forecast_close(&a->forecast);
    trial_clear(&a->trial);
}

static const ra_stats *stats_of(const struct answer *a, int rank, bool backward)
{
    const struct forecast_rank *r = &a->forecast.rank[rank];
    return backward ? &r->backward : &r->forward;
}

/* Pairs over all ranks, and the density that follows. */
static void expect_pairs(const struct answer *a, int64_t want)
{
    const struct trial *t = &a->trial;
    double density = (double)want / (double)(t->batch * t->q_heads * t->q_len * t->k_len);
    int64_t got = 0;
    for (int rank = 0; rank < t->ranks; rank++) got += stats_of(a, rank, false)->pairs;
    expect_equal(a->problem, -1, "pairs", got, want);
    expect_equal(a->problem, -1, "pairs of the forecast", a->forecast.pairs, want);
    if (fabs(a->forecast.density - density) > 1e-12 * density)
        fail_msg("%s: density %.17g, but %.17g is right", a->problem, a->forecast.density, density);
}

static void expect_traffic(const struct answer *a, int rank, bool backward, int64_t hops,
                           int64_t bytes)
{
    const ra_stats *got = stats_of(a, rank, backward);
    expect_equal(a->problem, rank, backward ? "backward hops" : "hops", got->hops, hops);
    expect_equal(a->problem, rank, backward ? "backward bytes" : "bytes", got->bytes_sent, bytes);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- Pairs of dilated ------------------------------------------------------------------------ */

struct branch {
    int64_t segment, rate;
};

/* How many of offset, offset + rate, ... are in [from, to) of a segment. */
static int64_t selected(int64_t offset, int64_t rate, int64_t from, int64_t to)
{
    int64_t below_to = to > offset ? (to - offset - 1) / rate + 1 : 0;
    int64_t below_from = from > offset ? (from - offset - 1) / rate + 1 : 0;
    return below_to - below_from;
}

/* One branch and head: selected queries times selected keys of each segment; under causal the i-th
 * of them sees i. Queries are the last q_len of k_len positions. */
static int64_t branch_pairs(struct branch b, int64_t head, int64_t q_len, int64_t k_len,
                            bool causal)
{
    int64_t pairs = 0, offset = head % b.rate, shift = k_len - q_len;
    for (int64_t start = 0; start < k_len; start += b.segment) {
        int64_t length = least(b.segment, k_len - start);
        int64_t keys = selected(offset, b.rate, 0, length);
        int64_t early = selected(offset, b.rate, 0, least(length, most(0, shift - start)));
        if (causal) pairs += keys * (keys + 1) / 2 - early * (early + 1) / 2;
        else pairs += (keys - early) * keys;
    }
    return pairs;
}

/* By brute force, where keys are not simply added up. */
static bool branch_sees(struct branch b, int64_t offset, int64_t query, int64_t key)
{
    return query / b.segment == key / b.segment && query % b.segment % b.rate == offset &&
           key % b.segment % b.rate == offset;
}

/* Head h of `heads` in `groups` groups, the first heads mod groups of them one larger. */
static int64_t group_of(int64_t heads, int64_t groups, int64_t head)
{
    int64_t end = 0;
    for (int64_t g = 0; g < groups; g++) {
        end += heads / groups + (g < heads % groups);
        if (head < end) return g;
    }
    return groups;
}

/* As the options of dilated stand in pairs_of_dilated. */
enum option { NO_OPTION, DEDUP, GROUPS, BLOCK_OFFSETS, OPTIONS };

static int64_t option_pairs(const struct branch *b, int count, const struct trial *t,
                            enum option option, bool causal)
{
    int64_t pairs = 0;
    for (int64_t head = 0; head < t->q_heads; head++)
        for (int64_t query = t->k_len - t->q_len; query < t->k_len; query++)
            for (int64_t key = 0; key < (causal ? query + 1 : t->k_len); key++) {
                int seen = 0;
                int own = (int)group_of(t->q_heads, count, head);
                for (int i = 0; i < count; i++) {
                    int64_t offset = head % b[i].rate;
                    if (option == GROUPS) offset = i % b[i].rate;
                    if (option == BLOCK_OFFSETS)
                        offset = head / ((t->q_heads + b[i].rate - 1) / b[i].rate);
                    if (option == GROUPS && i != own) continue;
                    seen += branch_sees(b[i], offset, query, key);
                }
                pairs += option == DEDUP ? seen > 0 : seen;
            }
    return pairs;
}

enum { BRANCHES = 3 };
static const struct branch branch_lists[][BRANCHES] = {
    { { 16, 1 }, { 32, 2 }, { 64, 4 } },
    { { 7, 3 }, { 20, 7 }, { 50, 2 } },  /* no rate divides its segment, nothing divides n */
    { { 1, 1 }, { 3, 5 }, { 1000, 9 } }, /* a rate above its segment, a segment above n */
};
static const int dilated_lengths[][2] = { { 64, 64 }, { 97, 97 }, { 1, 1 }, { 30, 97 }, { 1, 64 } };
static const char *const dilated_heads[] = { "8", "6/2", "5/1" };

static void pairs_of_dilated(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(branch_lists); i++)
        for (int l = 0; l < TEST_COUNT(dilated_lengths); l++)
            for (int way = 0; way < 2 * OPTIONS; way++)
                for (int count = 1; count <= BRANCHES; count += 2) {
                    static const char *const options[] = { "", ";dedup", ";groups",
                                                           ";offsets=block" };
                    const struct branch *b = branch_lists[i];
                    bool causal = way % 2;
                    char more[64] = "";
                    struct answer a;
                    if (count == 3)
                        snprintf(more, sizeof more, ",%d/%d,%d/%d", (int)b[1].segment,
                                 (int)b[1].rate, (int)b[2].segment, (int)b[2].rate);
                    ask(&a, "dilated:%d/%d%s%s%s n=%d nk=%d h=%s d=4 b=2 ring=%d zigzag",
                        (int)b[0].segment, (int)b[0].rate, more, options[way / 2],
                        causal ? ";causal" : "", dilated_lengths[l][0], dilated_lengths[l][1],
                        dilated_heads[(i + l + way) % 3], 1 + (l + way) % 5);
                    int64_t want = 0;
                    for (int64_t h = 0; h < a.trial.q_heads && way / 2 == 0; h++)
                        for (int n = 0; n < count; n++)
                            want += branch_pairs(b[n], h, a.trial.q_len, a.trial.k_len, causal);
                    if (way / 2) want = option_pairs(b, count, &a.trial, way / 2, causal);
                    expect_pairs(&a, 2 * want);
                    answer_close(&a);
                }
}

/* LongNet's own figure: with w and r growing alike, a branch costs n w / r^2 pairs per head. */
static void dilated_work_is_linear(void **state)
{
    (void)state;
    for (int64_t n = 4096; n <= (int64_t)1 << 20; n *= 16) {
        struct answer a;
        ask(&a, "dilated:1024/1,2048/2,4096/4 n=%lld h=4 d=64 ring=4", (long long)n);
        expect_pairs(&a, 4 * (n * 1024 + n * 512 + n * 256));
        answer_close(&a);
    }
}

/* ---- Pairs of blocks ------------------------------------------------------------------------- */

/* Philox4x32-10 as its authors define it, word 0. */
static uint32_t philox(uint64_t seed, const uint32_t counter[4])
{
    uint32_t c[4] = { counter[0], counter[1], counter[2], counter[3] };
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a };
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return c[0];
}

static void philox_is_philox(void **state)
{
    (void)state;
    const uint32_t zeros[4] = { 0, 0, 0, 0 }, ones[4] = { ~0u, ~0u, ~0u, ~0u };
    const uint32_t pi[4] = { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 };
    assert_int_equal(philox(0, zeros), 0x6627e8d5); /* the authors' known answers */
    assert_int_equal(philox(~(uint64_t)0, ones), 0x408f276d);
    assert_int_equal(philox(0x299f31d0a4093822, pi), 0xd16cfe09);
}

/* A blocks pattern: its text, and its terms as a formula. */
struct term {
    const char *text;
    bool (*active)(int64_t head, int64_t i, int64_t j);
};

static int64_t distance(int64_t i, int64_t j) { return i > j ? i - j : j - i; }
static bool local_2(int64_t h, int64_t i, int64_t j)
{
    (void)h;
    return distance(i, j) <= 2;
}
static bool global_2(int64_t h, int64_t i, int64_t j)
{
    (void)h;
    return i < 2 || j < 2;
}
static bool strided_3(int64_t h, int64_t i, int64_t j)
{
    (void)h;
    return j % 3 == 0 || i == j;
}
static bool dilated_3_2(int64_t h, int64_t i, int64_t j)
{
    (void)h;
    return distance(i, j) % 3 == 0 && distance(i, j) <= 6;
}
static bool levels_2_1_4_3(int64_t h, int64_t i, int64_t j)
{
    (void)h;
    return i == j || (i % 2 == 0 && distance(i, j) <= 1) || (i % 4 == 0 && distance(i, j) <= 3);
}
static bool random_30(int64_t h, int64_t i, int64_t j)
{
    const uint32_t counter[4] = { (uint32_t)j, (uint32_t)i, (uint32_t)h, UINT32_MAX };
    return i == j || (double)philox(7, counter) < 0.3 * 4294967296.0;
}
static bool all_of_them(int64_t h, int64_t i, int64_t j)
{
    return local_2(h, i, j) || global_2(h, i, j) || strided_3(h, i, j) || dilated_3_2(h, i, j) ||
           levels_2_1_4_3(h, i, j) || random_30(h, i, j);
}

static const struct term terms[] = {
    { "local=2", local_2 },
    { "global=2", global_2 },
    { "strided=3", strided_3 },
    { "dilated=3/2", dilated_3_2 },
    { "levels=2/1,4/3", levels_2_1_4_3 },
    { "random=0.3;seed=7", random_30 },
    { "local=2;global=2;strided=3;dilated=3/2;levels=2/1,4/3;random=0.3;seed=7", all_of_them },
};

/* Active blocks, each with the queries and keys it really has. */
static int64_t block_pairs(const struct term *term, int64_t size, const struct trial *t,
                           bool causal)
{
    int64_t pairs = 0, shift = t->k_len - t->q_len, blocks = (t->k_len + size - 1) / size;
    for (int64_t h = 0; h < t->q_heads; h++)
        for (int64_t i = shift / size; i < blocks; i++)
            for (int64_t j = 0; j < blocks; j++) {
                int64_t first = most(i * size, shift), end = least((i + 1) * size, t->k_len);
                int64_t keys = least(size, t->k_len - j * size);
                if (!term->active(h, i, j) || (causal && j > i)) continue;
                if (!causal || j < i) pairs += (end - first) * keys;
                for (int64_t q = first; q < end && causal && i == j; q++) pairs += q - i * size + 1;
            }
    return pairs;
}

static void pairs_of_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 8, 11 };
    static const int shapes[][2] = { { 96, 96 }, { 101, 101 }, { 1, 96 }, { 37, 101 } };
    for (int i = 0; i < TEST_COUNT(terms); i++)
        for (int b = 0; b < TEST_COUNT(sizes); b++)
            for (int s = 0; s < 2 * TEST_COUNT(shapes); s++) {
                bool causal = s % 2;
                struct answer a;
                ask(&a, "blocks:%d;%s%s n=%d nk=%d h=4/2 d=4 ring=%d striped", (int)sizes[b],
                    terms[i].text, causal ? ";causal" : "", shapes[s / 2][0], shapes[s / 2][1],
                    1 + (i + s) % 5);
                expect_pairs(&a, block_pairs(&terms[i], sizes[b], &a.trial, causal));
                answer_close(&a);
            }
}

/* m blocks of 4 under one term, of which so many are active. */
static void expect_active(int64_t m, int64_t active, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void expect_active(int64_t m, int64_t active, const char *format, ...)
{
    struct answer a;
    char term[64];
    va_list args;
    va_start(args, format);
    vsnprintf(term, sizeof term, format, args);
    va_end(args);
    ask(&a, "blocks:4;%s n=%d h=2 d=4 ring=3", term, (int)(4 * m));
    expect_pairs(&a, 2 * 16 * active);
    answer_close(&a);
}

static void active_blocks_in_closed_form(void **state)
{
    (void)state;
    for (int64_t m = 1; m <= 40; m += 3)
        for (int g = 0; g <= 4; g++) {
            int s = g + 1;
            int64_t reach = least(g, m - 1), rest = m - least(g, m), multiples = (m + s - 1) / s;
            int64_t combed = m, levelled = 0;
            for (int64_t t = 1; t <= g && t * s < m; t++) combed += 2 * (m - t * s);
            for (int64_t i = 0; i < m; i++)
                levelled += i % s ? 1 : least(i, g) + least(m - 1 - i, g) + 1;
            expect_active(m, m * (2 * reach + 1) - reach * (reach + 1), "local=%d", g);
            expect_active(m, m * m - rest * rest, "global=%d", g);
            expect_active(m, m * multiples + m - multiples, "strided=%d", s);
            expect_active(m, combed, "dilated=%d/%d", s, g);
            expect_active(m, levelled, "levels=%d/%d", s, g);
        }
}

/* As many random blocks as the density says, to within five times what chance allows. */
static void random_blocks_have_their_density(void **state)
{
    (void)state;
    static const double densities[] = { 0.0, 0.01, 0.25, 0.9, 1.0 };
    for (int i = 0; i < TEST_COUNT(densities); i++) {
        struct answer a;
        double share = densities[i], others = 4.0 * 64 * 63, slack = others * share * (1 - share);
        ask(&a, "blocks:4;random=%g;seed=11 n=256 h=4 d=4", share);
        double off = (double)a.forecast.pairs / 16 - 4 * 64 - share * others;
        if (off * off > 25.0 * slack) fail_msg("%s: %g blocks more than expected", a.problem, off);
        answer_close(&a);
    }
}

/* A bitmap by head or for all heads, from memory; blocks of 5, the last one short. */
static void pairs_of_bitmaps(void **state)
{
    (void)state;
    enum { SIZE = 5, N = 53, BLOCKS = 11, HEADS = 4 };
    for (int heads = 1; heads <= HEADS; heads += HEADS - 1)
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            uint8_t active[HEADS * BLOCKS * BLOCKS];
            int64_t want = 0, got = 0;
            ra_pattern *pattern;
            for (int i = 0; i < heads * BLOCKS * BLOCKS; i++) {
                int64_t q = i / BLOCKS % BLOCKS, k = i % BLOCKS;
                active[i] = (uint8_t)((i * 2654435761u) >> 24 & 2);
                want += active[i] ? least(SIZE, N - q * SIZE) * least(SIZE, N - k * SIZE) : 0;
            }
            assert_ok(ra_pattern_blocks(SIZE, &pattern));
            assert_ok(ra_pattern_add_bitmap(pattern, heads, BLOCKS, active));
            ra_problem problem = ra_problem_default();
            problem.pattern = pattern;
            problem.q_len = N;
            problem.q_heads = HEADS;
            problem.kv_heads = 2;
            problem.dim = 8;
            for (int rank = 0; rank < ranks; rank++) {
                ra_plan_options options = ra_plan_options_default();
                ra_stats stats = ra_stats_default();
                ra_plan *plan;
                options.ranks = ranks;
                options.rank = rank;
                assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
                assert_ok(ra_plan_forecast(plan, 0, &stats));
                ra_plan_destroy(plan);
                got += stats.pairs;
            }
            ra_pattern_destroy(pattern);
            assert_int_equal(got, want * (heads == 1 ? HEADS : 1));
        }
}

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
        ask(&a, "%s n=256 h=8/4 " WIDTHS " ring=4 %s backward", patterns[i / 2],
            i % 2 ? "allgather" : "ring");
        for (int rank = 0; rank < 4; rank++) {
            expect_traffic(&a, rank, false, 0, 0);
            expect_traffic(&a, rank, true, 0, 0);
            const ra_memory *m = &a.forecast.rank[rank].memory;
            if (i % 2) continue;
            expect_equal(a.problem, rank, "travel", (int64_t)m->travel, 0);
            expect_equal(a.problem, rank, "state", (int64_t)m->state, 0);
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
    ask(&a, "dilated:%d/4 n=%d h=%s " WIDTHS " ring=%d %s backward", 64 * ranks, 64 * ranks, heads,
        ranks, strategy);
    for (int rank = 0; rank < ranks; rank++) {
        bool ring = !strcmp(strategy, "ring");
        int64_t hops = ring ? ranks == 2 ? 2 : ranks + 1 : 2 * (ranks - 1);
        expect_traffic(&a, rank, false, ranks - 1, cells * CELL);
        expect_traffic(&a, rank, true, hops, cells * (CELL + CELL_GRADIENT));
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
        ask(&sparse, "dilated:512/%d n=512 h=16 " WIDTHS " ring=4 backward", rate);
        ask(&dense, "full n=512 h=16 " WIDTHS " ring=4 backward");
        for (int rank = 0; rank < 4; rank++)
            for (int back = 0; back < 2; back++)
                expect_equal(sparse.problem, rank, "bytes",
                             stats_of(&sparse, rank, back)->bytes_sent * rate,
                             stats_of(&dense, rank, back)->bytes_sent);
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
        ask(&a, "dilated:64/%d n=256 h=8 " WIDTHS " ring=8 backward", rate);
        for (int rank = 0; rank < 8; rank++) {
            expect_traffic(&a, rank, false, 2, cells * CELL);
            expect_traffic(&a, rank, true, 4, cells * (CELL + CELL_GRADIENT));
            expect_equal(a.problem, rank, "bytes received",
                         stats_of(&a, rank, true)->bytes_received, cells * (CELL + CELL_GRADIENT));
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
    int64_t between = (distance(reader, owner) - 1) * SHARD; /* rows of the ranks between them */
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
    return distance(reader, owner) % g == 0 ? SHARD : 0;
}

static bool meets(rows_fn rows, int64_t size, int64_t g, int rank, int h)
{
    int next = (rank + h) % RANKS, last = (rank + RANKS - h % RANKS) % RANKS;
    return h >= 1 && h < RANKS && (rows(size, g, next, rank) || rows(size, g, rank, last));
}

static void check_blocks(const char *pattern, rows_fn rows, int64_t size, int64_t g)
{
    struct answer a;
    ask(&a, "%s n=%d h=8/4 " WIDTHS " ring=%d backward", pattern, RANKS * SHARD, RANKS);
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
        expect_traffic(&a, rank, false, hops, sent * ROW);
        expect_traffic(&a, rank, true, back_hops, sent * ROW + seen * ROW_GRADIENT);
        expect_equal(a.problem, rank, "bytes received", stats_of(&a, rank, false)->bytes_received,
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
    ask(&a, "blocks:32;dilated=4/1 n=256 h=8/4 " WIDTHS " ring=8");
    for (int rank = 0; rank < 8; rank++) expect_traffic(&a, rank, false, 1, SHARD * ROW);
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
        ask(&a, "dilated:256/%d n=256 h=8 " WIDTHS " ring=4 backward", rate);
        for (int rank = 0; rank < 4; rank++) {
            const ra_memory *m = &a.forecast.rank[rank].memory;
            expect_equal(a.problem, rank, "travel", (int64_t)m->travel, 3 * cells * CELL);
            expect_equal(a.problem, rank, "gradient", (int64_t)m->gradient,
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
        ask(&a, "blocks:4;local=1 n=%lld h=8/4 " WIDTHS " ring=4", (long long)n);
        for (int rank = 1; rank < 3; rank++) {
            const ra_memory *m = &a.forecast.rank[rank].memory;
            expect_equal(a.problem, rank, "travel", (int64_t)m->travel, 4 * ROW + 4 * ROW);
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
        cmocka_unit_test(pairs_of_dilated),
        cmocka_unit_test(dilated_work_is_linear),
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(pairs_of_blocks),
        cmocka_unit_test(active_blocks_in_closed_form),
        cmocka_unit_test(random_blocks_have_their_density),
        cmocka_unit_test(pairs_of_bitmaps),
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
