/* SPDX-License-Identifier: Apache-2.0 */
/* test_buffers.c - the buffer pool of a rank: which plans share which buffer, what is counted, what
 * stays and what is freed; and that plans which share their buffers give the same bits as plans
 * which do not. */
#include "support/test.h"

#include <stdlib.h>

#include "core/buffers.h"
#include "support/counter.h"

/* ---- The pool alone ------------------------------------------------------------------------- */

enum { THRESHOLD = 100 };

/* Counts what it gives: whoever frees says how many bytes that was. */
struct source {
    size_t room, used;
};

static void *source_alloc(void *device, size_t bytes)
{
    struct source *source = device;
    void *memory = source->used + bytes <= source->room
                       ? ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes)
                       : NULL;
    if (memory) source->used += bytes;
    return memory;
}

static void source_free(void *device, void *memory, size_t bytes)
{
    struct source *source = device;
    source->used -= bytes;
    ra__free(memory);
}

static struct ra__buffer_source source_of(struct source *source)
{
    return (struct ra__buffer_source){ source_alloc, source_free, source };
}

static struct source plenty = { .room = SIZE_MAX };

static struct ra__buffers *make_pool(void)
{
    struct ra__buffers *pool;
    plenty.used = 0;
    assert_ok(ra__buffers_create(THRESHOLD, source_of(&plenty), &pool));
    return pool;
}

static void *take(struct ra__buffers *pool, struct ra__account *account, size_t bytes)
{
    void *memory = ra__buffers_take(pool, account, RA__FOR_TRAVEL, bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes); /* a sanitizer sees what is too short */
    return memory;
}

static ra_pool count(const struct ra__buffers *pool)
{
    ra_pool out;
    ra__buffers_count(pool, &out);
    return out;
}

