/* build.c - from a problem to the plan of one rank: rows, needs, then the strategy's programs. */
#include <string.h>

#include "core/dtype.h"
#include "plan/builder.h"

#define RA__STRATEGY(name) extern const struct ra__strategy ra__strategy_##name;
#include "plan/strategy.list"
#undef RA__STRATEGY

static const struct ra__strategy *const strategies[] = {
#define RA__STRATEGY(name) &ra__strategy_##name,
#include "plan/strategy.list"
#undef RA__STRATEGY
};

const struct ra__strategy *ra__strategy_at(int index)
{
    return index >= 0 && index < RA__COUNT(strategies) ? strategies[index] : NULL;
}

static const char *name_at(int index)
{
    return ra__strategy_at(index) ? strategies[index]->name : NULL;
}

ra_status ra__strategy_find(const char *name, const struct ra__strategy **out)
{
    for (int i = 0; i < RA__COUNT(strategies); i++) {
        *out = strategies[i];
        if (!name || !strcmp(strategies[i]->name, name)) return RA_OK;
    }
    return ra__fail_unknown("strategy", name, strlen(name), name_at);
}

/* Calls the sink for every row of the queries of `rank`. */
static ra_status rows_of_rank(const struct ra__plan_input *input, int rank,
                              struct ra__row_sink sink)
{
    const ra_layout *layout = input->q_layout;
    int64_t shift = input->shape.k_len - input->shape.q_len; /* index -> position */
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        ra_run q = layout->runs[i].at;
        q.start += shift;
        RA__TRY(ra__pattern_rows(input->pattern, input->shape.k_len, q, sink));
    }
    return RA_OK;
}

/* Keeps the rows of this rank. The shard is ascending, so they lie in it one behind the other. */
static ra_status keep_row(void *context, const struct ra__row *row)
{
    struct ra__builder *b = context;
    size_t count = (size_t)b->row_count;
    struct ra__row *rows = ra__grow(NULL, b->rows, count, sizeof *rows);
    if (!rows) return ra__fail(RA_ERR_MEMORY, "plan: %d rows", b->row_count + 1);
    b->rows = rows;
    int64_t *starts = ra__grow(NULL, b->row_starts, count, sizeof *starts);
    if (!starts) return ra__fail(RA_ERR_MEMORY, "plan: %d rows", b->row_count + 1);
    b->row_starts = starts;
    rows[count] = *row;
    starts[count] = count ? starts[count - 1] + rows[count - 1].q.count : 0;
    b->row_count++;
    return RA_OK;
}

/* Adds rows of owner's block that `reader` sees to everything they count for here. */
static void note_rows(struct ra__builder *b, int reader, int owner, struct ra__range rows)
{
    struct ra__flow *flow = &b->flows[owner];
    int there = (reader - owner + b->ranks) % b->ranks; /* the hop at which the reader is visited */
    int here = (b->rank - owner + b->ranks) % b->ranks;
    if (reader == b->rank) ra__ranges_add(&flow->seen, rows.lo, rows.hi);
    if (owner == b->rank) ra__ranges_add(&b->wanted[reader], rows.lo, rows.hi);
    if (there == 0) return;
    if (there >= here) ra__ranges_add(&flow->coming, rows.lo, rows.hi);
    if (there > here) ra__ranges_add(&flow->onward, rows.lo, rows.hi);
    if (there < here) ra__ranges_add(&flow->before, rows.lo, rows.hi);
    if (there <= here) ra__ranges_add(&flow->after, rows.lo, rows.hi);
    if (owner == b->rank && there > b->last_visit) b->last_visit = there;
}

/* Notes which rows of `owner`'s block a sight touches. */
static void note_sight(struct ra__builder *b, const struct ra__sight *sight, int reader, int owner)
{
    struct ra__key_run keys;
    int64_t cursor = 0;
    while (ra__layout_next_keys(b->input->k_layout, owner, sight, &cursor, &keys)) {
        int64_t last = keys.row + (keys.count - 1) * keys.row_step;
        note_rows(b, reader, owner, (struct ra__range){ keys.row, last + 1 });
    }
}

struct reader {
    struct ra__builder *builder;
    int rank;
};

static ra_status note_row(void *context, const struct ra__row *row)
{
    struct reader *reader = context;
    for (int i = 0; i < row->sight_count; i++)
        for (int owner = 0; owner < reader->builder->ranks; owner++)
            note_sight(reader->builder, &row->sights[i], reader->rank, owner);
    return RA_OK;
}

static ra_status find_flows(struct ra__builder *b)
{
    size_t ranks = (size_t)b->ranks;
    b->flows = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *b->flows);
    b->wanted = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, ranks, sizeof *b->wanted);
    if (!b->flows || !b->wanted)
        return ra__fail(RA_ERR_MEMORY, "plan: needs of %d ranks", b->ranks);
    for (int rank = 0; rank < b->ranks; rank++) {
        struct reader reader = { b, rank };
        RA__TRY(rows_of_rank(b->input, rank, (struct ra__row_sink){ note_row, &reader }));
    }
    return RA_OK;
}

static ra_status write_programs(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    RA__TRY(rows_of_rank(input, b->rank, (struct ra__row_sink){ keep_row, b }));
    RA__TRY(find_flows(b));
    b->program = &b->plan->forward;
    RA__TRY(input->strategy->forward(b));
    RA__TRY(ra__mark_first_and_last(b));
    if (!input->backward) return RA_OK;
    b->program = &b->plan->backward;
    return input->strategy->backward(b);
}

ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan)
{
    *plan = (struct ra__plan){ .input = *input };
    struct ra__builder b = {
        .input = input, .plan = plan, .account = account, .ranks = input->ranks, .rank = input->rank
    };
    ra_status status = write_programs(&b);
    ra__free(b.rows);
    ra__free(b.row_starts);
    ra__free(b.flows);
    ra__free(b.wanted);
    if (status != RA_OK) ra__plan_clear(plan);
    return status;
}

static void clear_program(struct ra__program *program)
{
    ra__free(program->steps);
    ra__free(program->rows);
    ra__free(program->keys);
    ra__free(program->rounds);
    ra__free(program->sends);
    ra__free(program->recvs);
    *program = (struct ra__program){ 0 };
}

void ra__plan_clear(struct ra__plan *plan)
{
    clear_program(&plan->forward);
    clear_program(&plan->backward);
}

size_t ra__slot_row_bytes(const struct ra__shape *shape, enum ra__slot slot)
{
    ra_dtype dtype = ra__slot_is_gradient(slot) ? RA_F32 : shape->dtype;
    return (size_t)ra__slot_width(shape) * ra__dtype_bytes(dtype);
}

int64_t ra__program_pairs(const struct ra__shape *shape, const struct ra__program *program)
{
    int64_t pairs = 0;
    for (int r = 0; r < program->row_count; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        for (int k = 0; k < row->key_count; k++) {
            const struct ra__key_run *run = &program->keys[row->first_key + k];
            for (int64_t i = 0; i < row->q_count; i++) {
                int64_t lo, hi;
                ra__band_clip(run, row->q_pos + i * row->q_step, &lo, &hi);
                pairs += hi - lo;
            }
        }
    }
    return pairs * shape->batch * shape->q_heads;
}

int64_t ra__program_bytes(const struct ra__shape *shape, const struct ra__transfer *transfers,
                          int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (transfers[i].range.hi - transfers[i].range.lo) *
                 (int64_t)ra__slot_row_bytes(shape, transfers[i].slot);
    return bytes;
}
