/* attend.c - the two entry points that compute: checks the tensors, then runs a program. */
#include "api/handles.h"

static ra_status check_runnable(const ra_plan *plan, const void *args)
{
    if (!plan || !args) return ra__fail(RA_ERR_ARGUMENT, "attend: NULL argument");
    if (!plan->group)
        return ra__fail(RA_ERR_ARGUMENT, "attend: this plan was made without a group");
    return RA_OK;
}

/* The tensors both directions share. */
static ra_status take_inputs(const ra_plan *plan, const ra_tensor *q, const ra_tensor *k,
                             const ra_tensor *v, const ra_tensor *out, struct ra__io *io)
{
    const struct ra__shape *s = &plan->steps.home.shape;
    int64_t q_rows = ra_plan_q_count(plan), k_rows = ra_plan_k_count(plan);
    RA__TRY(ra__tensor_from("q", q, s, q_rows, s->q_heads, s->dim, &io->q));
    RA__TRY(ra__tensor_from("k", k, s, k_rows, s->kv_heads, s->dim, &io->k));
    RA__TRY(ra__tensor_from("v", v, s, k_rows, s->kv_heads, s->value_dim, &io->v));
    return ra__tensor_from("out", out, s, q_rows, s->q_heads, s->value_dim, &io->out);
}

ra_status ra__check_bias(const struct ra__plan_input *input, const char *strategy)
{
    if (input->team == 1) return RA_OK;
    return ra__fail(RA_ERR_UNSUPPORTED,
                    "bias: it stays with the queries of its rank, and strategy %s computes them "
                    "elsewhere; ring and allgather take one",
                    strategy);
}

/* The bias of this rank's queries, strides filled in. */
static ra_status take_bias(const ra_plan *plan, const ra_bias *bias, struct ra__io *io)
{
    io->bias = *bias;
    if (!bias->data) return RA_OK;
    RA__TRY(ra__check_bias(&plan->steps.home, plan->strategy));
    if (bias->batch_stride < 0 || bias->head_stride < 0 || bias->query_stride < 0)
        return ra__fail(RA_ERR_ARGUMENT, "bias: a stride is negative");
    if (!bias->mask && (uintptr_t)bias->data % sizeof(float))
        return ra__fail(RA_ERR_ARGUMENT, "bias: data is not aligned to f32");
    if (!bias->query_stride) io->bias.query_stride = plan->steps.home.shape.k_len;
    return RA_OK;
}

/* A rank that never starts leaves the others waiting: they are told at once. */
static ra_status tell_others(const ra_plan *plan, ra_status status)
{
    return plan ? ra__tell_others(plan->group, status) : status;
}

static ra_status take_attend_args(const ra_plan *plan, const ra_attend_args *given,
                                  struct ra__io *io)
{
    RA__TRY(check_runnable(plan, given));
    ra_attend_args args = ra_attend_args_default();
    RA__TRY(ra__take_struct("ra_attend_args", &args, sizeof args, given));
    *io = (struct ra__io){ .lse = args.lse,
                           .progress = args.progress,
                           .context = args.context,
                           .sinks = args.sinks,
                           .seed = args.dropout_seed };
    RA__TRY(take_bias(plan, &args.bias, io));
    return take_inputs(plan, &args.q, &args.k, &args.v, &args.out, io);
}

ra_status ra_attend(ra_plan *plan, const ra_attend_args *args)
{
    struct ra__io io;
    ra_status status = tell_others(plan, take_attend_args(plan, args, &io));
    return status == RA_OK ? ra__exec_run(&plan->exec, &plan->exec.forward, &io) : status;
}

static ra_status take_gradient_args(const ra_plan *plan, const ra_gradient_args *given,
                                    struct ra__io *io)
{
    RA__TRY(check_runnable(plan, given));
    const struct ra__shape *s = &plan->steps.home.shape;
    if (!plan->steps.home.backward)
        return ra__fail(RA_ERR_ARGUMENT,
                        "gradient: made without backward; set it in ra_plan_options");
    ra_gradient_args args = ra_gradient_args_default();
    RA__TRY(ra__take_struct("ra_gradient_args", &args, sizeof args, given));
    int64_t q_rows = ra_plan_q_count(plan), k_rows = ra_plan_k_count(plan);
    if (!args.lse && q_rows > 0) return ra__fail(RA_ERR_ARGUMENT, "gradient: lse is required");
    /* The LSE is only read in a backward run; the cast meets the forward's type. */
    *io = (struct ra__io){ .lse = (float *)args.lse,
                           .dlse = args.dlse,
                           .progress = args.progress,
                           .context = args.context,
                           .sinks = args.sinks,
                           .dsinks = args.dsinks,
                           .seed = args.dropout_seed };
    if (args.dsinks && !args.sinks)
        return ra__fail(RA_ERR_ARGUMENT, "gradient: dsinks is given without sinks");
    RA__TRY(take_bias(plan, &args.bias, io));
    RA__TRY(take_inputs(plan, &args.q, &args.k, &args.v, &args.out, io));
    RA__TRY(ra__tensor_from("dout", &args.dout, s, q_rows, s->q_heads, s->value_dim, &io->dout));
    RA__TRY(ra__tensor_from("dq", &args.dq, s, q_rows, s->q_heads, s->dim, &io->dq));
    RA__TRY(ra__tensor_from("dk", &args.dk, s, k_rows, s->kv_heads, s->dim, &io->dk));
    return ra__tensor_from("dv", &args.dv, s, k_rows, s->kv_heads, s->value_dim, &io->dv);
}

ra_status ra_gradient(ra_plan *plan, const ra_gradient_args *args)
{
    struct ra__io io;
    ra_status status = tell_others(plan, take_gradient_args(plan, args, &io));
    return status == RA_OK ? ra__exec_run(&plan->exec, &plan->exec.backward, &io) : status;
}
