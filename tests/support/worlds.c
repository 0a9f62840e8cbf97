/* SPDX-License-Identifier: Apache-2.0 */
/* worlds.c - see worlds.h. */
#include "support/worlds.h"

struct seen seen;

/* Kept from one world to the next, for many have the same. */
static void find_seen(const struct world *w, const ra_problem *problem, const char *text)
{
    char key[300];
    uint8_t row[MOST_N];
    snprintf(key, sizeof key, "%.200s %d %d %d %s", text, (int)w->n, (int)w->k_len, w->q_heads,
             w->order ? w->order : "-");
    if (!strcmp(key, seen.text)) return;
    snprintf(seen.text, sizeof seen.text, "%s", key);
    for (int64_t i = 0; i < w->k_len; i++) seen.origin[i] = i;
    if (problem->order) assert_ok(ra_order_positions(problem->order, seen.origin));
    for (int head = 0; head < w->q_heads; head++)
        for (int64_t query = 0; query < w->n; query++) {
            int64_t original = problem->order ? seen.origin[query] : query;
            assert_ok(ra_problem_row(problem, head, original, row));
            for (int64_t key_index = 0; key_index < w->k_len; key_index++)
                seen.count[head][query][key_index] = row[seen.origin[key_index]];
        }
}

/* The same plan for a device that reaches less. */
static void build_steps(struct world *w, int rank)
{
    struct ra__plan_input input = w->plan[rank]->programs.caller;
    input.lends = w->reach == LENDS;
    input.loads = w->reach >= LOADS;
    input.stages = w->reach == LOADS_AND_STAGES;
    assert_ok(ra__plan_build(&input, &w->account, &w->steps[rank]));
}

void world_open(struct world *w, const char *text, int ranks, const char *partition,
                const char *strategy)
{
    static const char *const devices[] = { "", " lends", " loads", " loads, stages" };
    ra_pattern *pattern;
    ra_order *order = NULL;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    if (!w->q_heads) w->q_heads = 2;
    if (!w->kv_heads) w->kv_heads = w->q_heads;
    snprintf(w->text, sizeof w->text, "%.80s n=%d nk=%d h=%d/%d ring=%d %s %s%s%s%s", text,
             (int)w->n, (int)w->k_len, w->q_heads, w->kv_heads, ranks, partition, strategy,
             w->order ? " order=" : "", w->order ? w->order : "", devices[w->reach]);
    w->ranks = ranks;
    assert_ok(ra_pattern_parse(text, &pattern));
    if (w->order) assert_ok(ra_order_parse(w->order, w->n, &order));
    problem.pattern = pattern;
    problem.order = order;
    problem.batch = 2;
    problem.q_len = w->n;
    problem.k_len = w->k_len;
    problem.q_heads = w->q_heads;
    problem.kv_heads = w->kv_heads;
    problem.dim = 2;
    problem.value_dim = 3;
    options.ranks = ranks;
    options.partition = partition;
    options.strategy = strategy;
    options.kernel = "scalar"; /* asking the CPU what it can do takes longer than the plan */
    options.backward = 1;
    for (options.rank = 0; options.rank < ranks; options.rank++) {
        assert_ok(ra_plan_create(NULL, &problem, &options, &w->plan[options.rank]));
        build_steps(w, options.rank);
    }
    if (!w->unseen) find_seen(w, &problem, text);
    ra_order_destroy(order);
    ra_pattern_destroy(pattern);
}

void world_close(struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++) {
        ra__plan_clear(&w->steps[rank]);
        ra_plan_destroy(w->plan[rank]);
    }
    w->reach = (w->reach + 1) % REACHES;
}

const struct ra__program *program_of(const struct world *w, int rank, bool backward)
{
    return backward ? &w->steps[rank].backward : &w->steps[rank].forward;
}

const char *direction(bool backward) { return backward ? "backward" : "forward"; }

static const struct shape {
    int64_t n;
    int q_heads, kv_heads;
} shapes[] = { { 37, 4, 2 }, { 23, 6, 3 }, { 64, 3, 1 }, { 41, 12, 4 }, { 37, 5, 5 } };

/* What stands behind the samples, with documents of n positions; and the order. */
static const struct modifier {
    const char *text, *order;
    bool documents;
} modifiers[] = {
    { "", NULL, false },
    { ";causal", NULL, false },
    { ";docs=0,0,3,17,17", NULL, true },
    { ";causal;docs=0,19", NULL, true },
    { "", "hilbert", false },
    { ";causal;docs=0,9", "hilbert", true },
};

