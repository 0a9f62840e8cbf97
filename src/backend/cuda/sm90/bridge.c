/* SPDX-License-Identifier: Apache-2.0 */
/* bridge.c - which steps of a program the Hopper kernels run.
 *
 * The order of numbers in a state is these kernels' own. Where states go from step to step, they
 * run all ATTEND steps of a program or none. GRADIENT steps add to sums, and each is decided alone;
 * one that finds its sums cleared sets them instead, and the step that clears them does nothing. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/bridge.h"

/* Terms whose kernels need positions. */
enum { POSITION_TERMS = RA__SM90_SLOPES | RA__SM90_DROPOUT };

/* Arrays of a program: more would not be worth their memory. */
#define MOST_BYTES ((size_t)1 << 30)

/* Tiles that are mostly empty are left to kernels with smaller tiles: at least so many fifths. */
enum { FULL_FIFTHS = 2 };

static int takes(int dtype, int dim, int value_dim, int backward)
{
    (void)dtype;
    (void)backward;
    return (dim == 64 || dim == 128 || dim == 256) && value_dim == dim;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static bool computes(const struct ra__sm90_program *p, const struct ra__step *step)
{
    const bool back = p->program->direction == RA__BACKWARD;
    return step->op == (back ? RA__OP_GRADIENT : RA__OP_ATTEND) && step->row_count > 0;
}

static bool same_rows(const struct ra__sm90_work *a, const struct ra__sm90_work *b)
{
    const struct ra__sm90_expanded *x = &a->rows, *y = &b->rows;
    return a->one_head == b->one_head && x->family_count == y->family_count &&
           x->family_count > 0 && x->run_count == y->run_count && x->view_count == y->view_count &&
           x->q_rows == y->q_rows && x->k_rows == y->k_rows && x->head_count == y->head_count &&
           !memcmp(x->views, y->views, sizeof x->views) &&
           (x->head_count == 0 || !memcmp(x->head_views, y->head_views, (size_t)x->head_count)) &&
           !memcmp(x->families, y->families, (size_t)x->family_count * sizeof *x->families) &&
           (x->run_count == 0 || !memcmp(x->runs, y->runs, (size_t)x->run_count * sizeof *x->runs));
}

/* Rows with views as the kernels backward take them; others are left alone. */
static enum ra__sm90_answer by_classes(const struct ra__program *program, bool one_head,
                                       struct ra__sm90_expanded *rows)
{
    const struct ra__shape *s = &program->work.shape;
    const struct ra__sm90_heads heads = { (int)s->batch, s->q_heads, s->kv_heads, one_head };
    struct ra__sm90_expanded classified;
    if (!rows->view_count) return RA__SM90_YES;
    const enum ra__sm90_answer answer = ra__sm90_classify(rows, &heads, &classified);
    ra__sm90_expanded_clear(rows);
    if (answer == RA__SM90_YES) *rows = classified;
    return answer;
}

/* Blocks of queries as stairs where that is possible. Backward all runs of an item have the same
 * stairs; other bands do not go with them, and neither do views. */
static enum ra__sm90_answer expand(const struct ra__sm90_program *p, const struct ra__step *step,
                                   bool one_head, struct ra__sm90_expanded *out)
{
    const bool back = p->program->direction == RA__BACKWARD;
    struct ra__sm90_expand_input in = { p->program, step, back ? 1 << 20 : 64, true };
    enum ra__sm90_answer answer = ra__sm90_expand(&in, out);
    if (answer != RA__SM90_YES || !back) return answer;
    if (out->mixed || (out->stair && out->view_count)) {
        ra__sm90_expanded_clear(out);
        in.stairs = false;
        answer = ra__sm90_expand(&in, out);
    }
    return answer == RA__SM90_YES ? by_classes(p->program, one_head, out) : answer;
}

/* Finds the work among those there are, or makes it; the step has it then. */
static enum ra__sm90_answer find_work(struct ra__sm90_program *p, struct ra__sm90_work *work,
                                      struct ra__sm90_step *step)
{
    for (int i = 0; i < p->work_count; i++)
        if (same_rows(&p->works[i], work)) {
            ra__sm90_work_clear(work);
            step->taken = true;
            step->work = i;
            return RA__SM90_YES;
        }
    void *works = ra__sm90_grow(p->works, p->work_count, &p->work_room, sizeof *p->works);
    if (works) p->works = works;
    else ra__sm90_work_clear(work);
    const enum ra__sm90_answer answer = works ? ra__sm90_work_make(p->program, p->terms, work)
                                              : RA__SM90_NO_MEMORY;
    if (answer != RA__SM90_YES) return answer;
    step->taken = true;
    step->work = p->work_count;
    p->works[p->work_count++] = *work;
    return RA__SM90_YES;
}

static bool is_one_head(const struct ra__program *program, const struct ra__step *step)
{
    return step->from < RA__BUFFERS && step->from != RA__OWN_KV &&
           program->storage[step->from].one_head;
}

static enum ra__sm90_answer add_step(struct ra__sm90_program *p, int index)
{
    const struct ra__step *step = &p->program->steps[index];
    struct ra__sm90_step *out = &p->steps[index];
    struct ra__sm90_work work = { .one_head = is_one_head(p->program, step) };
    const enum ra__sm90_answer answer = expand(p, step, work.one_head, &work.rows);
    if (answer != RA__SM90_YES) return answer;
    out->q_line = work.rows.q_line;
    out->k_line = work.rows.k_line;
    const bool views = p->program->direction == RA__BACKWARD && work.rows.view_count;
    if (p->terms & POSITION_TERMS && (out->q_line.bent || out->k_line.bent || views)) {
        ra__sm90_work_clear(&work);
        return RA__SM90_NO;
    }
    return find_work(p, &work, out);
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* The only GRADIENT step of a program that clears sums, adds to them and finishes them, and that
 * these kernels run without sums; -1: there is none. The sums still order these steps, and whoever
 * stores a result waits for the last of them. */
static int find_direct(const struct ra__sm90_program *p)
{
    for (int i = 0; i < p->program->step_count; i++)
        if (p->steps[i].taken && p->works[p->steps[i].work].direct) return i;
    return -1;
}

/* The numbers of the sums that a step clears; 0: it does something else, or more. */
static int64_t cleared_by(const struct ra__program *program, const struct ra__step *step,
                          enum ra__buffer sums)
{
    int64_t numbers = 0;
    if (step->op != RA__OP_GATHER || step->gather != RA__GATHER_CLEAR) return 0;
    for (int i = step->first_piece; i < step->first_piece + step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[i];
        if (piece->to.buffer != sums) return 0;
        numbers += piece->tokens * piece->heads * piece->width;
    }
    return numbers;
}

/* The step that clears the sums of a GRADIENT step which has every key of them. -1: the step before
 * it that uses these sums does something else, or clears more or less, or there is none. */
static int find_clear(const struct ra__sm90_program *p, int gradient)
{
    const struct ra__program *program = p->program;
    const struct ra__sm90_work *work = &p->works[p->steps[gradient].work];
    const enum ra__buffer sums = program->steps[gradient].to;
    const struct ra__shape *s = &program->work.shape;
    const int64_t numbers = (int64_t)work->k_rows * s->kv_heads * (s->dim + s->value_dim);
    for (int i = gradient - 1; i >= 0; i--) {
        const struct ra__step *step = &program->steps[i];
        if (!((step->reads | step->writes) & ra__buffer_bit(sums))) continue;
        return cleared_by(program, step, sums) == numbers ? i : -1;
    }
    return -1;
}

static void find_partners(struct ra__sm90_program *p)
{
    for (int i = 0; i < p->program->step_count; i++) p->steps[i].partner = -1;
    if (p->program->direction != RA__BACKWARD || p->program->units || p->direct >= 0) return;
    for (int i = 0; i < p->program->step_count; i++) {
        if (!p->steps[i].taken || !p->works[p->steps[i].work].covers) continue;
        /* Both steps ask whether the call fits, and must get the same answer: where loaned keys are
         * is not known before the second one. */
        if (p->program->lends && p->program->steps[i].from != RA__OWN_KV) continue;
        const int clear = find_clear(p, i);
        p->steps[i].partner = clear;
        if (clear >= 0) p->steps[clear].partner = i;
    }
}

/* Can dq stay in the workspace from one GRADIENT step to the next? Only where all of them are run
 * here and have the same rows of dq. */
static bool keeps_dq(const struct ra__sm90_program *p)
{
    if (p->program->direction != RA__BACKWARD || p->program->units || p->direct >= 0) return false;
    for (int i = 0; i < p->program->step_count; i++) {
        if (!computes(p, &p->program->steps[i])) continue;
        if (!p->steps[i].taken) return false;
        const struct ra__sm90_work *work = &p->works[p->steps[i].work];
        if (work->by_head || work->needs.views || work->k_rows == 0) return false;
    }
    return true;
}

/* Is there a step that turns all sums of dq into the caller's dq? Not where ranks swap heads: they
 * send sums to one another. */
static bool finishes_dq(const struct ra__program *program)
{
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (step->op != RA__OP_GATHER || step->gather != RA__GATHER_FINISH) continue;
        for (int j = step->first_piece; j < step->first_piece + step->piece_count; j++)
            if (program->pieces[j].from.buffer == RA__SUM_Q) return true;
    }
    return false;
}

static void find_gradients(struct ra__sm90_program *p)
{
    p->first_gradient = p->last_gradient = -1;
    p->finishes_dq = finishes_dq(p->program);
    if (!keeps_dq(p)) return;
    for (int i = 0; i < p->program->step_count; i++) {
        if (!p->steps[i].taken) continue;
        if (p->first_gradient < 0) p->first_gradient = i;
        p->last_gradient = i;
    }
}

static bool carries(const struct ra__sm90_program *p)
{
    for (int i = 0; i < p->program->step_count; i++) {
        const struct ra__step *step = &p->program->steps[i];
        if (step->op != RA__OP_ATTEND) continue;
        for (int r = step->first_row; r < step->first_row + step->row_count; r++)
            if (!p->program->rows[r].first || !p->program->rows[r].last) return true;
    }
    return false;
}

static bool is_full(int64_t used, int64_t paid) { return 5 * used >= FULL_FIFTHS * paid; }

/* Leaves out steps whose tiles are mostly empty; where states are carried, all or none. */
static void leave_out(struct ra__sm90_program *p)
{
    int64_t used = 0, paid = 0;
    const struct ra__shape *shape = &p->program->work.shape;
    size_t bytes = 0;
    for (int i = 0; i < p->work_count; i++) bytes += ra__sm90_work_bytes(&p->works[i], shape);
    for (int i = 0; i < p->program->step_count; i++) {
        struct ra__sm90_step *step = &p->steps[i];
        if (!step->taken) continue;
        const struct ra__sm90_work *work = &p->works[step->work];
        used += work->rows_used;
        paid += work->rows_paid;
        step->taken = bytes <= MOST_BYTES &&
                      (p->carried || is_full(work->rows_used, work->rows_paid));
    }
    if (p->carried && !is_full(used, paid))
        for (int i = 0; i < p->program->step_count; i++) p->steps[i].taken = false;
}

/* Works that no step has are not placed. */
static void drop_works(struct ra__sm90_program *p)
{
    for (int w = 0; w < p->work_count; w++) {
        bool used = false;
        for (int i = 0; i < p->program->step_count; i++)
            used = used || (p->steps[i].taken && p->steps[i].work == w);
        if (!used) ra__sm90_work_clear(&p->works[w]);
        else ra__sm90_expanded_clear(&p->works[w].rows);
    }
}

static bool has_work(const struct ra__sm90_program *p)
{
    for (int i = 0; i < p->program->step_count; i++)
        if (p->steps[i].taken) return true;
    return false;
}

/* -1: memory is short. */
static int fill(struct ra__sm90_program *p)
{
    bool all = true;
    for (int i = 0; i < p->program->step_count && (all || !p->carried); i++) {
        if (!computes(p, &p->program->steps[i])) continue;
        const enum ra__sm90_answer answer = add_step(p, i);
        if (answer == RA__SM90_NO_MEMORY) return -1;
        all = all && answer == RA__SM90_YES;
    }
    for (int i = 0; p->carried && !all && i < p->program->step_count; i++)
        p->steps[i].taken = false;
    drop_works(p); /* those of steps that were given up */
    leave_out(p);
    drop_works(p);
    p->direct = find_direct(p);
    find_gradients(p);
    find_partners(p);
    return 0;
}

static int terms_of(const struct ra__problem_terms *terms)
{
    if (!terms) return 0;
    return (terms->softcap > 0 ? RA__SM90_SOFTCAP : 0) | (terms->alibi ? RA__SM90_SLOPES : 0) |
           (terms->dropout > 0 ? RA__SM90_DROPOUT : 0);
}

/* Masks of an order, positions that go through one, and split keys are for other kernels. Dropout
 * counts heads from the first one of the problem, the kernels from that of the head slice. The
 * reference of a row depends on the 64 rows of its warpgroup, and which tiles are split on all of
 * them: bits that may not depend on either are for others, too. */
static bool can_run(const struct ra__sm90_program *p, const struct ra__problem_terms *terms)
{
    const struct ra__program *program = p->program;
    if (terms && (terms->see_from || terms->see_to)) return false;
    if (p->origin && p->terms & POSITION_TERMS) return false;
    if (p->terms & RA__SM90_DROPOUT && program->work.first_head != 0) return false;
    if (program->direction == RA__BACKWARD) return true;
    return program->split.ranges == 1 && !program->same_bits;
}

static void destroy(void *schedule)
{
    struct ra__sm90_program *p = schedule;
    if (!p) return;
    for (int i = 0; i < p->work_count; i++) ra__sm90_work_clear(&p->works[i]);
    free(p->works);
    free(p->steps);
    free(p);
}

static int create(const struct ra__program *program, const struct ra__problem_terms *terms,
                  void **out)
{
    *out = NULL;
    struct ra__sm90_program *p = calloc(1, sizeof *p);
    if (!p) return -1;
    p->program = program;
    p->terms = terms_of(terms);
    p->origin = terms && terms->origin;
    p->carried = carries(p);
    p->steps = calloc((size_t)program->step_count + 1, sizeof *p->steps);
    const int status = !p->steps ? -1 : can_run(p, terms) ? fill(p) : 0;
    if (status == 0 && can_run(p, terms) && has_work(p)) *out = p;
    else destroy(p);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static size_t bytes_of(const void *schedule, size_t *scratch)
{
    const struct ra__sm90_program *p = schedule;
    size_t bytes = 0;
    for (int i = 0; i < p->work_count; i++) {
        const struct ra__sm90_work *work = &p->works[i];
        if (!work->schedule.clusters) continue;
        const size_t most = ra__sm90_scratch_of(work, &p->program->work.shape, NULL).bytes;
        bytes += ra__sm90_work_bytes(work, &p->program->work.shape);
        if (most > *scratch) *scratch = most;
    }
    return bytes;
}

static int place(void *schedule, char *host, char *device, char *scratch)
{
    struct ra__sm90_program *p = schedule;
    const struct ra__shape *shape = &p->program->work.shape;
    size_t used = 0;
    p->scratch = scratch;
    for (int i = 0; i < p->work_count; i++) {
        struct ra__sm90_work *work = &p->works[i];
        const size_t bytes = work->schedule.clusters ? ra__sm90_work_bytes(work, shape) : 0;
        if (bytes == 0) continue;
        if (ra__sm90_work_place(work, shape, host + used, device + used)) return -1;
        used += bytes;
    }
    return 0;
}

const struct ra__cuda_scheduler ra__sm90_scheduler = {
    .create = create,
    .bytes = bytes_of,
    .place = place,
    .run = ra__sm90_run,
    .writes_queries = ra__sm90_writes_queries,
    .destroy = destroy,
};

static int is_for(int sm) { return sm == 90; }

const struct ra__kernel ra__cuda_kernel_sm90 = {
    .name = "sm90",
    .summary = "Hopper: wgmma and the copy engine; dims 64, 128, 256",
    .dtypes = 1u << RA__CUDA_BF16 | 1u << RA__CUDA_F16,
    .sm = 90,
    .gpus = "9.0",
    .is_for = is_for,
    .takes = takes,
    .scheduler = &ra__sm90_scheduler,
};
