/* swap.c - SWAP: rows and heads that two members of a team exchange, between the caller's tensors,
 * those of the share, and messages. plan/swap.c says when, and counts the bytes of the same fields.
 *
 * A message holds field after field, each [batch, head, row] in the order of the heads of the share
 * and of the rows of the shard. */
#include "exec/exec.h"

/* Numbers in memory: where those of a batch item, row and head lie. Strides in bytes. */
struct numbers {
    char *data; /* NULL: not wanted */
    ra_dtype dtype;
    size_t batch, row, head;
};

/* What is exchanged of every row and head. */
struct field {
    bool keys; /* else of queries */
    bool add;  /* at home, to what other members sent */
    int width;
    struct numbers home, share;
    ra_dtype travels; /* as */
};

enum { MOST_FIELDS = 6 };
struct fields {
    struct field at[MOST_FIELDS];
    int count;
};

/* ---- Where things lie ------------------------------------------------------------------------ */

static struct numbers in_tensor(const ra_tensor *tensor, ra_dtype dtype)
{
    size_t element = ra__dtype_bytes(dtype);
    return (struct numbers){ tensor->data, dtype, (size_t)tensor->batch_stride * element,
                             (size_t)tensor->position_stride * element,
                             (size_t)tensor->head_stride * element };
}

/* Packed numbers [batch, row, head, width] of the queries of an input. */
static struct numbers in_rows(const struct ra__plan_input *input, const float *data, int width)
{
    size_t head = (size_t)width * sizeof(float), row = head * (size_t)input->shape.q_heads;
    return (struct numbers){ (char *)data, RA_F32,
                             row * (size_t)input->q_layout->count[input->rank], row, head };
}

/* A member without heads has no memory for them. */
static char *behind(void *data, size_t bytes) { return data ? (char *)data + bytes : NULL; }

/* K, or V `offset` numbers behind it, of the rows of a slot. */
static struct numbers in_slot(const struct ra__exec *exec, enum ra__slot slot, int offset)
{
    const struct ra__plan *plan = exec->plan;
    ra_dtype dtype = ra__slot_is_gradient(slot) ? RA_F32 : plan->input.shape.dtype;
    size_t element = ra__dtype_bytes(dtype);
    return (struct numbers){ behind(exec->slots[slot], (size_t)offset * element), dtype,
                             (size_t)ra__slot_head(plan, slot, 1, 0) * element,
                             ra__slot_row_bytes(plan, slot),
                             (size_t)(plan->input.shape.dim + plan->input.shape.value_dim) *
                                 element };
}

static ra_tensor tensor_of(void *data, int64_t heads, int64_t width, const struct ra__shape *shape)
{
    return (ra_tensor){ data, heads * width, shape->batch * heads * width, width };
}

struct ra__io ra__exec_share_io(const struct ra__exec *exec, const struct ra__io *home)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    struct ra__io share = *home;
    share.q = tensor_of(exec->slots[RA__SHARE_Q], s->q_heads, s->dim, s);
    share.k = tensor_of(exec->slots[RA__SHARE_KV], s->kv_heads, s->dim + s->value_dim, s);
    share.v = share.k;
    share.v.data = behind(share.k.data, (size_t)s->dim * ra__dtype_bytes(s->dtype));
    share.out = tensor_of(exec->slots[RA__SHARE_OUT], s->q_heads, s->value_dim, s);
    share.dout = share.out;
    share.lse = exec->lse;
    return share;
}

/* ---- What is exchanged ----------------------------------------------------------------------- */

static void add_field(struct fields *fields, struct field field)
{
    fields->at[fields->count++] = field;
}

static void add_inputs(const struct ra__exec *exec, struct fields *fields)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    const struct ra__io *home = exec->home, *share = exec->io;
    const struct {
        bool keys;
        int width;
        const ra_tensor *home, *share;
    } rows[] = { { false, s->dim, &home->q, &share->q },
                 { true, s->dim, &home->k, &share->k },
                 { true, s->value_dim, &home->v, &share->v },
                 { false, s->value_dim, &home->dout, &share->dout } };
    int count = exec->bound == &exec->backward ? 4 : 3;
    for (int i = 0; i < count; i++)
        add_field(fields, (struct field){ .keys = rows[i].keys,
                                          .width = rows[i].width,
                                          .home = in_tensor(rows[i].home, s->dtype),
                                          .share = in_tensor(rows[i].share, s->dtype),
                                          .travels = s->dtype });
}