void each_way(struct world *w, const char *text, bool perdoc, void (*check)(const struct world *w))
{
    static int turn;
    const int every = test_slow() ? 11 : 5; /* shares no factor with the length of a list */
    ra_part partition, strategy;
    char cut[64];
    for (int p = 0; walk_part("partition", p / 2, &partition); p++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                int ranks = walk_ranks[r];
                if (p % 2 && !perdoc) continue;                    /* ;perdoc needs documents */
                if (!test_long() && turn++ % every >= 2) continue; /* each now and then */
                snprintf(cut, sizeof cut, "%s%s", partition.name, p % 2 ? ";perdoc" : "");
                world_open(w, text, ranks, cut, strategy.name);
                check(w);
                world_close(w);
            }
}

void each_world(void (*check)(const struct world *w))
{
    char sample[64], text[160];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int s = 0; s < TEST_COUNT(shapes); s++) {
                if (s != (i + m) % TEST_COUNT(shapes) && !test_long()) continue;
                const struct modifier *modifier = &modifiers[m];
                struct world w = { .n = shapes[s].n,
                                   .k_len = shapes[s].n,
                                   .q_heads = shapes[s].q_heads,
                                   .kv_heads = shapes[s].kv_heads,
                                   .order = modifier->order };
                int used = snprintf(text, sizeof text, "%s%s", sample, modifier->text);
                if (modifier->documents)
                    snprintf(text + used, sizeof text - (size_t)used, ",%d", (int)w.n);
                each_way(&w, text, modifier->documents && !modifier->order, check);
            }
}

/* ---- At the borders -------------------------------------------------------------------------- */

/* More runs than ranges: rows travel for nothing, but the result is whole. */
static void many_documents_keep_messages_few(void (*check)(const struct world *w))
{
    struct world w = { .n = 120, .k_len = 120 };
    char text[400] = "full;docs=0";
    for (int i = 1; i <= 40; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, ",%d", 3 * i);
    }
    world_open(&w, text, 4, "striped", "ring");
    check(&w);
    world_close(&w);
}

/* Queries that see nothing, keys that nobody sees, and lengths of their own on each side. */
static void other_numbers_of_keys(void (*check)(const struct world *w))
{
    static const int64_t lengths[][2] = {
        { 37, 11 }, { 11, 37 }, { 1, 20 }, { 20, 1 }, { 16, 50 }
    };
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int k = 0; k < TEST_COUNT(lengths); k++) {
            ra_pattern *pattern;
            struct world w = { .n = lengths[k][0],
                               .k_len = lengths[k][1],
                               .q_heads = shapes[(i + k) % TEST_COUNT(shapes)].q_heads,
                               .kv_heads = shapes[(i + k) % TEST_COUNT(shapes)].kv_heads };
            assert_ok(ra_pattern_parse(sample, &pattern));
            if (w.n <= w.k_len || pattern->kind->any_position) each_way(&w, sample, false, check);
            ra_pattern_destroy(pattern);
        }
}

/* Lengths at which ranks have nothing, blocks and segments end early, and one that is prime. */
static void few_positions(void (*check)(const struct world *w))
{
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int64_t n = 1; n <= 13; n += n < 3 ? 1 : 5) {
            struct world w = { .n = n, .k_len = n, .q_heads = 4, .kv_heads = 2 };
            each_way(&w, sample, false, check);
        }
}

/* Rates and strides that do not divide one another, segments that repeat often, and unions. */
static void odd_rates_and_strides(void (*check)(const struct world *w))
{
    static const char *const texts[] = {
        "dilated:4/1,8/2",
        "dilated:7/3,11/5,30/2",
        "dilated:4/6,9/4,10/10;dedup",
        "dilated:13/5,8/3;groups;causal",
        "dilated:2/1,3/2,5/3,7/4",
        "dilated:3/1,6/3",
        "dilated:1/1",
        "blocks:3;levels=2/1,3/2,5/4",
        "blocks:2;strided=3;local=1;random=0.2;seed=5",
        "blocks:1;dilated=3/4;global=2",
        "blocks:1;random=0.4;seed=9;causal",
        "blocks:100;local=0",
    };
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        const struct shape *shape = &shapes[2 + i % 3];
        struct world w = {
            .n = shape->n, .k_len = shape->n, .q_heads = shape->q_heads, .kv_heads = shape->kv_heads
        };
        each_way(&w, texts[i], false, check);
    }
}

