/* SPDX-License-Identifier: Apache-2.0 */
/* test_sm90_bridge.c - programs on the Hopper kernels, without a GPU: the rows that the kernels are
 * given hold the pairs of a query, a key and a head that the program's rows hold, each as often;
 * and so do the items of the schedules that are placed. The kernels are stand-ins that only look
 * at their arguments. */
#include <stdlib.h>

#include "backend/cuda/sm90/bridge.h"
#include "sm90_launched.h"
#include "sm90_pairs.h"
#include "support/worlds.h"

/* ---- Rows of a step -------------------------------------------------------------------------- */

static struct {
    int steps, taken, mixed, views, stairs, placed, merges, direct, set, classes, kept, results,
        swaps;
} tally[2];

static bool is_one_head(const struct ra__program *program, const struct ra__step *step)
{
    return step->from != RA__OWN_KV && program->storage[step->from].one_head;
}

static void expect_lines(const struct ra__program *program, const struct ra__step *step,
                         const struct ra__sm90_line *q_line)
{
    for (int r = step->first_row; r < step->first_row + step->row_count && !q_line->bent; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        for (int64_t n = 0; n < row->repeat * row->q_count; n++) {
            const int64_t repeat = n / row->q_count, i = n % row->q_count;
            const int64_t pos = row->q_pos + repeat * row->q_pos_advance + i * row->q_step;
            const int64_t token = row->q_token + repeat * row->q_token_advance +
                                  i * row->q_token_step;
            assert_int_equal(pos, q_line->pos + (token - q_line->token) * q_line->step);
        }
    }
}

static void check_rows(const struct world *w, const struct ra__program *program,
                       const struct ra__step *step, bool backward, bool stairs)
{
    const struct ra__shape *s = &program->work.shape;
    const struct ra__sm90_expand_input in = { program, step, 64, stairs };
    const struct ra__sm90_heads heads = { BATCH, s->q_heads, s->kv_heads,
                                          is_one_head(program, step) };
    struct ra__sm90_expanded rows;
    struct ra__sm90_row_list list;
    const enum ra__sm90_answer answer = ra__sm90_expand(&in, &rows);
    tally[backward].steps++;
    if (answer == RA__SM90_NO) return;
    assert_int_equal(answer, RA__SM90_YES);
    expect_lines(program, step, &rows.q_line);
    tally[backward].mixed += rows.mixed;
    tally[backward].views += rows.view_count > 0;
    tally[backward].stairs += rows.stair > 0;
    if (backward && (rows.mixed || rows.view_count)) {
        ra__sm90_expanded_clear(&rows);
        return;
    }
    const int padded = (rows.q_rows + 15) / 16 * 16;
    assert_int_equal(backward ? ra__sm90_list_keys(&rows, &heads, padded, NULL, &list)
                              : ra__sm90_list_rows(&rows, &heads, &list),
                     RA__SM90_YES);
    tally[backward].taken++;
    struct pairs want, got;
    pairs_open(&want, s, rows.q_rows, rows.k_rows);
    pairs_open(&got, s, rows.q_rows, rows.k_rows);
    add_program(&want, program, step);
    int of_batch[BATCH] = { 0 };
    for (int i = 0; i < list.row_count; i++) {
        const struct ra__sm90_rows *row = &list.rows[i];
        of_batch[row->batch]++;
        assert_int_equal(row->kv_head, heads.one_head ? 0 : row->head / got.group);
        for (int r = row->first_run; r < row->first_run + row->run_count && !row->batch; r++)
            if (backward)
                add_queries(&got, row, list.runs[r], (struct places){ padded, NULL, NULL });
            else add_run(&got, row, rows.runs[r], rows.views);
        const struct ra__sm90_view q = view_at(rows.views,
                                               (unsigned)row->flags >> RA__SM90_VIEW_SHIFT);
        for (int n = 0; n < row->q_count && !row->batch && !backward; n++)
            got.flags[row->head * got.queries + q.first + (row->q_row + n) * q.step] =
                (uint8_t)(4 | (row->flags & 3));
    }
    assert_int_equal(of_batch[0], of_batch[1]);
    expect_same(w, "rows", &want, &got);
    if (!backward) assert_memory_equal(want.flags, got.flags, (size_t)(want.heads * want.queries));
    pairs_close(&want);
    pairs_close(&got);
    ra__sm90_row_list_clear(&list);
    ra__sm90_expanded_clear(&rows);
}