/* A number per query and head. */
static void add_column(const struct ra__exec *exec, struct fields *fields, const float *home,
                       const float *share)
{
    add_field(fields, (struct field){ .width = 1,
                                      .home = in_rows(&exec->plan->home, home, 1),
                                      .share = in_rows(&exec->plan->input, share, 1),
                                      .travels = RA_F32 });
}

static void add_key_sums(const struct ra__exec *exec, struct fields *fields)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    bool shared = exec->plan->team.shared;
    for (int values = 0; values < 2; values++) {
        const ra_tensor *tensor = values ? &exec->home->dv : &exec->home->dk;
        int offset = values ? s->dim : 0;
        add_field(fields, (struct field){ .keys = true,
                                          .add = shared,
                                          .width = values ? s->value_dim : s->dim,
                                          .home = shared ? in_slot(exec, RA__GRAD_SHARED, offset)
                                                         : in_tensor(tensor, s->dtype),
                                          .share = in_slot(exec, RA__GRAD_OWN, offset),
                                          .travels = shared ? RA_F32 : s->dtype });
    }
}

static void add_result(const struct ra__exec *exec, struct fields *fields)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    add_field(fields, (struct field){ .width = s->value_dim,
                                      .home = in_tensor(&exec->home->out, s->dtype),
                                      .share = in_tensor(&exec->io->out, s->dtype),
                                      .travels = s->dtype });
}

static void add_query_sums(const struct ra__exec *exec, struct fields *fields)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    add_field(fields, (struct field){ .width = s->dim,
                                      .home = in_tensor(&exec->home->dq, s->dtype),
                                      .share = in_rows(&exec->plan->input, exec->dq, s->dim),
                                      .travels = s->dtype });
}

/* Those in f32 come first, so that they are aligned in messages. */
static struct fields list_fields(const struct ra__exec *exec, bool in)
{
    bool backward = exec->bound == &exec->backward;
    struct fields fields = { .count = 0 };
    if (in && backward) add_column(exec, &fields, exec->home_delta, exec->delta);
    if (in == backward) add_column(exec, &fields, exec->home->lse, exec->lse);
    if (in) add_inputs(exec, &fields);
    if (!in && !backward) add_result(exec, &fields);
    if (!in && backward) add_key_sums(exec, &fields);
    if (!in && backward) add_query_sums(exec, &fields);
    return fields;
}

/* ---- Moving ---------------------------------------------------------------------------------- */

/* Some rows of one field; each side at its first batch item, row and head. */
struct moving {
    struct numbers to, from;
    int64_t batch;
    int heads, width;
    bool add;
};

static void move_converted(const struct moving *m, char *to, const char *from, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, to += m->to.row, from += m->from.row)
        for (int d = 0; d < m->width; d++)
            ra__store(m->to.dtype, to, d, ra__load(m->from.dtype, from, d));
}

static void move_some(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct moving *m = context;
    size_t bytes = (size_t)m->width * ra__dtype_bytes(m->from.dtype);
    for (int64_t i = 0; i < m->batch * m->heads; i++) {
        size_t batch = (size_t)(i / m->heads), head = (size_t)(i % m->heads);
        char *to = m->to.data + batch * m->to.batch + head * m->to.head + (size_t)first * m->to.row;
        const char *from = m->from.data + batch * m->from.batch + head * m->from.head +
                           (size_t)first * m->from.row;
        if (m->add)
            for (int64_t row = 0; row < count; row++)
                exec->device->add((float *)(to + (size_t)row * m->to.row),
                                  (const float *)(from + (size_t)row * m->from.row),
                                  (size_t)m->width);
        else if (m->to.dtype != m->from.dtype) move_converted(m, to, from, count);
        else
            exec->device->copy(
                &(struct ra__copy){ to, from, m->to.row, m->from.row, bytes, count });
    }
}

/* A step between two members: the rows of one, with the heads of the other. */
struct exchange {
    const struct ra__step *step;
    int rows_of, heads_of; /* members */
    struct ra__heads heads;
};

