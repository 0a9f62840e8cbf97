/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbers.c - follows every number through the programs of all ranks (support/shelf.h). Steps
 * run in any order that their waits allow. */
#include "support/post_office.h"

/* ---- Steps ----------------------------------------------------------------------------------- */

static void run_step(struct shelf *shelf)
{
    switch (shelf->step->op) {
    case RA__OP_LOAD:
    case RA__OP_STORE:
    case RA__OP_GATHER: shelf_move(shelf); break;
    case RA__OP_DELTA: shelf_delta(shelf); break;
    case RA__OP_SINKS: shelf_sinks(shelf); break;
    case RA__OP_ATTEND: shelf_attend(shelf); break;
    case RA__OP_GRADIENT: shelf_gradient(shelf); break;
    default: fail_msg("%s: step %s", shelf->world->text, ra__step_name(shelf->step));
    }
}

static bool may_start(const struct shelf *shelf, const struct ra__step *step)
{
    for (int i = 0; i < step->wait_count; i++)
        if (shelf->stage[shelf->program->waits[step->first_wait + i]] != SHELF_DONE) return false;
    return true;
}

/* Starts a step, or ends it where it is a round under way; false if neither can be done. */
static bool try_step(struct shelf *shelf, struct post_office *office, int index)
{
    const struct ra__step *step = shelf->step = &shelf->program->steps[index];
    enum shelf_stage *stage = &shelf->stage[index];
    const bool exchange = step->op == RA__OP_EXCHANGE;
    if (*stage == SHELF_DONE || (*stage == SHELF_WAITING && !may_start(shelf, step))) return false;
    if (*stage == SHELF_WAITING && exchange) {
        post_office_start(office, shelf, &shelf->program->rounds[step->round]);
        *stage = SHELF_UNDER_WAY;
        return true;
    }
    if (exchange && !post_office_end(office, shelf, &shelf->program->rounds[step->round]))
        return false;
    if (!exchange) run_step(shelf);
    *stage = SHELF_DONE;
    shelf->left--;
    return true;
}

/* One rank as far as it gets, by the earliest step that can run, or by the latest; true if it
 * moved. */
static bool advance(struct shelf *shelf, struct post_office *office, bool latest)
{
    const int count = shelf->program->step_count;
    bool any = false;
    for (int i = 0; i < count; i++)
        if (try_step(shelf, office, latest ? count - 1 - i : i)) {
            any = true;
            i = -1;
        }
    return any;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* What a result must be, in the first number of its vector. */
static uint64_t sum_of_query(const struct world *w, int64_t query, int head)
{
    uint64_t sum = 0;
    for (int64_t key = 0; key < w->k_len; key++)
        sum += seen.count[head][query][key] * shelf_pair(query, head, key);
    return sum;
}

static uint64_t sum_of_key(const struct world *w, int64_t key, int kv_head)
{
    const int group = w->q_heads / w->kv_heads;
    uint64_t sum = 0;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t query = 0; query < w->n; query++)
            sum += seen.count[head][query][key] * shelf_pair(query, head, key);
    return sum;
}

/* A result of the caller: a vector for every token and head, `number` numbers into that of its
 * sums. */
static void check_result(const struct shelf *shelf, enum ra__buffer tensor, bool keys, int number)
{
    const struct shelf_space *s = &shelf->space[tensor];
    const struct ra__plan_input *caller = &shelf->plan->caller;
    for (int64_t i = 0; i < s->tokens * s->heads; i++) {
        const int64_t token = i / s->heads;
        const int head = (int)(i % s->heads);
        const int64_t at = position_of(keys ? caller->k_layout : caller->q_layout, caller->rank,
                                       token);
        const uint64_t sum = keys ? sum_of_key(shelf->world, at, head)
                                  : sum_of_query(shelf->world, at, head);
        for (int d = 0; d < s->width; d++)
            if (*shelf_cell(shelf, tensor, token, head, d) != shelf_times(sum, number + d))
                fail_msg("%s: rank %d: %s of position %d, head %d is not whole", shelf->world->text,
                         caller->rank, ra__buffer_facts(tensor)->name, (int)at, head);
    }
}

static void check_results(const struct shelf *shelf, bool backward)
{
    if (!backward) {
        check_result(shelf, RA__OUT, false, 0);
        check_result(shelf, RA__LSE, false, 0);
        return;
    }
    check_result(shelf, RA__DQ, false, 0);
    check_result(shelf, RA__DK, true, 0);
    check_result(shelf, RA__DV, true, shelf->program->caller.shape.dim);
}

static void check_numbers_of(const struct world *w, bool backward, bool latest)
{
    struct shelf shelves[MOST_RANKS];
    struct post_office office = { NULL, 0, 0 };
    for (int rank = 0; rank < w->ranks; rank++) shelf_open(&shelves[rank], w, rank, backward);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->ranks; rank++)
            moved |= advance(&shelves[rank], &office, latest);
    }
    for (int rank = 0; rank < w->ranks; rank++) {
        if (shelves[rank].left > 0)
            fail_msg("%s %s: rank %d does not come to an end", w->text, direction(backward), rank);
        check_results(&shelves[rank], backward);
        shelf_close(&shelves[rank]);
    }
    post_office_close(&office);
}

static void check_numbers(const struct world *w)
{
    static int turn;
    turn++;
    check_numbers_of(w, false, turn % 2);
    check_numbers_of(w, true, turn % 2);
}

static void numbers_go_where_they_belong(void **state)
{
    (void)state;
    each_world(check_numbers);
}

static void numbers_go_where_they_belong_at_the_borders(void **state)
{
    (void)state;
    each_odd_world(check_numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_go_where_they_belong),
        cmocka_unit_test(numbers_go_where_they_belong_at_the_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