/* ---- Programs -------------------------------------------------------------------------------- */

static void add_items(struct pairs *got, const struct ra__sm90_work *work, bool backward)
{
    const struct ra__sm90_schedule *schedule = &work->schedule;
    const struct places places = { work->padded_rows, work->needs.views ? work->views : NULL,
                                   work->view_starts };
    for (int i = 0; i < schedule->queues[schedule->clusters]; i++) {
        const struct ra__sm90_item *item = &schedule->items[i];
        const struct ra__sm90_rows rows = { item->batch,     item->head,    item->kv_head,
                                            item->q_row,     item->q_count, item->first_run,
                                            item->run_count, item->flags };
        for (int r = rows.first_run; r < rows.first_run + rows.run_count && rows.batch == 1; r++)
            if (backward) add_queries(got, &rows, schedule->runs[r], places);
            else add_run(got, &rows, schedule->runs[r], work->views);
    }
    tally[backward].merges += schedule->merge_count;
}

/* With views every query is in one block of dq. */
static void check_views(const struct ra__program *program, const struct ra__sm90_work *work)
{
    const struct ra__shape *s = &program->work.shape;
    const int block = work->shape.block_keys, blocks = work->padded_rows / block;
    const int heads = work->by_head ? s->q_heads / s->kv_heads : s->q_heads;
    uint8_t *seen = calloc((size_t)work->q_rows, 1);
    assert_non_null(seen);
    for (int h = 0; h < heads; h++) {
        memset(seen, 0, (size_t)work->q_rows);
        for (int i = 0; i < blocks * block; i++) {
            const int number = work->block_views[h * blocks + i / block];
            if (number == RA__SM90_NO_VIEW) continue;
            const struct ra__sm90_view view = work->views[number];
            const int token = view.first + (i - work->view_starts[number]) * view.step;
            if (token < work->q_rows) assert_int_equal(seen[token]++, 0);
        }
        for (int i = 0; i < work->q_rows; i++) assert_int_equal(seen[i], 1);
    }
    free(seen);
    tally[1].classes++;
}

/* No key is in two items, or tiles that were split; where sums are set, each is in one. */
static void check_keys(const struct ra__program *program, const struct ra__sm90_work *work)
{
    const struct ra__sm90_schedule *schedule = &work->schedule;
    const int heads = program->work.shape.kv_heads, group = program->work.shape.q_heads / heads;
    uint8_t *seen = calloc((size_t)(work->k_rows * heads), 1);
    assert_non_null(seen);
    for (int i = 0; i < schedule->queues[schedule->clusters]; i++) {
        const struct ra__sm90_item *item = &schedule->items[i];
        const struct ra__sm90_view view = work->needs.views ? work->views[number_in(item->q_row)]
                                                            : ALL_TOKENS;
        const int row = work->needs.views ? item->q_row & RA__SM90_VIEW_ROWS : item->q_row;
        for (int n = 0; n < item->q_count && item->batch == 0 && item->part < 0; n++) {
            const int token = view.first + (row + n) * view.step;
            assert_true(token < work->k_rows);
            seen[token * heads + item->kv_head]++;
        }
    }
    for (int i = 0; i < schedule->merge_count; i++) {
        const struct ra__sm90_merge *merge = &schedule->merges[i];
        for (int n = 0; n < merge->q_count && merge->batch == 0; n++)
            seen[(merge->q_row + n) * heads + merge->head / group]++;
    }
    for (int i = 0; i < work->k_rows * heads; i++)
        assert_in_range(seen[i], work->covers ? 1 : 0, 1);
    free(seen);
}

static void check_items(const struct world *w, const struct ra__program *program,
                        const struct ra__sm90_program *made, int index, bool backward)
{
    const struct ra__sm90_work *work = &made->works[made->steps[index].work];
    struct pairs want, got;
    pairs_open(&want, &program->work.shape, work->q_rows, work->k_rows);
    pairs_open(&got, &program->work.shape, work->q_rows, work->k_rows);
    add_program(&want, program, &program->steps[index]);
    add_items(&got, work, backward);
    expect_same(w, "items", &want, &got);
    if (backward && !work->one_head) check_keys(program, work);
    if (backward && work->needs.views) check_views(program, work);
    pairs_close(&want);
    pairs_close(&got);
}

