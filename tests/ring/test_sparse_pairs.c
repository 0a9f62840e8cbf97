/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse_pairs.c - the work of dilated and blocks patterns: pairs and density against
 * formulas written here. Nothing is asked of the library but its forecast. */
#include "support/ask.h"

#include "harness/base/philox.h"

/* ---- Dilated --------------------------------------------------------------------------------- */

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
                    answer_open(&a, "dilated:%d/%d%s%s%s n=%d nk=%d h=%s d=4 b=2 ring=%d zigzag",
                                (int)b[0].segment, (int)b[0].rate, more, options[way / 2],
                                causal ? ";causal" : "", dilated_lengths[l][0],
                                dilated_lengths[l][1], dilated_heads[(i + l + way) % 3],
                                1 + (l + way) % 5);
                    int64_t want = 0;
                    for (int64_t h = 0; h < a.trial.q_heads && way / 2 == 0; h++)
                        for (int n = 0; n < count; n++)
                            want += branch_pairs(b[n], h, a.trial.q_len, a.trial.k_len, causal);
                    if (way / 2) want = option_pairs(b, count, &a.trial, way / 2, causal);
                    answer_expect_pairs(&a, 2 * want);
                    answer_close(&a);
                }
}

/* LongNet's own figure: with w and r growing alike, a branch costs n w / r^2 pairs per head. */
static void dilated_work_is_linear(void **state)
{
    (void)state;
    for (int64_t n = 4096; n <= (int64_t)1 << 20; n *= 16) {
        struct answer a;
        answer_open(&a, "dilated:1024/1,2048/2,4096/4 n=%lld h=4 d=64 ring=4", (long long)n);
        answer_expect_pairs(&a, 4 * (n * 1024 + n * 512 + n * 256));
        answer_close(&a);
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

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
    return i == j || (double)philox_word(7, counter, 0) < 0.3 * 4294967296.0;
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
                answer_open(&a, "blocks:%d;%s%s n=%d nk=%d h=4/2 d=4 ring=%d striped",
                            (int)sizes[b], terms[i].text, causal ? ";causal" : "", shapes[s / 2][0],
                            shapes[s / 2][1], 1 + (i + s) % 5);
                answer_expect_pairs(&a, block_pairs(&terms[i], sizes[b], &a.trial, causal));
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
    answer_open(&a, "blocks:4;%s n=%d h=2 d=4 ring=3", term, (int)(4 * m));
    answer_expect_pairs(&a, 2 * 16 * active);
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
        answer_open(&a, "blocks:4;random=%g;seed=11 n=256 h=4 d=4", share);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_dilated),
        cmocka_unit_test(dilated_work_is_linear),
        cmocka_unit_test(pairs_of_blocks),
        cmocka_unit_test(active_blocks_in_closed_form),
        cmocka_unit_test(random_blocks_have_their_density),
        cmocka_unit_test(pairs_of_bitmaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
