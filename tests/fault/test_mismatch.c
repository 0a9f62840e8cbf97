/* SPDX-License-Identifier: Apache-2.0 */
/* test_mismatch.c - ranks that were given different problems say so before the first key is sent,
 * and name the rank and what differs, as people write it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/crew.h"

/* One way in which a rank's problem differs: what it changes, what the sentence calls it, and how
 * the sentence ends, as one of the others says it and as this rank does; NULL: with the pattern or
 * strategy of who says it. */
struct difference {
    const char *field;
    const char *ends[2];
    void (*change)(struct crew_rank *rank);
    const char *pattern; /* of the others; NULL = full */
    const char *other;   /* of this rank; NULL = the same */
    const char *order;   /* of this rank; NULL = sequential, as the others */
};

static void dtype(struct crew_rank *r) { r->problem.dtype = RA_BF16; }
static void batch(struct crew_rank *r) { r->problem.batch = 2; }
static void queries(struct crew_rank *r) { r->problem.q_len--; }
static void keys(struct crew_rank *r) { r->problem.k_len++; }
static void query_heads(struct crew_rank *r) { r->problem.q_heads *= 2; }
static void kv_heads(struct crew_rank *r) { r->problem.kv_heads /= 2; }
static void dim(struct crew_rank *r) { r->problem.dim *= 2; }
static void value_dim(struct crew_rank *r) { r->problem.value_dim *= 2; }
static void scale(struct crew_rank *r) { r->problem.scale = 0.5f; }
static void next_scale(struct crew_rank *r) { r->problem.scale = 0.35355341f; } /* by one bit */
static void zigzag(struct crew_rank *r) { r->options.partition = "zigzag"; }
static void striped(struct crew_rank *r) { r->options.partition = "striped"; }
static void strategy(struct crew_rank *r)
{
    const char *now = r->options.strategy;
    r->options.strategy = now && !strcmp(now, "allgather") ? "ring" : "allgather";
}
static void softcap(struct crew_rank *r) { r->problem.softcap = 30.0f; }
static void dropout(struct crew_rank *r) { r->problem.dropout = 0.1; }
static void alibi(struct crew_rank *r)
{
    static const float slopes[8] = { 0.5f, 0.25f };
    r->problem.alibi = slopes;
}
static void query_offset(struct crew_rank *r) { r->problem.query_offset = -3; }
static void sequences(struct crew_rank *r)
{
    static const ra_sequence two[] = { { 0, 20, 0, 20 }, { 20, 17, 20, 17 } };
    r->problem.sequences = two;
    r->problem.sequence_count = 2;
}
static void nothing(struct crew_rank *r) { (void)r; }

/* Both values, or only which side has none. */
#define BOTH(theirs, own)                                                                          \
    {                                                                                              \
        " (" theirs " here, " own " there)", " (" own " here, " theirs " there)"                   \
    }
#define NONE                                                                                       \
    {                                                                                              \
        " (none here)", " (none there)"                                                            \
    }