/* Numbers as large as a text may hold: no product of two of them fits. */
static void the_largest_numbers(void (*check)(const struct world *w))
{
#define LARGEST "2305843009213693951"
    static const char *const texts[] = {
        "window:" LARGEST "," LARGEST,
        "prefix:" LARGEST,
        "dilated:8/" LARGEST ",8/3",
        "dilated:" LARGEST "/3,5/" LARGEST ",7/2",
        "dilated:" LARGEST "/" LARGEST ";dedup",
        "dilated:" LARGEST "/2305843009213693950," LARGEST "/" LARGEST ",9/7;dedup",
        "dilated:6/2305843009213693950,9/" LARGEST ";groups;causal",
        "blocks:" LARGEST ";local=" LARGEST,
        "blocks:" LARGEST ";strided=" LARGEST ";levels=" LARGEST "/" LARGEST,
        "blocks:4;dilated=" LARGEST "/" LARGEST ";strided=" LARGEST,
        "blocks:4;dilated=2/" LARGEST ";levels=3/" LARGEST "," LARGEST "/1;causal",
        "blocks:4;dilated=" LARGEST "/2;global=" LARGEST,
        "blocks:4;random=0.3;seed=" LARGEST ";levels=2305843009213693950/1," LARGEST "/2",
    };
#undef LARGEST
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        struct world w = { .n = 40, .k_len = 40, .q_heads = 6, .kv_heads = 2 };
        each_way(&w, texts[i], false, check);
    }
}

void each_odd_world(void (*check)(const struct world *w))
{
    many_documents_keep_messages_few(check);
    other_numbers_of_keys(check);
    few_positions(check);
    odd_rates_and_strides(check);
    the_largest_numbers(check);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

int64_t position_of(const ra_layout *layout, int rank, int64_t row)
{
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        if (row >= run->token && row < run->token + run->at.count)
            return run->at.start + (row - run->token) * run->at.step;
    }
    fail_msg("rank %d has no row %d", rank, (int)row);
    return -1;
}

void each_query(const struct world *w, const struct ra__plan *plan, const struct ra__program *p,
                const struct ra__plan_row *row, query_fn visit, void *context)
{
    const ra_layout *layout = plan->input.q_layout;
    assert_true(row->repeat >= 1 && row->q_count >= 1 && row->heads.count >= 1);
    for (int64_t n = 0; n < row->repeat; n++)
        for (int64_t i = 0; i < row->q_count; i++) {
            int64_t shard_row = row->q_token + n * row->q_token_advance + i * row->q_token_step;
            struct look look = { plan, p, row, n, shard_row, 0, 0 };
            look.position = row->q_pos + n * row->q_pos_advance + i * row->q_step;
            look.query = look.position - w->k_len + w->n;
            if (position_of(layout, plan->input.rank, shard_row) != look.query)
                fail_msg("%s: rank %d: query %d is not in row %d", w->text, plan->input.rank,
                         (int)look.query, (int)shard_row);
            visit(&look, context);
        }
}

void each_key(const struct look *look, pair_fn visit, void *context)
{
    const struct ra__problem_terms *terms = look->plan->input.terms;
    for (int k = 0; k < look->row->key_count; k++) {
        int index = look->row->first_key + k;
        struct ra__key_run run = ra__key_run_at(&look->program->keys[index],
                                                &look->program->advances[index], look->repeat);
        int64_t lo, hi;
        ra__band_clip(&run, look->position, &lo, &hi);
        for (int64_t j = lo; j < hi; j++) {
            int64_t key = run.pos + j * run.pos_step;
            int32_t origin = terms->see_from ? terms->origin[key] : 0;
            if (terms->see_from && (origin < terms->see_from[look->position] ||
                                    origin >= terms->see_to[look->position]))
                continue;
            visit(look, key, run.token + j * run.token_step, context);
        }
    }
}

int head_at(const struct ra__plan_row *row, int64_t index)
{
    return (int)(row->heads.start + index * row->heads.step);
}

int head_of(const struct look *look, int64_t index)
{
    return look->plan->input.first_head + head_at(look->row, index);
}
