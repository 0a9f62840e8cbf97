/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor.c - views of the caller's tensors: outputs whose parts overlap are refused, inputs
 * may repeat an item; an output has memory of its own; numbers go from one dtype to another. */
#include <math.h>
#include <stdlib.h>

#include "support/test.h"

#include "core/dtype.h"

enum { BATCH = 2, TOKENS = 3, HEADS = 2, DIM = 4, ROOM = 256 };

static ra_problem small_problem(int batch, int tokens, int heads)
{
    ra_problem problem = ra_problem_default();
    problem.batch = batch;
    problem.q_len = tokens;
    problem.q_heads = heads;
    problem.dim = DIM;
    return problem;
}

struct desk {
    ra_group *group;
    ra_plan *plan;
    float in[ROOM], out[ROOM], dq[ROOM], dk[ROOM], dv[ROOM], lse[ROOM];
    ra_attend_args forward;
    ra_gradient_args backward;
};

static void desk_open(struct desk *d, const ra_problem *problem)
{
    ra_plan_options options = ra_plan_options_default();
    memset(d, 0, sizeof *d);
    options.backward = 1;
    for (int i = 0; i < ROOM; i++) d->in[i] = sinf((float)i);
    assert_ok(ra_group_create_local(1, NULL, &d->group));
    assert_ok(ra_plan_create(d->group, problem, &options, &d->plan));
    d->forward = ra_attend_args_default();
    d->forward.q = d->forward.k = d->forward.v = ra_const_tensor_packed(d->in);
    d->forward.out = ra_tensor_packed(d->out);
    d->forward.lse = d->lse;
    d->backward = ra_gradient_args_default();
    d->backward.q = d->backward.k = d->backward.v = d->backward.dout = d->forward.q;
    d->backward.out = ra_const_tensor_packed(d->out);
    d->backward.lse = d->lse;
    d->backward.dq = ra_tensor_packed(d->dq);
    d->backward.dk = ra_tensor_packed(d->dk);
    d->backward.dv = ra_tensor_packed(d->dv);
}

static void desk_close(struct desk *d)
{
    ra_plan_destroy(d->plan);
    ra_group_destroy(d->group);
}

/* ---- Outputs --------------------------------------------------------------------------------- */

struct strides {
    int batch, tokens, heads; /* extents */
    int64_t strides[3];       /* of batch, position, head */
    const char *wrong;        /* NULL: right */
};

static const struct strides cases[] = {
    { BATCH, TOKENS, HEADS, { 0, 0, 0 }, NULL }, /* packed */
    { BATCH, TOKENS, HEADS, { 24, 8, 4 }, NULL },
    { BATCH, TOKENS, HEADS, { 24, 4, 12 }, NULL }, /* heads outside */
    { BATCH, TOKENS, HEADS, { 4, 16, 8 }, NULL },  /* batch inside */
    { BATCH, TOKENS, HEADS, { 60, 17, 5 }, NULL }, /* gaps */
    { 1, TOKENS, HEADS, { 0, 8, 4 }, NULL },       /* one item needs no stride */
    { BATCH, TOKENS, 1, { 12, 4, 0 }, NULL },
    { BATCH, 1, HEADS, { 8, 0, 4 }, NULL },
    { BATCH, TOKENS, HEADS, { 0, 8, 4 }, "batch_stride is 0" },
    { BATCH, TOKENS, HEADS, { 24, 0, 4 }, "position_stride is 0" },
    { BATCH, TOKENS, HEADS, { 24, 8, 0 }, "head_stride is 0" },
    { BATCH, TOKENS, HEADS, { 24, 8, 3 }, "head_stride is 3, but must be at least 4" },
    { BATCH, TOKENS, HEADS, { 24, 7, 4 }, "position_stride is 7, but must be at least 8" },
    { BATCH, TOKENS, HEADS, { 23, 8, 4 }, "batch_stride is 23, but must be at least 24" },
};

static ra_tensor view(float *data, const struct strides *c)
{
    return (ra_tensor){ data, c->strides[0], c->strides[1], c->strides[2] };
}

static void expect(const struct strides *c, const char *name, ra_status status)
{
    if (!c->wrong && status == RA_OK) return;
    const char *said = ra_last_error();
    if (c->wrong && status == RA_ERR_ARGUMENT && strstr(said, c->wrong) &&
        !strncmp(said, name, strlen(name)))
        return;
    fail_msg("%s, strides %d %d %d: %s: %s", name, (int)c->strides[0], (int)c->strides[1],
             (int)c->strides[2], ra_status_name(status), said);
}

