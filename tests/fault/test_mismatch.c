/* test_mismatch.c - ranks that were given different problems say so before the first key is sent,
 * and name the rank and what differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/crew.h"

/* One way in which a rank's problem differs: what it changes, and what the sentence calls it. */
struct difference {
    const char *field;
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
static void nothing(struct crew_rank *r) { (void)r; }

static const struct difference differences[] = {
    { .field = "dtype", .change = dtype },
    { .field = "batch", .change = batch },
    { .field = "number of queries", .change = queries },
    { .field = "number of keys", .change = keys },
    { .field = "query heads", .change = query_heads },
    { .field = "KV heads", .change = kv_heads },
    { .field = "dim", .change = dim },
    { .field = "value dim", .change = value_dim },
    { .field = "scale", .change = scale },
    { .field = "partition", .change = zigzag },
    { .field = "partition", .change = striped },
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
    { .field = "softcap", .change = softcap },
    { .field = "ALiBi slopes", .change = alibi },
    { .field = "dropout rate", .change = dropout },
    { .field = "order", .change = nothing, .order = "shuffled:7" },
    { .field = "order", .change = nothing, .order = "hilbert", .pattern = "dilated:8/2" },
    { .field = "pattern", .change = nothing, .pattern = "dilated:8/2", .other = "dilated:8/1" },
    { .field = "pattern", .change = nothing, .pattern = "dilated:8/2", .other = "dilated:9/2" },
    { .field = "pattern",
      .change = nothing,
      .pattern = "dilated:8/2",
      .other = "dilated:8/2;dedup" },
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

/* At least one rank found it; the others found it too, or heard of it. */
static void expect_told(const struct crew *crew, const struct difference *difference)
{
    char words[64];
    int found = 0;
    snprintf(words, sizeof words, " was given another %s (", difference->field);
    for (int rank = 0; rank < crew->is.ranks; rank++) {
        const struct crew_rank *r = &crew->at[rank];
        char self[32];
        snprintf(self, sizeof self, "rank %d, hop 0: ", rank);
        if (r->status != RA_ERR_MISMATCH && r->status != RA_ERR_PEER)
            crew_fail(crew, "wrong status");
        if (strncmp(r->sentence, self, strlen(self)))
            crew_fail(crew, "a sentence names not its rank");
        if (!strstr(r->sentence, words)) crew_fail(crew, words);
        found += r->status == RA_ERR_MISMATCH;
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
    expect_told(&crew, difference);
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
