/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - what kernels read of a program: its rows and key runs as the plan wrote them, the
 * tiles of each step, and pieces. Filled once per plan. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

static struct ra__cuda_row row_of(const struct ra__shape *shape, const struct ra__plan_row *row)
{
    return (struct ra__cuda_row){
        .q_token = row->q_token,
        .q_token_step = row->q_token_step,
        .q_count = row->q_count,
        .q_pos = row->q_pos,
        .q_pos_step = row->q_step,
        .repeat = row->repeat,
        .q_token_advance = row->q_token_advance,
        .q_pos_advance = row->q_pos_advance,
        .head = (int32_t)row->heads.start,
        .head_step = (int32_t)row->heads.step,
        .heads = (int32_t)row->heads.count,
        .first_run = row->first_key,
        .run_count = row->key_count,
        .first = row->first,
        .last = row->last,
        .all_heads = row->heads.count == shape->q_heads && row->heads.step == 1,
    };
}

ra_status ra__cuda_tables_rows(const struct ra__cuda_program *p, struct ra__cuda_tables *tables)
{
    const struct ra__program *program = p->program;
    tables->row_count = program->row_count;
    tables->run_count = program->key_count;
    for (int i = 0; tables->rows && i < program->row_count; i++)
        tables->rows[i] = row_of(&program->work.shape, &program->rows[i]);
    for (int i = 0; tables->runs && i < program->key_count; i++) {
        const struct ra__key_run *run = &program->keys[i];
        tables->runs[i] = (struct ra__cuda_run){ run->token,
                                                 run->token_step,
                                                 run->pos,
                                                 run->pos_step,
                                                 run->count,
                                                 run->band.left,
                                                 run->band.right,
                                                 program->advances[i].token,
                                                 program->advances[i].pos };
    }
    return RA_OK;
}

/* ---- Tiles of queries ------------------------------------------------------------------------ */

static bool computes(const struct ra__step *step)
{
    return step->op == RA__OP_ATTEND || step->op == RA__OP_GRADIENT || step->op == RA__OP_MERGE;
}

/* Keys that the last query of a row may see: what its longest tile has to do, roughly. */
static int64_t work_of(const struct ra__program *program, const struct ra__plan_row *row)
{
    int64_t keys = 0, lo, hi;
    for (int i = 0; i < row->key_count; i++) {
        ra__band_clip(&program->keys[row->first_key + i],
                      row->q_pos + (row->q_count - 1) * row->q_step, &lo, &hi);
        keys += hi - lo;
    }
    return keys;
}

struct weighed {
    int64_t work;
    int row;
};

static int by_work(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    if (x->work != y->work) return x->work < y->work ? 1 : -1;
    return x->row - y->row; /* equal work: in the order of the program */
}

/* Sections of units (KV heads, or heads). The keys and values of one fit half of the L2 cache; but
 * they have about as many tiles that an SM gets several, or the longest tiles of the last section
 * would end long after the others. Tiles of keys are taken in the same sections. */
static int sections_of(const struct ra__program *program, const struct ra__cuda_facts *facts,
                       int tile_rows)
{
    const struct ra__shape *s = &program->work.shape;
    const int64_t keys = ra__max(program->work.keys, 1);
    const int64_t bytes = keys * (s->dim + s->value_dim) * (int64_t)ra__dtype_bytes(s->dtype);
    const int64_t rows = ra__max(program->work.queries * s->q_heads / s->kv_heads, 1);
    const int64_t units = (int64_t)s->batch * s->kv_heads;
    const int64_t enough = ra__ceil_div(4 * facts->sm_count, ra__ceil_div(rows, tile_rows));
    const int64_t fitting = ra__max((int64_t)(facts->l2_bytes / 2) / bytes, 1);
    const int64_t sections = ra__min(ra__ceil_div(units, fitting), units / ra__max(enough, 1));
    return (int)ra__min(ra__max(sections, 1), 1 << 20);
}