/* Everything that a call needs is where the copy engine can read it. */
static void open_call(struct ra__call *call, const struct ra__program *program, char *memory)
{
    *call = (struct ra__call){ .run = 1 };
    for (int i = 0; i < RA__BUFFERS; i++)
        call->at[i] = (struct ra__location){ .data = memory,
                                             .storage = { .dtype = RA_BF16,
                                                          .one_head = program->storage[i].one_head,
                                                          .batch_stride = 4096,
                                                          .token_stride = 128,
                                                          .head_stride = 64 } };
    call->at[program->caller.dq].data = memory + 32;
}

static struct ra__cuda_step step_of(int q_heads, int kv_heads, char *memory)
{
    return (struct ra__cuda_step){ .batch = BATCH,
                                   .q_heads = q_heads,
                                   .kv_heads = kv_heads,
                                   .dim = 64,
                                   .value_dim = 64,
                                   .dtype = RA__CUDA_BF16,
                                   .q.data = memory };
}

/* A step that sets sums has every key, and the step before it that uses them clears all of them,
 * and nothing else. */
static void check_partner(const struct ra__program *program, const struct ra__sm90_program *made,
                          int gradient)
{
    const int clear = made->steps[gradient].partner;
    const struct ra__step *step = &program->steps[clear];
    const enum ra__buffer sums = program->steps[gradient].to;
    const struct ra__sm90_work *work = &made->works[made->steps[gradient].work];
    const struct ra__shape *s = &program->work.shape;
    int *numbers = calloc((size_t)work->k_rows, sizeof *numbers);
    assert_non_null(numbers);
    assert_true(clear < gradient && made->steps[clear].partner == gradient);
    assert_true(step->op == RA__OP_GATHER && step->gather == RA__GATHER_CLEAR);
    for (int i = clear + 1; i < gradient; i++)
        assert_false((program->steps[i].reads | program->steps[i].writes) & ra__buffer_bit(sums));
    for (int i = step->first_piece; i < step->first_piece + step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[i];
        assert_int_equal(piece->to.buffer, sums);
        for (int64_t t = 0; t < piece->tokens; t++) {
            const int64_t token = piece->to.token + t * piece->to.step;
            assert_true(token < work->k_rows);
            numbers[token] += piece->heads * piece->width;
        }
    }
    for (int i = 0; i < work->k_rows; i++)
        assert_int_equal(numbers[i], s->kv_heads * (s->dim + s->value_dim));
    assert_true(work->covers);
    free(numbers);
}

/* Where a step writes results, sums are neither cleared nor finished: all of that or nothing, by
 * the tensors of the call. Where it sets sums, they are not cleared. */
static void check_sums(const struct ra__program *program, const struct ra__sm90_program *made,
                       struct ra__call *call)
{
    const enum ra__buffer dk = program->caller.dk;
    for (int i = 0; i < program->step_count; i++) {
        if (program->steps[i].op != RA__OP_GATHER) continue;
        const bool direct = made->direct >= 0, set = made->steps[i].partner >= 0;
        const int left_out = direct || set ? 0 : RA__CUDA_NOT_TAKEN;
        assert_int_equal(ra__sm90_scheduler.run(made, i, call, NULL, NULL), left_out);
        call->at[dk].data++;
        assert_int_equal(ra__sm90_scheduler.run(made, i, call, NULL, NULL),
                         set ? 0 : RA__CUDA_NOT_TAKEN);
        call->at[dk].data--;
        call->at[program->work.q].data++;
        assert_int_equal(ra__sm90_scheduler.run(made, i, call, NULL, NULL), RA__CUDA_NOT_TAKEN);
        call->at[program->work.q].data--;
        if (set) check_partner(program, made, made->steps[i].partner);
        tally[1].direct += direct;
        tally[1].set += set;
    }
}

/* dq is set up and leaves the workspace in each GRADIENT step, or once in all of them. */
static void check_dq(const struct ra__sm90_program *made, int index, int starts, int ends)
{
    const struct ra__sm90_work *work = &made->works[made->steps[index].work];
    const bool kept = made->first_gradient >= 0;
    const int launches = work->by_head ? BATCH * made->program->work.shape.kv_heads
                                       : work->k_rows > 0;
    assert_int_equal(starts, !kept || index == made->first_gradient ? launches : 0);
    assert_int_equal(ends, !kept || index == made->last_gradient ? launches : 0);
    tally[1].kept += kept && made->first_gradient != made->last_gradient;
}