/* A call that is refused ends its group: each output has one of its own. */
static void outputs_must_not_overlap(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        const struct strides *c = &cases[i];
        ra_problem problem = small_problem(c->batch, c->tokens, c->heads);
        struct desk d;
        desk_open(&d, &problem);
        d.forward.out = view(d.out, c);
        expect(c, "out", ra_attend(d.plan, &d.forward));
        desk_close(&d);
        static const char *const names[] = { "dq", "dk", "dv" };
        for (int which = 0; which < 3; which++) {
            desk_open(&d, &problem);
            assert_ok(ra_attend(d.plan, &d.forward));
            ra_tensor *outputs[] = { &d.backward.dq, &d.backward.dk, &d.backward.dv };
            *outputs[which] = view(outputs[which]->data, c);
            expect(c, names[which], ra_gradient(d.plan, &d.backward));
            desk_close(&d);
        }
        ra_state *made;
        float out[ROOM];
        ra_tensor to = view(out, c);
        assert_ok(ra_state_create(&problem, NULL, &made));
        expect(c, "out", ra_state_finish(made, &to, NULL));
        ra_state_destroy(made);
    }
}

/* Strides may be negative: the data then starts at the last item. */
static void outputs_may_run_backwards(void **state)
{
    (void)state;
    ra_problem problem = small_problem(BATCH, TOKENS, HEADS);
    struct desk d;
    float there[BATCH][TOKENS][HEADS * DIM], back[BATCH][TOKENS][HEADS * DIM];
    desk_open(&d, &problem);
    d.forward.out = ra_tensor_packed(there);
    assert_ok(ra_attend(d.plan, &d.forward));
    d.forward.out = (ra_tensor){ back[BATCH - 1], -TOKENS * HEADS * DIM, HEADS * DIM, DIM };
    assert_ok(ra_attend(d.plan, &d.forward));
    for (int b = 0; b < BATCH; b++)
        assert_memory_equal(there[b], back[BATCH - 1 - b], sizeof there[b]);
    desk_close(&d);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* One K and V for all batch items, by a stride of 0, gives the bits of copies. */
static void inputs_may_repeat_an_item(void **state)
{
    (void)state;
    enum { ITEM = TOKENS * HEADS * DIM };
    ra_problem problem = small_problem(BATCH, TOKENS, HEADS);
    struct desk d;
    float copies[BATCH * ITEM], want[BATCH * ITEM];
    desk_open(&d, &problem);
    for (int b = 0; b < BATCH; b++) memcpy(copies + b * ITEM, d.in, ITEM * sizeof(float));
    d.forward.k = d.forward.v = ra_const_tensor_packed(copies);
    assert_ok(ra_attend(d.plan, &d.forward));
    memcpy(want, d.out, sizeof want);
    d.forward.k = d.forward.v = (ra_const_tensor){ d.in, 0, HEADS * DIM, DIM };
    assert_ok(ra_attend(d.plan, &d.forward));
    assert_memory_equal(d.out, want, sizeof want);
    desk_close(&d);
}

/* ---- Conversion ------------------------------------------------------------------------------ */

static bool is_nan(ra_dtype dtype, uint16_t h)
{
    return isnan(dtype == RA_BF16 ? ra__from_bf16(h) : ra__from_f16(h));
}

/* Every number of 16 bits comes back from f32; NaN stays NaN. */
static void numbers_come_back(void **state)
{
    (void)state;
    enum { ALL = 1 << 16 };
    static const ra_dtype dtypes[] = { RA_BF16, RA_F16 };
    uint16_t *from = malloc(ALL * sizeof *from), *to = malloc(ALL * sizeof *to);
    float *wide = malloc(ALL * sizeof *wide);
    assert_true(from && to && wide);
    for (int i = 0; i < ALL; i++) from[i] = (uint16_t)i;
    for (int t = 0; t < TEST_COUNT(dtypes); t++) {
        assert_ok(ra_convert(dtypes[t], from, RA_F32, wide, ALL));
        assert_ok(ra_convert(RA_F32, wide, dtypes[t], to, ALL));
        for (int i = 0; i < ALL; i++)
            if (is_nan(dtypes[t], from[i]) ? !is_nan(dtypes[t], to[i]) : to[i] != from[i])
                fail_msg("dtype %d: %04x came back as %04x", (int)dtypes[t], from[i], to[i]);
        assert_ok(ra_convert(RA_F32, wide, dtypes[t], wide, ALL)); /* in place */
        assert_memory_equal(wide, to, ALL * sizeof *to);
    }
    free(from);
    free(to);
    free(wide);
}

static void halves_go_to_the_even_neighbour(void **state)
{
    (void)state;
    static const struct {
        float from;
        uint16_t bf16, f16;
    } rows[] = {
        { 1.0f, 0x3f80, 0x3c00 },           { -2.5f, 0xc020, 0xc100 },
        { 1.00390625f, 0x3f80, 0x3c04 },    /* halfway in bf16: down to even */
        { 1.01171875f, 0x3f82, 0x3c0c },    /* halfway in bf16: up to even */
        { 1.00048828125f, 0x3f80, 0x3c00 }, /* halfway in f16: down to even */
        { 1.00146484375f, 0x3f80, 0x3c02 }, /* halfway in f16: up to even */
        { 65520.0f, 0x4780, 0x7c00 },       /* too large for f16 */
        { INFINITY, 0x7f80, 0x7c00 },
    };
    for (int i = 0; i < TEST_COUNT(rows); i++) {
        uint16_t bf16, f16;
        assert_ok(ra_convert(RA_F32, &rows[i].from, RA_BF16, &bf16, 1));
        assert_ok(ra_convert(RA_F32, &rows[i].from, RA_F16, &f16, 1));
        assert_int_equal(bf16, rows[i].bf16);
        assert_int_equal(f16, rows[i].f16);
    }
    float nan = NAN;
    uint16_t h;
    assert_ok(ra_convert(RA_F32, &nan, RA_BF16, &h, 1));
    assert_true(is_nan(RA_BF16, h));
    assert_ok(ra_convert(RA_F32, &nan, RA_F16, &h, 1));
    assert_true(is_nan(RA_F16, h));
}

static void wrong_conversions_are_refused(void **state)
{
    (void)state;
    float x = 1.0f, y = 2.0f;
    assert_fails(RA_ERR_ARGUMENT, "7 is no dtype", ra_convert((ra_dtype)7, &x, RA_F32, &y, 1));
    assert_fails(RA_ERR_ARGUMENT, "-1 is no dtype", ra_convert(RA_F32, &x, (ra_dtype)-1, &y, 1));
    assert_fails(RA_ERR_ARGUMENT, "-3 numbers", ra_convert(RA_F32, &x, RA_F32, &y, -3));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_convert(RA_F32, NULL, RA_F32, &y, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_convert(RA_F32, &x, RA_F32, NULL, 1));
    assert_ok(ra_convert(RA_F32, NULL, RA_BF16, NULL, 0));
    assert_true(y == 2.0f);
}

/* ---- Other arguments that are refused -------------------------------------------------------- */

static void out_is_q(struct desk *d) { d->forward.out = ra_tensor_packed(d->in); }
static void out_is_lse(struct desk *d) { d->forward.out = ra_tensor_packed(d->lse); }
static void dk_is_dq(struct desk *d) { d->backward.dk = ra_tensor_packed(d->dq); }
static void dk_is_out(struct desk *d) { d->backward.dk = ra_tensor_packed(d->out); }
static void far_keys(struct desk *d) { d->forward.k.position_stride = INT64_MAX / 2; }
static void far_back(struct desk *d) { d->forward.k.head_stride = INT64_MIN; }
static void far_out(struct desk *d) { d->forward.out.position_stride = (int64_t)1 << 61; }

static void reserved_bias(struct desk *d)
{
    d->forward.bias.data = d->in;
    d->forward.bias.reserved = 3;
}

static void other_mask(struct desk *d)
{
    d->forward.bias.data = d->backward.bias.data = d->in;
    d->forward.bias.mask = d->backward.bias.mask = 2;
}

static const struct {
    void (*change)(struct desk *d);
    bool backward;
    const char *wrong;
} changes[] = {
    { out_is_q, false, "out: has the memory of q" },
    { out_is_lse, false, "out: has the memory of lse" },
    { dk_is_dq, true, "dq: has the memory of dk" },
    { dk_is_out, true, "dk: has the memory of out" },
    { far_keys, false, "k: its strides go beyond the address space" },
    { far_back, false, "k: its strides go beyond the address space" },
    { far_out, false, "out: its strides go beyond the address space" },
    { reserved_bias, false, "bias: reserved is not 0" },
    { other_mask, false, "bias: mask is 2, but must be 0 or 1" },
    { other_mask, true, "bias: mask is 2, but must be 0 or 1" },
};

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    const ra_problem problem = small_problem(BATCH, TOKENS, HEADS);
    for (int i = 0; i < TEST_COUNT(changes); i++) {
        struct desk d;
        desk_open(&d, &problem);
        if (changes[i].backward) assert_ok(ra_attend(d.plan, &d.forward));
        changes[i].change(&d);
        assert_fails(RA_ERR_ARGUMENT, changes[i].wrong,
                     changes[i].backward ? ra_gradient(d.plan, &d.backward)
                                         : ra_attend(d.plan, &d.forward));
        desk_close(&d);
    }
}

static void a_reserved_field_is_zero(void **state)
{
    (void)state;
    ra_problem problem = small_problem(BATCH, TOKENS, HEADS);
    ra_plan *plan = NULL;
    problem.reserved = 1;
    assert_fails(RA_ERR_ARGUMENT, "problem: reserved is not 0",
                 ra_plan_create(NULL, &problem, NULL, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_must_not_overlap),
        cmocka_unit_test(outputs_may_run_backwards),
        cmocka_unit_test(inputs_may_repeat_an_item),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_reserved_field_is_zero),
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(halves_go_to_the_even_neighbour),
        cmocka_unit_test(wrong_conversions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
