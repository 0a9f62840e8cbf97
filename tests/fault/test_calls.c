/* SPDX-License-Identifier: Apache-2.0 */
/* test_calls.c - ranks that call the library in different ways: one whose arguments are refused,
 * and ranks that run different plans. No rank may wait for ever, and none may get a result. */
#include "support/test.h"

#include <pthread.h>

#include "core/clock.h"

enum { RANKS = 2, TOKENS = 12, ROWS = TOKENS / RANKS, DIM = 4, FLOATS = ROWS * DIM };

struct scene {
    bool refuse_rank_1; /* gives rank 1 no output to write to */
    bool cross_plans;   /* after a run of each, the ranks run different plans */
    bool cross_directions;
    pthread_barrier_t ready;
    ra_status before[RANKS], status[RANKS]; /* up to the call that matters, and of that call */
    double seconds[RANKS];
    char sentence[RANKS][256];
};

static ra_status make_plan(ra_group *group, float scale, ra_plan **plan)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = TOKENS;
    problem.q_heads = 1;
    problem.dim = DIM;
    problem.scale = scale;
    ra_plan_options options = ra_plan_options_default();
    options.backward = 1;
    return ra_plan_create(group, &problem, &options, plan);
}

static ra_status attend(ra_plan *plan, float *memory, bool refused)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(memory);
    args.out = ra_tensor_packed(refused ? NULL : memory + FLOATS);
    args.lse = memory + 2 * FLOATS;
    return ra_attend(plan, &args);
}

static ra_status gradient(ra_plan *plan, float *memory)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = args.k = args.v = args.dout = ra_const_tensor_packed(memory);
    args.out = ra_const_tensor_packed(memory + FLOATS);
    args.lse = memory + 2 * FLOATS;
    args.dq = ra_tensor_packed(memory + 3 * FLOATS);
    args.dk = ra_tensor_packed(memory + 4 * FLOATS);
    args.dv = ra_tensor_packed(memory + 5 * FLOATS);
    return ra_gradient(plan, &args);
}

/* The call that is not what the others expect. */
static ra_status cross(const struct scene *scene, int rank, ra_plan *one, ra_plan *other,
                       float *memory)
{
    if (rank == 1 && scene->cross_directions) return gradient(one, memory);
    bool refused = rank == 1 && scene->refuse_rank_1;
    return attend(rank == 1 && scene->cross_plans ? other : one, memory, refused);
}

/* Returns RA_OK whatever happened, so that ra_group_run() does not inform the others. */
static ra_status body(ra_group *group, void *context)
{
    struct scene *scene = context;
    int rank = ra_group_rank(group);
    float memory[6 * FLOATS] = { 0 };
    ra_plan *one = NULL, *other = NULL;
    ra_status *before = &scene->before[rank];
    *before = make_plan(group, 0.5f, &one);
    if (*before == RA_OK) *before = make_plan(group, 0.25f, &other);
    if (*before == RA_OK) *before = attend(one, memory, false);
    if (*before == RA_OK) *before = attend(other, memory, false);
    pthread_barrier_wait(&scene->ready);
    double start = ra__now();
    scene->status[rank] = cross(scene, rank, one, other, memory);
    scene->seconds[rank] = ra__now() - start;
    snprintf(scene->sentence[rank], sizeof scene->sentence[rank], "%s", ra_last_error());
    ra_plan_destroy(one);
    ra_plan_destroy(other);
    return RA_OK;
}

static void play(struct scene *scene, double timeout)
{
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.timeout = timeout;
    options.threads = 1;
    assert_int_equal(ra_group_create_local(RANKS, &options, groups), RA_OK);
    pthread_barrier_init(&scene->ready, NULL, RANKS);
    assert_int_equal(ra_group_run(groups, RANKS, body, scene), RA_OK);
    pthread_barrier_destroy(&scene->ready);
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(scene->before[rank], RA_OK);
    for (int rank = 0; rank < RANKS; rank++) ra_group_destroy(groups[rank]);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void refused_arguments_are_told_at_once(void **state)
{
    (void)state;
    struct scene scene = { .refuse_rank_1 = true };
    play(&scene, 5.0);
    assert_int_equal(scene.status[1], RA_ERR_ARGUMENT);
    assert_int_equal(scene.status[0], RA_ERR_PEER);
    assert_non_null(strstr(scene.sentence[0], "rank 1 failed: out: no data"));
    assert_true(scene.seconds[0] < 3.0);
}

/* The plans differ in the scale alone, so all their messages have the same size. */
static void different_plans_do_not_meet(void **state)
{
    (void)state;
    struct scene scene = { .cross_plans = true };
    play(&scene, 0.3);
    for (int rank = 0; rank < RANKS; rank++) assert_int_not_equal(scene.status[rank], RA_OK);
    assert_non_null(strstr(scene.sentence[0], "do all ranks run the same plan?"));
}

static void different_directions_do_not_meet(void **state)
{
    (void)state;
    struct scene scene = { .cross_directions = true };
    play(&scene, 0.3);
    for (int rank = 0; rank < RANKS; rank++) assert_int_not_equal(scene.status[rank], RA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_arguments_are_told_at_once),
        cmocka_unit_test(different_plans_do_not_meet),
        cmocka_unit_test(different_directions_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