/* A dq that stays in the workspace leaves it as the caller's, if that tensor is aligned; but as
 * sums where ranks swap heads, whose dq is not all of these heads'. The step has just run. */
static void check_result(const struct ra__program *program, const struct ra__sm90_program *made,
                         int index, struct ra__call *call)
{
    const struct ra__side *caller = &program->caller;
    const bool kept = made->first_gradient >= 0, result = kept && program->work.q == caller->q;
    const struct ra__sm90_ends *ends = &launched.last_ends;
    assert_int_equal(ra__sm90_scheduler.writes_queries(made, call), result);
    if (kept && index == made->last_gradient) {
        assert_int_equal(ends->dq_dtype, result ? RA__CUDA_BF16 : RA__CUDA_F32);
        assert_int_equal(ends->dq.data == call->at[caller->dq].data, result);
    }
    if (result && index == made->last_gradient) {
        assert_int_equal(ends->dq.token, call->at[caller->dq].storage.token_stride);
        assert_int_equal(ends->rows, caller->queries);
        assert_int_equal(ends->heads, caller->shape.q_heads);
    }
    call->at[caller->dq].data++;
    assert_int_equal(ra__sm90_scheduler.writes_queries(made, call), 0);
    call->at[caller->dq].data--;
    tally[1].results += result;
    tally[1].swaps += kept && !result;
}

static void check_calls(const struct ra__program *program, const struct ra__sm90_program *made,
                        int index, bool backward)
{
    static char memory[64] __attribute__((aligned(64)));
    struct ra__call call;
    const struct ra__shape *s = &program->work.shape;
    const struct ra__cuda_step step = step_of(s->q_heads, s->kv_heads, memory);
    const int *count = backward ? &launched.backward : &launched.forward;
    const int before = *count, starts = launched.starts, ends = launched.ends;
    const bool keys = made->works[made->steps[index].work].k_rows > 0;
    open_call(&call, program, memory);
    assert_int_equal(ra__sm90_scheduler.run(made, index, &call, &step, NULL), 0);
    assert_int_equal(*count, before + (keys || !backward));
    if (backward) {
        check_dq(made, index, launched.starts - starts, launched.ends - ends);
        check_result(program, made, index, &call);
    }
    const struct ra__side *side = ra__work_side(program, &program->steps[index]);
    call.at[side->q].data++;
    assert_int_equal(ra__sm90_scheduler.run(made, index, &call, &step, NULL), RA__CUDA_NOT_TAKEN);
    call.at[side->q].data--;
    check_sums(program, made, &call);
    call.bias.data = memory; /* its kernel has other tiles */
    if (!backward)
        assert_int_equal(ra__sm90_scheduler.run(made, index, &call, &step, NULL),
                         RA__CUDA_NOT_TAKEN);
}

static void check_program(const struct world *w, const struct ra__program *program, bool backward)
{
    void *own;
    size_t scratch = 0;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (step->op != (backward ? RA__OP_GRADIENT : RA__OP_ATTEND)) continue;
        check_rows(w, program, step, backward, true);
        check_rows(w, program, step, backward, false);
    }
    assert_int_equal(ra__sm90_scheduler.create(program, NULL, &own), 0);
    if (!own) return;
    const struct ra__sm90_program *made = own;
    const size_t bytes = ra__sm90_scheduler.bytes(own, &scratch);
    char *block = malloc(bytes + 1), *work = malloc(scratch + 1);
    assert_true(block && work);
    /* The device's memory is the host's here: what is placed can be read. */
    assert_int_equal(ra__sm90_scheduler.place(own, block, block, work), 0);
    int taken = 0, steps = 0;
    for (int i = 0; i < program->step_count; i++) {
        if (program->steps[i].op != (backward ? RA__OP_GRADIENT : RA__OP_ATTEND)) continue;
        steps++;
        if (!made->steps[i].taken) continue;
        taken++;
        check_items(w, program, made, i, backward);
        check_calls(program, made, i, backward);
    }
    tally[backward].placed += taken;
    if (made->carried) assert_int_equal(taken, steps);
    ra__sm90_scheduler.destroy(own);
    free(block);
    free(work);
}