static void fill_slots(struct ra__cuda_program *p, const struct ra__step *step,
                       const struct weighed *rows, int tile_rows, struct ra__cuda_slot *slots)
{
    const struct ra__program *program = p->program;
    const struct ra__shape *s = &program->work.shape;
    struct ra__cuda_step_table *table = &p->steps[step - program->steps];
    table->tiles = 0;
    for (int i = 0; i < step->row_count; i++) {
        const struct ra__plan_row *row = &program->rows[rows[i].row];
        const struct ra__cuda_row facts = row_of(s, row);
        const int64_t group = facts.all_heads ? s->q_heads / s->kv_heads : 1;
        const int units = facts.all_heads ? s->kv_heads : facts.heads;
        const int64_t chunks = ra__ceil_div(row->q_count * group, tile_rows);
        slots[i] = (struct ra__cuda_slot){ table->tiles, chunks, rows[i].row, units };
        table->tiles += chunks * row->repeat * units * s->batch;
    }
}

static ra_status order_slots(struct ra__cuda_program *p, const struct ra__step *step, int tile_rows,
                             struct ra__cuda_slot *slots)
{
    struct weighed *rows = ra__cuda_host->alloc((size_t)step->row_count * sizeof *rows);
    if (!rows) return ra__cuda_fail(RA_ERR_MEMORY, "plan: %d rows", step->row_count);
    for (int i = 0; i < step->row_count; i++) {
        const int row = step->first_row + i;
        rows[i] = (struct weighed){ work_of(p->program, &p->program->rows[row]), row };
    }
    qsort(rows, (size_t)step->row_count, sizeof *rows, by_work);
    fill_slots(p, step, rows, tile_rows, slots);
    ra__cuda_host->free(rows);
    return RA_OK;
}

ra_status ra__cuda_tables_slots(struct ra__cuda_program *p, const struct ra__cuda_tiling *tiling,
                                const struct ra__cuda_facts *facts, struct ra__cuda_tables *tables)
{
    const struct ra__program *program = p->program;
    tables->slot_count = 0;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (!computes(step) || step->row_count == 0) continue;
        const int first = (int)tables->slot_count;
        tables->slot_count += step->row_count;
        if (!tables->slots) continue;
        p->steps[i].first_slot = first;
        p->steps[i].slot_count = step->row_count;
        const int rows = step->op == RA__OP_GRADIENT ? tiling->gradient_rows : tiling->tile_rows;
        p->steps[i].sections = sections_of(program, facts, rows);
        RA__TRY(order_slots(p, step, rows, tables->slots + first));
    }
    return RA_OK;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static struct ra__cuda_end end_of(const struct ra__end *end)
{
    const bool none = end->buffer == RA__NO_BUFFER;
    return (struct ra__cuda_end){ none ? -1 : (int32_t)end->buffer, end->head, end->number,
                                  end->token, end->step };
}

/* As many tokens as make about this many numbers for a block of threads. */
static int64_t tokens_per_item(const struct ra__program *program, const struct ra__piece *piece)
{
    enum { NUMBERS = 16384 };
    const int64_t token = program->work.shape.batch * piece->heads * piece->width;
    return ra__max(NUMBERS / ra__max(token, 1), 1);
}

ra_status ra__cuda_tables_pieces(struct ra__cuda_program *p, struct ra__cuda_tables *tables)
{
    const struct ra__program *program = p->program;
    tables->piece_count = program->piece_count;
    for (int i = 0; tables->pieces && i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        struct ra__cuda_step_table *table = &p->steps[i];
        for (int n = step->first_piece; n < step->first_piece + step->piece_count; n++) {
            const struct ra__piece *piece = &program->pieces[n];
            const int64_t each = tokens_per_item(program, piece);
            tables->pieces[n] = (struct ra__cuda_piece){ end_of(&piece->to),
                                                         end_of(&piece->from),
                                                         piece->tokens,
                                                         table->items,
                                                         each,
                                                         piece->heads,
                                                         piece->width,
                                                         (int32_t)piece->message,
                                                         piece->add };
            table->items += ra__ceil_div(piece->tokens, each);
        }
    }
    return RA_OK;
}