static void plans_share(void **state)
{
    (void)state;
    struct ra__buffers *pool = make_pool();
    struct ra__account a = { { 0 } }, b = { { 0 } };
    void *first = take(pool, &a, 1000), *second = take(pool, &a, 1000);
    assert_ptr_not_equal(first, second); /* one plan needs both at once */
    void *other = take(pool, &b, 900);
    assert_true(other == first || other == second);
    void *another = take(pool, &b, 800);
    assert_true(another == first || another == second);
    assert_ptr_not_equal(other, another);
    ra_pool now = count(pool);
    assert_int_equal(now.buffers, 2);
    assert_int_equal(now.bytes, 2000);
    assert_int_equal(now.bytes_idle, 0);
    assert_int_equal(now.hits, 2);
    assert_int_equal(now.misses, 2);
    assert_int_equal(now.threshold, THRESHOLD);
    /* Each is charged with what it asked for. */
    assert_int_equal(a.bytes[RA__FOR_TRAVEL], 2000);
    assert_int_equal(b.bytes[RA__FOR_TRAVEL], 1700);

    ra__buffers_give(pool, &a, first);
    ra__buffers_give(pool, &a, second);
    assert_int_equal(a.bytes[RA__FOR_TRAVEL], 0);
    assert_int_equal(count(pool).bytes_idle, 0); /* b still holds them */
    ra__buffers_trim(pool);
    memset(other, 1, 900);
    ra__buffers_give(pool, &b, other);
    assert_int_equal(count(pool).bytes_idle, 1000);
    ra__buffers_give(pool, &b, another);
    ra__buffers_give(pool, &b, NULL);
    assert_int_equal(b.bytes[RA__FOR_TRAVEL], 0);
    assert_int_equal(count(pool).bytes_idle, 2000);
    assert_int_equal(count(pool).bytes, 2000);
    ra__buffers_trim(pool);
    assert_int_equal(count(pool).buffers, 0);
    ra__buffers_destroy(pool);
    ra__buffers_destroy(NULL);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void the_smallest_that_fits(void **state)
{
    (void)state;
    struct ra__buffers *pool = make_pool();
    struct ra__account a = { { 0 } }, b = { { 0 } };
    void *large = take(pool, &a, 4000), *small = take(pool, &a, 1000),
         *middle = take(pool, &a, 2000);
    assert_ptr_equal(take(pool, &b, 1500), middle);
    assert_ptr_equal(take(pool, &b, 1000), small);
    assert_ptr_equal(take(pool, &b, 1000), large); /* four times too large is still a fit */
    assert_int_equal(count(pool).misses, 3);
    struct ra__account c = { { 0 } };
    take(pool, &c, 249); /* even the smallest is more than that: it stays for others */
    assert_int_equal(count(pool).misses, 4);
    assert_ptr_equal(take(pool, &c, 250), small);
    void *new = take(pool, &c, 4001);
    assert_true(new != large &&count(pool).misses == 5);
    struct ra__account *all[] = { &a, &b, &c };
    void *held[] = { large, small, middle, new };
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) ra__buffers_give(pool, all[i], held[j]);
    assert_int_equal(count(pool).bytes, 4000 + 1000 + 2000 + 249 + 4001);
    assert_int_equal(count(pool).bytes_idle, 4000 + 1000 + 2000 + 4001);
    assert_int_equal(c.bytes[RA__FOR_TRAVEL], 249);
    /* The one that was not given back is found by asking for it. */
    struct ra__account d = { { 0 } };
    void *last = take(pool, &d, 249);
    ra__buffers_give(pool, &d, last);
    ra__buffers_give(pool, &c, last);
    ra__buffers_destroy(pool);
    assert_int_equal(plenty.used, 0);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void small_ones_are_not_shared(void **state)
{
    (void)state;
    struct ra__buffers *pool = make_pool();
    struct ra__account a = { { 0 } }, b = { { 0 } };
    void *mine = take(pool, &a, THRESHOLD - 1), *yours = take(pool, &b, THRESHOLD - 1);
    assert_ptr_not_equal(mine, yours);
    assert_int_equal(count(pool).buffers + count(pool).misses, 0);
    assert_int_equal(a.bytes[RA__FOR_TRAVEL], THRESHOLD - 1);
    ra__buffers_give(pool, &a, mine);
    ra__buffers_give(pool, &b, yours);
    assert_int_equal(a.bytes[RA__FOR_TRAVEL], 0);
    take(pool, &a, THRESHOLD); /* exactly so many are */
    assert_int_equal(count(pool).misses, 1);
    struct ra__account c = { { 0 } };
    void *memory = take(pool, &c, THRESHOLD);
    ra__buffers_give(pool, &a, memory);
    ra__buffers_give(pool, &c, memory);
    ra__buffers_destroy(pool);
    assert_int_equal(plenty.used, 0);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void without_memory(void **state)
{
    (void)state;
    struct counter counter;
    counter_install(&counter);
    struct ra__buffers *pool = NULL;
    atomic_store(&counter.left, 0);
    assert_fails(RA_ERR_MEMORY, "pool: ", ra__buffers_create(THRESHOLD, source_of(&plenty), &pool));
    atomic_store(&counter.left, -1);
    pool = make_pool();
    struct ra__account a = { { 0 } };
    size_t before = ra_allocated_bytes();
    for (int calls = 0; calls < 3; calls++) { /* the lease, the entry, the memory */
        atomic_store(&counter.left, calls);
        assert_null(ra__buffers_take(pool, &a, RA__FOR_TRAVEL, 1000));
        assert_int_equal(ra_allocated_bytes(), before);
        assert_int_equal(a.bytes[RA__FOR_TRAVEL] + (size_t)count(pool).misses, 0);
    }
    atomic_store(&counter.left, -1);
    ra__buffers_destroy(pool);
    counter_remove(&counter);
}

/* A source with room for 1000 bytes: an idle buffer makes way for one that is needed. */
static void idle_buffers_make_room(void **state)
{
    (void)state;
    struct ra__buffers *pool;
    struct ra__account a = { { 0 } };
    struct source tight = { .room = 1000 };
    assert_ok(ra__buffers_create(THRESHOLD, source_of(&tight), &pool));
    void *old = ra__buffers_take(pool, &a, RA__FOR_STATE, 600);
    assert_non_null(old);
    assert_null(ra__buffers_take(pool, &a, RA__FOR_STATE, 700)); /* in use: it stays */
    ra__buffers_give(pool, &a, old);
    void *new = ra__buffers_take(pool, &a, RA__FOR_STATE, 700);
    assert_non_null(new);
    assert_int_equal(count(pool).buffers, 1);
    ra__buffers_give(pool, &a, new);
    ra__buffers_destroy(pool);
    assert_int_equal(tight.used, 0);
}

/* ---- The pool of a group -------------------------------------------------------------------- */

enum { RANKS = 3, TOKENS = 60, HEADS = 2, DIM = 8, FLOATS = TOKENS * HEADS * DIM };

struct job {
    const char *strategy;
    float result[RANKS][2][4][FLOATS]; /* by rank and plan: out, dq, dk, dv */
};

static ra_status make_plan(ra_group *group, const char *text, const char *strategy, ra_plan **plan)
{
    ra_pattern *pattern;
    ra_status status = ra_pattern_parse(text, &pattern);
    if (status != RA_OK) return status;
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = strategy;
    options.backward = 1;
    status = ra_plan_create(group, &problem, &options, plan);
    ra_pattern_destroy(pattern);
    return status;
}

static ra_status run_plan(ra_plan *plan, int rank, float lse[TOKENS * HEADS], bool backward,
                          float result[4][FLOATS])
{
    float in[FLOATS];
    for (int i = 0; i < FLOATS; i++) in[i] = (float)((i * 37 + rank * 11) % 101) / 50.0f - 1.0f;
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(in);
    args.out = ra_tensor_packed(result[0]);
    args.lse = lse;
    if (!backward) return ra_attend(plan, &args);
    ra_gradient_args back = ra_gradient_args_default();
    back.q = back.k = back.v = back.dout = ra_const_tensor_packed(in);
    back.out = ra_tensor_read(args.out);
    back.lse = lse;
    back.dq = ra_tensor_packed(result[1]);
    back.dk = ra_tensor_packed(result[2]);
    back.dv = ra_tensor_packed(result[3]);
    return ra_gradient(plan, &back);
}

/* Two plans, their forwards and backwards interleaved. */
static ra_status take_turns(ra_group *group, void *context)
{
    struct job *job = context;
    int rank = ra_group_rank(group);
    float lse[2][TOKENS * HEADS];
    static const char *const patterns[] = { "causal", "window:20,5" };
    ra_plan *plans[2] = { NULL, NULL };
    ra_status status = RA_OK;
    for (int i = 0; i < 2 && status == RA_OK; i++)
        status = make_plan(group, patterns[i], job->strategy, &plans[i]);
    for (int i = 0; i < 8 && status == RA_OK; i++)
        status = run_plan(plans[i % 2], rank, lse[i % 2], i % 4 > 1, job->result[rank][i % 2]);
    for (int i = 0; i < 2; i++) ra_plan_destroy(plans[i]);
    return status;
}

static void run_job(struct job *job, size_t threshold, ra_pool *pool)
{
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.pool_threshold = threshold;
    options.threads = 2;
    assert_ok(ra_group_create_local(RANKS, &options, groups));
    assert_ok(ra_group_run(groups, RANKS, take_turns, job));
    *pool = ra_pool_default();
    assert_ok(ra_group_pool(groups[1], pool));
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void shared_buffers_change_no_bit(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather", "ulysses" };
    static struct job alone, shared;
    for (int s = 0; s < 3; s++) {
        ra_pool none, one;
        memset(&alone, 0, sizeof alone);
        memset(&shared, 0, sizeof shared);
        alone.strategy = shared.strategy = strategies[s];
        run_job(&alone, SIZE_MAX, &none);
        run_job(&shared, 1, &one);
        assert_memory_equal(alone.result, shared.result, sizeof alone.result);
        assert_int_equal(none.buffers + none.hits + none.misses, 0);
        assert_true(one.hits > 0 && one.misses > 0 && one.bytes == one.bytes_idle);
    }
}

/* Ten plans of one shape cost as much as one. */
static void ten_plans_cost_as_one(void **state)
{
    (void)state;
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.pool_threshold = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plans[10];
    ra_pool first = ra_pool_default(), last = ra_pool_default();
    ra_memory memory[2] = { ra_memory_default(), ra_memory_default() };
    for (int i = 0; i < 10; i++) {
        assert_ok(make_plan(group, "causal", "ring", &plans[i]));
        if (i == 0) assert_ok(ra_group_pool(group, &first));
    }
    assert_ok(ra_group_pool(group, &last));
    assert_int_equal(last.bytes, first.bytes);
    assert_int_equal(last.hits, 9 * first.misses);
    assert_int_equal(last.bytes_idle, 0);
    /* And each says what it would need if it were alone. */
    assert_ok(ra_plan_memory(plans[0], &memory[0]));
    assert_ok(ra_plan_memory(plans[9], &memory[1]));
    assert_memory_equal(&memory[0], &memory[1], sizeof memory[0]);
    for (int i = 0; i < 10; i++) ra_plan_destroy(plans[i]);
    assert_ok(ra_group_pool(group, &last));
    assert_true(last.bytes_idle == last.bytes && last.bytes > 0);
    size_t held = ra_allocated_bytes();
    assert_ok(ra_group_trim(group));
    assert_true(ra_allocated_bytes() <= held - last.bytes);
    assert_ok(ra_group_pool(group, &last));
    assert_int_equal(last.buffers + (int64_t)last.bytes, 0);
    ra_group_destroy(group);
}

static void the_threshold_has_a_default(void **state)
{
    (void)state;
    ra_group *group;
    ra_pool pool = ra_pool_default();
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_ok(ra_group_pool(group, &pool));
    assert_int_equal(pool.threshold, 16 << 20);
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_group_pool(group, NULL));
    pool.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_group_pool(group, &pool));
    pool.size = sizeof pool;
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_group_pool(NULL, &pool));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_group_trim(NULL));
    ra_group_destroy(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_share),
        cmocka_unit_test(the_smallest_that_fits),
        cmocka_unit_test(small_ones_are_not_shared),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(idle_buffers_make_room),
        cmocka_unit_test(shared_buffers_change_no_bit),
        cmocka_unit_test(ten_plans_cost_as_one),
        cmocka_unit_test(the_threshold_has_a_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