static void check_world(const struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int backward = 0; backward < 2; backward++)
            check_program(w, program_of(w, rank, backward), backward);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void every_world_keeps_its_pairs(void **state)
{
    (void)state;
    each_world(check_world);
    for (int i = 0; i < 2; i++) {
        print_message("%s: %d of %d steps, %d with views, %d with stairs, %d mixed; %d placed, "
                      "%d merges\n",
                      direction(i), tally[i].taken, tally[i].steps, tally[i].views, tally[i].stairs,
                      tally[i].mixed, tally[i].placed, tally[i].merges);
        assert_true(tally[i].taken > 0 && tally[i].placed > 0);
        assert_true(tally[i].stairs > 0 && tally[i].merges > 0);
    }
    assert_true(tally[0].views > 0 && tally[1].direct > 0 && tally[1].set > 0 &&
                tally[1].classes > 0 && tally[1].kept > 0 && tally[1].results > 0 &&
                tally[1].swaps > 0);
}

static void odd_worlds_keep_their_pairs(void **state)
{
    (void)state;
    each_odd_world(check_world);
}

/* The patterns that these kernels are for: no step is left out. */
static void usual_patterns_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text, *partition, *strategy;
        int ranks;
    } usual[] = {
        { "full", "contiguous", "ring", 3 },
        { "causal", "contiguous", "ring", 3 },
        { "causal", "zigzag", "ring", 3 },
        { "causal", "striped", "ring", 3 },
        { "window:100", "contiguous", "ring", 3 },
        { "causal;docs=0,150,384", "contiguous", "ring", 3 },
        { "causal", "contiguous", "ulysses", 3 },
        /* Where shards meet, a few blocks see fewer keys: tiles that are mostly empty. */
        { "blocks:16;local=2", "contiguous", "ring", 1 },
        { "dilated:192/1,384/2", "contiguous", "ring", 3 },
    };
    for (int i = 0; i < TEST_COUNT(usual); i++)
        for (int ranks = 1; ranks <= usual[i].ranks; ranks += 2) {
            struct world w = {
                .n = 384, .k_len = 384, .q_heads = 6, .kv_heads = 3, .unseen = true
            };
            world_open(&w, usual[i].text, ranks, usual[i].partition, usual[i].strategy);
            for (int rank = 0; rank < ranks; rank++)
                for (int backward = 0; backward < 2; backward++) {
                    const struct ra__program *p = program_of(&w, rank, backward);
                    void *own;
                    check_program(&w, p, backward);
                    assert_int_equal(ra__sm90_scheduler.create(p, NULL, &own), 0);
                    const struct ra__sm90_program *made = own;
                    for (int s = 0; s < p->step_count; s++) {
                        const enum ra__op op = backward ? RA__OP_GRADIENT : RA__OP_ATTEND;
                        if (p->steps[s].op != op) continue;
                        if (!made || !made->steps[s].taken)
                            fail_msg("%s: rank %d, %s, step %d is left out", w.text, rank,
                                     direction(backward), s);
                        assert_int_equal(made->direct, backward && ranks == 1 ? s : -1);
                    }
                    ra__sm90_scheduler.destroy(own);
                }
            world_close(&w);
        }
}

/* Forward, allgather promises the same bits for every number of ranks, which these kernels do not:
 * they are asked only where bits may differ. */
static void allgather_is_left_to_others(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct world w = { .n = 384, .k_len = 384, .q_heads = 2, .kv_heads = 1, .unseen = true };
        world_open(&w, "causal", i & 4 ? 3 : 1, "zigzag", "allgather");
        struct ra__program program = *program_of(&w, 0, i & 1);
        void *own;
        assert_true(program.same_bits);
        program.same_bits = !(i & 2);
        assert_int_equal(ra__sm90_scheduler.create(&program, NULL, &own), 0);
        assert_int_equal(own != NULL, (i & 1) || (i & 2));
        ra__sm90_scheduler.destroy(own);
        world_close(&w);
    }
}

/* Blocks of queries that move along, beside heads with views: the blocks stay blocks. */
static void stairs_beside_views_keep_their_pairs(void **state)
{
    (void)state;
    static const char *const patterns[] = { "dilated:64/1,256/2;groups", "dilated:16/1,64/2;groups",
                                            "dilated:64/1,64/2;groups" };
    for (int i = 0; i < TEST_COUNT(patterns); i++) {
        struct world w = {
            .n = i ? 64 : 256, .k_len = i ? 64 : 256, .q_heads = 4, .kv_heads = 4, .unseen = true
        };
        world_open(&w, patterns[i], 1, "contiguous", "ring");
        check_world(&w);
        world_close(&w);
    }
}