static const struct difference differences[] = {
    { .field = "dtype", .ends = BOTH("f32", "bf16"), .change = dtype },
    { .field = "batch", .ends = BOTH("1", "2"), .change = batch },
    { .field = "number of queries", .ends = BOTH("37", "36"), .change = queries },
    { .field = "number of keys", .ends = BOTH("37", "38"), .change = keys },
    { .field = "query offset", .ends = BOTH("0", "-3"), .change = query_offset },
    { .field = "list of sequences", .ends = NONE, .change = sequences },
    { .field = "query heads", .ends = BOTH("2", "4"), .change = query_heads },
    { .field = "KV heads", .ends = BOTH("2", "1"), .change = kv_heads },
    { .field = "dim", .ends = BOTH("8", "16"), .change = dim },
    { .field = "value dim", .ends = BOTH("8", "16"), .change = value_dim },
    { .field = "scale", .ends = BOTH("0.353553", "0.5"), .change = scale },
    { .field = "scale", .ends = BOTH("0.35355338", "0.35355341"), .change = next_scale },
    { .field = "partition", .ends = { "", "" }, .change = zigzag },
    { .field = "partition", .ends = { "", "" }, .change = striped },
    { .field = "strategy", .change = strategy },
    { .field = "pattern", .change = nothing, .other = "causal" },
    { .field = "pattern", .change = nothing, .other = "full;causal" },
    { .field = "pattern", .change = nothing, .pattern = "window:5", .other = "window:6" },
    { .field = "pattern", .change = nothing, .pattern = "window:5", .other = "window:5,1" },
    { .field = "pattern", .change = nothing, .pattern = "prefix:5", .other = "prefix:4" },
    { .field = "pattern", .change = nothing, .other = "full;docs=0,37" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "full;docs=0,5,37",
      .other = "full;docs=0,6,37" },
    { .field = "softcap", .ends = BOTH("0", "30"), .change = softcap },
    { .field = "ALiBi slopes", .ends = NONE, .change = alibi },
    { .field = "dropout rate", .ends = BOTH("0", "0.1"), .change = dropout },
    { .field = "order", .ends = NONE, .change = nothing, .order = "shuffled:7" },
    { .field = "order",
      .ends = NONE,
      .change = nothing,
      .order = "hilbert",
      .pattern = "dilated:8/2" },
    { .field = "pattern", .change = nothing, .pattern = "dilated:8/2", .other = "dilated:8/1" },
    { .field = "pattern", .change = nothing, .pattern = "dilated:8/2", .other = "dilated:9/2" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "dilated:8/2",
      .other = "dilated:8/2;dedup" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "dilated:8/2",
      .other = "dilated:8/2;offsets=block" },
    { .field = "pattern", .change = nothing, .pattern = "dilated:8/2", .other = "dilated:8/2,8/2" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "blocks:4;local=1",
      .other = "blocks:4;local=1;global=0" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "blocks:4;random=0.2",
      .other = "blocks:4;random=0.2;seed=1" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "blocks:4;random=0.2",
      .other = "blocks:4;random=0.25" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "blocks:4;levels=2/1,4/3",
      .other = "blocks:4;levels=4/3,2/2" },
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* How a rank ends its sentence. */
enum { WORDS = 200 };
static void write_end(const struct crew_rank *rank, const struct difference *difference, bool odd,
                      char words[WORDS])
{
    const char *others = difference->pattern ? difference->pattern : "full";
    const char *own = !strcmp(difference->field, "strategy") ? rank->options.strategy
                      : odd                                  ? difference->other
                                                             : others;
    int length = snprintf(words, WORDS, " was given another %s", difference->field);
    size_t room = WORDS - (size_t)length;
    if (difference->ends[odd]) snprintf(words + length, room, "%s", difference->ends[odd]);
    else snprintf(words + length, room, " (%s here)", own);
}

/* At least one rank found it; the others found it too, or heard of it. */
static void expect_told(const struct crew *crew, const struct difference *difference, int odd)
{
    char words[2][WORDS];
    int found = 0;
    write_end(&crew->at[odd == 0], difference, false, words[0]);
    write_end(&crew->at[odd], difference, true, words[1]);
    for (int rank = 0; rank < crew->is.ranks; rank++) {
        const struct crew_rank *r = &crew->at[rank];
        char self[32];
        snprintf(self, sizeof self, "rank %d, hop 0: ", rank);
        if (r->status != RA_ERR_MISMATCH && r->status != RA_ERR_PEER)
            crew_fail(crew, "wrong status");
        if (strncmp(r->sentence, self, strlen(self)))
            crew_fail(crew, "a sentence names not its rank");
        bool finder = r->status == RA_ERR_MISMATCH;
        if (!ends_with(r->sentence, words[rank == odd]) &&
            (finder || !ends_with(r->sentence, words[rank != odd])))
            crew_fail(crew, words[rank == odd]);
        found += finder;
    }
    if (found == 0) crew_fail(crew, "nobody found the difference");
}

static void expect_difference_is_told(const struct difference *difference, const char *strategy,
                                      int odd)
{
    struct crew crew;
    ra_group_options options = ra_group_options_default();
    options.timeout = 60;
    options.threads = 1;
    crew_open(&crew, &(struct crew_case){ .pattern = difference->pattern, .strategy = strategy },
              &options);
    crew.patience = 3;
    ra_pattern *other = NULL;
    if (difference->other) {
        assert_int_equal(ra_pattern_parse(difference->other, &other), RA_OK);
        crew.at[odd].problem.pattern = other;
    }
    ra_order *order = NULL;
    if (difference->order) {
        assert_int_equal(ra_order_parse(difference->order, crew.is.q_len, &order), RA_OK);
        crew.at[odd].problem.order = order;
    }
    difference->change(&crew.at[odd]);
    crew_run(&crew);
    ra_pattern_destroy(other);
    ra_order_destroy(order);
    expect_told(&crew, difference, odd);
    crew_close(&crew);
}

static void each_difference_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        for (int odd = 0; odd < 3; odd++) {
            expect_difference_is_told(&differences[i], "ring", odd);
            expect_difference_is_told(&differences[i], "allgather", odd);
        }
}

/* The kernel and the number of threads may differ: results do not depend on them beyond rounding.
 */
static void kernels_and_threads_may_differ(void **state)
{
    (void)state;
    struct crew crew;
    ra_group_options options = ra_group_options_default();
    options.timeout = 60;
    crew_open(&crew, &(struct crew_case){ 0 }, &options);
    crew.at[1].options.kernel = "scalar";
    crew_run(&crew);
    crew_expect_ok(&crew);
    crew_close(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_difference_is_told),
        cmocka_unit_test(kernels_and_threads_may_differ),
    };
    crew_watchdog(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