static struct numbers at(struct numbers numbers, int64_t row, int head)
{
    numbers.data = behind(numbers.data, (size_t)row * numbers.row + (size_t)head * numbers.head);
    return numbers;
}

/* Where a field lies on one side of the step, from a row of the shard on; `unit` says where in the
 * share that is, `message` where in the message the field starts. */
static struct numbers side_of(const struct exchange *x, const struct field *field,
                              enum ra__slot slot, const struct ra__unit *unit,
                              struct numbers message)
{
    if (slot == RA__SWAP_SHARE) return at(field->share, unit->row, 0);
    if (slot != RA__SWAP_HOME) return at(message, unit->home, 0);
    return at(field->home, unit->home, field->keys ? x->heads.kv_first : x->heads.q_first);
}

/* A field in a message of so many rows and heads, that starts `offset` bytes into the slot. */
static struct numbers in_message(const struct ra__exec *exec, const struct exchange *x,
                                 const struct field *field, int64_t rows, size_t offset)
{
    const struct ra__step *step = x->step;
    bool packs = step->from == RA__SWAP_HOME || step->from == RA__SWAP_SHARE;
    bool direct = packs && (step->to == RA__SWAP_HOME || step->to == RA__SWAP_SHARE);
    size_t row = (size_t)field->width * ra__dtype_bytes(field->travels), head = row * (size_t)rows;
    int heads = field->keys ? x->heads.kv_heads : x->heads.q_heads;
    if (direct) return (struct numbers){ .data = NULL };
    char *data = behind(exec->slots[packs ? step->to : step->from], offset);
    return (struct numbers){ data, field->travels, head * (size_t)heads, row, head };
}

/* The rows of a member lie in its shard as one stretch; in the share, as units. */
static ra_status move_field(struct ra__exec *exec, const struct exchange *x,
                            const struct field *field, struct numbers message)
{
    const struct ra__seats *seats = field->keys ? &exec->plan->team.k : &exec->plan->team.q;
    const struct ra__step *step = x->step;
    struct moving moving = { .batch = exec->plan->input.shape.batch,
                             .heads = field->keys ? x->heads.kv_heads : x->heads.q_heads,
                             .width = field->width,
                             .add = field->add && step->to == RA__SWAP_HOME };
    for (int i = seats->first[x->rows_of]; i < seats->first[x->rows_of + 1]; i++) {
        const struct ra__unit *unit = &seats->units[i];
        moving.to = side_of(x, field, step->to, unit, message);
        moving.from = side_of(x, field, step->from, unit, message);
        if (!moving.to.data || !moving.from.data) continue; /* an LSE that nobody wants */
        size_t bytes = (size_t)(moving.batch * moving.heads * moving.width) * sizeof(float);
        RA__TRY(ra__exec_sweep(exec, unit->count, bytes, move_some, &moving));
    }
    return RA_OK;
}

ra_status ra__exec_swap(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__plan_input *home = &exec->plan->home;
    const struct ra__team *team = &exec->plan->team;
    int other = step->block - team->first;
    bool here = step->from == RA__SWAP_HOME || step->to == RA__SWAP_HOME; /* rows of this rank */
    bool in = step->from == RA__SWAP_HOME || step->to == RA__SWAP_SHARE;
    struct exchange x = { .step = step,
                          .rows_of = here ? team->member : other,
                          .heads_of = here ? other : team->member };
    x.heads = ra__heads_of(&home->shape, team->size, x.heads_of);
    struct fields fields = list_fields(exec, in);
    size_t offset = 0;
    for (int i = 0; i < fields.count; i++) {
        const struct field *field = &fields.at[i];
        const ra_layout *layout = field->keys ? home->k_layout : home->q_layout;
        int64_t rows = layout->count[team->first + x.rows_of];
        int64_t heads = field->keys ? x.heads.kv_heads : x.heads.q_heads;
        RA__TRY(move_field(exec, &x, field, in_message(exec, &x, field, rows, offset)));
        offset += (size_t)(home->shape.batch * heads * rows * field->width) *
                  ra__dtype_bytes(field->travels);
    }
    return RA_OK;
}