/* A row that goes on from a state and is not finite is written by the repair, also where no key is
 * hidden. */
static void hops_are_repaired(void **state)
{
    (void)state;
    static char memory[64] __attribute__((aligned(64)));
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct world w = { .n = 128, .k_len = 128, .q_heads = 2, .kv_heads = 2 };
        world_open(&w, "full", ranks, "contiguous", "ring");
        const struct ra__program *p = program_of(&w, 0, false);
        const struct ra__cuda_step step = step_of(2, 2, memory);
        struct ra__call call;
        void *own;
        int index = 0;
        open_call(&call, p, memory);
        assert_int_equal(ra__sm90_scheduler.create(p, NULL, &own), 0);
        while (p->steps[index].op != RA__OP_ATTEND) index++;
        assert_int_equal(ra__sm90_scheduler.run(own, index, &call, &step, NULL), 0);
        assert_int_equal(launched.last.hides, ranks > 1);
        ra__sm90_scheduler.destroy(own);
        world_close(&w);
    }
}

/* Hops of a dense ring that see whole blocks have the same rows: one schedule serves them. */
static void equal_hops_share_a_schedule(void **state)
{
    (void)state;
    struct world w = { .n = 128, .k_len = 128, .q_heads = 2, .kv_heads = 1 };
    world_open(&w, "full", 4, "contiguous", "ring");
    for (int backward = 0; backward < 2; backward++) {
        void *own;
        assert_int_equal(ra__sm90_scheduler.create(program_of(&w, 0, backward), NULL, &own), 0);
        const struct ra__sm90_program *made = own;
        assert_true(made && made->work_count <= 3);
        ra__sm90_scheduler.destroy(own);
    }
    world_close(&w);
}

/* Where ranks share a GPU, launches do not start early, and a deterministic one takes half of the
 * clusters, unless the ring is uneven. Backward, tiles are whole but in such a half. */
static void ranks_share_a_gpu(void **state)
{
    (void)state;
    static char memory[64] __attribute__((aligned(64)));
    struct world w = { .n = 4128, .k_len = 4128, .q_heads = 2, .kv_heads = 1, .unseen = true };
    world_open(&w, "full", 1, "contiguous", "ring");
    for (int i = 0; i < 16; i++) {
        struct ra__program program = *program_of(&w, 0, i & 1);
        const bool crowded = i & 2;
        void *own;
        program.device_ranks = crowded ? 4 : 1;
        program.any_order = i & 4;
        program.uneven = i & 8;
        assert_int_equal(ra__sm90_scheduler.create(&program, NULL, &own), 0);
        const struct ra__sm90_program *made = own;
        const struct ra__sm90_schedule *schedule = &made->works[0].schedule;
        const bool halved = crowded && made->works[0].needs.deterministic && !(i & 8);
        assert_int_equal(schedule->clusters, halved ? (CLUSTERS + 1) / 2 : CLUSTERS);
        assert_int_equal(schedule->merge_count > 0, !crowded || !(i & 1) || halved);
        if (!(i & 1)) {
            const struct ra__cuda_step step = step_of(2, 1, memory);
            struct ra__call call;
            int index = 0;
            open_call(&call, &program, memory);
            while (!made->steps[index].taken) index++;
            assert_int_equal(ra__sm90_scheduler.run(own, index, &call, &step, NULL), 0);
            assert_int_equal(launched.last.crowded, crowded);
        }
        ra__sm90_scheduler.destroy(own);
    }
    world_close(&w);
}

/* Steps of a program of ranks on one GPU that have split tiles, a bit each from the first on; and
 * the bits of all steps. */
static int split_steps(const struct ra__program *of, bool uneven, int *all)
{
    struct ra__program program = *of;
    int bits = 0, step = 0;
    void *own;
    program.device_ranks = 4;
    program.uneven = uneven;
    assert_int_equal(ra__sm90_scheduler.create(&program, NULL, &own), 0);
    const struct ra__sm90_program *made = own;
    for (int i = 0; i < program.step_count; i++) {
        if (!made->steps[i].taken) continue;
        bits |= (made->works[made->steps[i].work].schedule.merge_count > 0) << step++;
    }
    *all = (1 << step) - 1;
    ra__sm90_scheduler.destroy(own);
    return bits;
}

/* Forward only the last hop; backward all of them, if a launch leaves the other half of the GPU to
 * other ranks. */
static void few_hops_are_split(void **state)
{
    (void)state;
    struct world w = { .n = 8320, .k_len = 8320, .q_heads = 2, .kv_heads = 1, .unseen = true };
    int all;
    world_open(&w, "full", 4, "contiguous", "ring");
    assert_int_equal(split_steps(program_of(&w, 0, false), false, &all), 8);
    assert_int_equal(all, 15);
    const int split = split_steps(program_of(&w, 0, true), false, &all);
    assert_int_equal(split, all);
    assert_int_equal(split_steps(program_of(&w, 0, true), true, &all), 0);
    world_close(&w);
}

/* In any order there are no ranks; score terms have no kernels for it. */
static void any_order_needs_no_ranks(void **state)
{
    (void)state;
    const struct ra__problem_terms softcap = { .softcap = 30.0f };
    struct world w = { .n = 128, .k_len = 128, .q_heads = 2, .kv_heads = 1 };
    world_open(&w, "causal", 1, "contiguous", "ring");
    for (int i = 0; i < 4; i++) {
        struct ra__program program = *program_of(&w, 0, true);
        void *own;
        program.any_order = i & 1;
        assert_int_equal(ra__sm90_scheduler.create(&program, i & 2 ? &softcap : NULL, &own), 0);
        const struct ra__sm90_program *made = own;
        assert_non_null(made);
        assert_int_equal(made->works[0].needs.deterministic, i != 1);
        assert_int_equal(made->works[0].adds > 0, i != 1);
        ra__sm90_scheduler.destroy(own);
    }
    world_close(&w);
}

/* Ranks of adds to dq are many where sequences are long: then each KV head has a launch of its own,
 * by the same ranks, and in the end such a step is left to other kernels. */
static void long_gradients_go_head_by_head(void **state)
{
    (void)state;
    static char memory[64] __attribute__((aligned(64)));
    for (int64_t n = 40000; n <= 200000; n += 160000) {
        struct world w = { .n = n, .k_len = n, .q_heads = 6, .kv_heads = 3, .unseen = true };
        world_open(&w, "full", 1, "contiguous", "ring");
        const struct ra__program *p = program_of(&w, 0, true);
        void *own;
        assert_int_equal(ra__sm90_scheduler.create(p, NULL, &own), 0);
        if (n == 40000) {
            const struct ra__sm90_program *made = own;
            int index = 0;
            assert_non_null(made);
            while (!made->steps[index].taken) index++;
            const struct ra__sm90_work *work = &made->works[made->steps[index].work];
            const int padded = work->padded_rows;
            assert_true(work->by_head);
            struct ra__cuda_step step = step_of(6, 3, memory);
            step.q = (struct ra__cuda_tensor){ memory, 1 << 20, 384, 64 };
            struct ra__call call;
            const int before = launched.backward;
            open_call(&call, p, memory);
            assert_int_equal(ra__sm90_scheduler.run(own, index, &call, &step, NULL), 0);
            assert_int_equal(launched.backward, before + BATCH * 3);
            assert_int_equal(launched.last_backward.q.heads, 2);
            assert_int_equal(launched.last_backward.padded_rows, padded);
            /* An address outside of `memory`, which nobody reads. */
            assert_int_equal((uintptr_t)launched.last_backward.q.data - (uintptr_t)memory,
                             2 * ((1 << 20) + 4 * 64));
        } else {
            assert_null(own);
        }
        ra__sm90_scheduler.destroy(own);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_patterns_are_taken),
        cmocka_unit_test(allgather_is_left_to_others),
        cmocka_unit_test(stairs_beside_views_keep_their_pairs),
        cmocka_unit_test(hops_are_repaired),
        cmocka_unit_test(equal_hops_share_a_schedule),
        cmocka_unit_test(ranks_share_a_gpu),
        cmocka_unit_test(few_hops_are_split),
        cmocka_unit_test(any_order_needs_no_ranks),
        cmocka_unit_test(long_gradients_go_head_by_head),
        cmocka_unit_test(odd_worlds_keep_their_pairs),
        cmocka_unit_test(every_world_keeps_its_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
