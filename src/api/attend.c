/* SPDX-License-Identifier: Apache-2.0 */
/* attend.c - the two entry points that compute: checks the tensors, then runs a program. */
#include <inttypes.h>

#include "api/handles.h"

/* Makes this thread the only one on the plan's group. */
static ra_status enter(const ra_plan *plan, const char *what)
{
    if (!plan) return ra__fail(RA_ERR_ARGUMENT, "%s: NULL argument", what);
    if (!plan->group)
        return ra__fail(RA_ERR_ARGUMENT, "%s: this plan was made without a group", what);
    return ra__group_enter(what, plan->group);
}

/* Ends the call. A rank that never started would leave the others waiting: they are told why. */
static ra_status leave(const ra_plan *plan, bool started, ra_status status)
{
    if (!started) status = ra__report_to_group(plan->group, status);
    ra__leave(&plan->group->busy);
    return status;
}

/* The shard of this rank, as the caller has it. */
static const struct ra__side *caller_of(const ra_plan *plan)
{
    return &plan->programs.forward.caller;
}

/* The tensors of both directions. */
static ra_status take_inputs(const ra_plan *plan, const ra_const_tensor *q,
                             const ra_const_tensor *k, const ra_const_tensor *v, struct ra__io *io)
{
    const struct ra__side *caller = caller_of(plan);
    const struct ra__shape *s = &caller->shape;
    struct ra__tensor_shape qs = { "q", caller->queries, s->q_heads, s->dim };
    struct ra__tensor_shape ks = { "k", caller->keys, s->kv_heads, s->dim };
    struct ra__tensor_shape vs = { "v", caller->keys, s->kv_heads, s->value_dim };
    RA__TRY(ra__input_from(s, qs, q, &io->q));
    RA__TRY(ra__input_from(s, ks, k, &io->k));
    return ra__input_from(s, vs, v, &io->v);
}

static struct ra__tensor_shape out_shape(const ra_plan *plan, const char *name)
{
    const struct ra__side *caller = caller_of(plan);
    return (struct ra__tensor_shape){ name, caller->queries, caller->shape.q_heads,
                                      caller->shape.value_dim };
}

ra_status ra__check_bias(const struct ra__plan_input *input)
{
    char strategy[RA__STRATEGY_TEXT];
    if (input->team == 1) return RA_OK;
    ra__strategy_format(input, strategy);
    return ra__fail(RA_ERR_UNSUPPORTED,
                    "bias: strategy %s sends queries to other ranks, and a bias stays with its "
                    "rank; use ring or allgather",
                    strategy);
}

/* The bias of this rank's queries, strides filled in. */
static ra_status take_bias(const ra_plan *plan, const ra_bias *bias, struct ra__io *io)
{
    io->bias = *bias;
    if (!bias->data) return RA_OK;
    if (bias->reserved) return ra__fail(RA_ERR_ARGUMENT, "bias: reserved is not 0");
    if (bias->mask != 0 && bias->mask != 1)
        return ra__fail(RA_ERR_ARGUMENT, "bias: mask is %d, but must be 0 or 1", bias->mask);
    RA__TRY(ra__check_bias(&plan->programs.caller));
    if (bias->batch_stride < 0 || bias->head_stride < 0 || bias->query_stride < 0)
        return ra__fail(RA_ERR_ARGUMENT, "bias: a stride is negative");
    if (!bias->mask && (uintptr_t)bias->data % sizeof(float))
        return ra__fail(RA_ERR_ARGUMENT, "bias: data is not aligned to f32");
    if (!bias->query_stride) io->bias.query_stride = plan->programs.caller.shape.k_len;
    return RA_OK;
}

/* What a run writes, and after it what it reads; NULL = not there. Outputs are written while inputs
 * are still read, so none may start where something else does. Tensors that interleave in one array
 * start at different places: they are the caller's matter. */
static ra_status check_apart(const void *const *all, const char *const *names, int outputs,
                             int count)
{
    for (int i = 0; i < outputs; i++)
        for (int j = i + 1; j < count && all[i]; j++)
            if (all[i] == all[j])
                return ra__fail(RA_ERR_ARGUMENT, "%s: has the memory of %s", names[i], names[j]);
    return RA_OK;
}

static ra_status check_forward_apart(const struct ra__io *io)
{
    static const char *const names[] = { "out", "lse", "q", "k", "v", "bias", "sinks" };
    const void *const all[] = { io->out.data, io->lse,       io->q.data, io->k.data,
                                io->v.data,   io->bias.data, io->sinks };
    _Static_assert(RA__COUNT(names) == RA__COUNT(all), "a name for each");
    return check_apart(all, names, 2, RA__COUNT(all));
}

static ra_status check_backward_apart(const struct ra__io *io)
{
    static const char *const names[] = { "dq", "dk",  "dv",   "dsinks", "dbias", "q",    "k",
                                         "v",  "out", "dout", "lse",    "dlse",  "bias", "sinks" };
    const void *const all[] = { io->dq.data,   io->dk.data,   io->dv.data, io->dsinks,
                                io->dbias,     io->q.data,    io->k.data,  io->v.data,
                                io->out.data,  io->dout.data, io->lse,     io->dlse,
                                io->bias.data, io->sinks };
    _Static_assert(RA__COUNT(names) == RA__COUNT(all), "a name for each");
    return check_apart(all, names, 5, RA__COUNT(all));
}

/* Callbacks instead of tensors: those that a direction needs must be there. */
static ra_status take_stream(const ra_plan *plan, const ra_stream *given, bool backward,
                             ra_stream *stream, struct ra__io *io)
{
    *stream = ra_stream_default();
    RA__TRY(ra__take_struct("ra_stream", stream, sizeof *stream, given));
    if (!plan->programs.caller.strategy->streams || !plan->programs.caller.sourced)
        return ra__fail(RA_ERR_ARGUMENT,
                        "stream: the plan is of strategy %s, without sources; set "
                        "both in ra_plan_options",
                        plan->strategy);
    const struct {
        const char *name;
        bool missing;
    } needed[] = { { "q", !stream->q.read },
                   { "k", !stream->k.read },
                   { "v", !stream->v.read },
                   { "out", backward ? !stream->out.read : !stream->out.write },
                   { "lse", backward && !stream->lse.read },
                   { "dout", backward && !stream->dout.read },
                   { "partial_dq[0]",
                     backward && !(stream->partial_dq[0].read && stream->partial_dq[0].write) },
                   { "partial_dq[1]",
                     backward && !(stream->partial_dq[1].read && stream->partial_dq[1].write) } };
    for (int i = 0; i < RA__COUNT(needed); i++)
        if (needed[i].missing)
            return ra__fail(RA_ERR_ARGUMENT, "stream: a callback of %s is missing", needed[i].name);
    if (stream->queue && plan->backend->host)
        return ra__fail(RA_ERR_ARGUMENT,
                        "stream: queue is for rows in memory of a device; %s computes in host "
                        "memory: leave it NULL",
                        plan->backend->name);
    io->stream = stream;
    return RA_OK;
}

/* A plan for callbacks has counted no memory of tensors. */
static ra_status refuse_memory(const ra_plan *plan)
{
    if (!plan->programs.caller.sourced || !plan->programs.caller.strategy->streams) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "stream: the plan was made with sources, and needs callbacks");
}

/* Those in memory of a device are not looked at: kernels take what lies outside as 0, or all. */
static ra_status take_counts(const ra_plan *plan, const int64_t *counts, struct ra__io *io)
{
    const struct ra__shape *s = &caller_of(plan)->shape;
    if (!counts) return RA_OK;
    if (!plan->programs.caller.counts)
        return ra__fail(RA_ERR_ARGUMENT,
                        "attend: counts are given, but the plan was made without; set counts in "
                        "ra_plan_options");
    if (io->bias.data) return ra__fail(RA_ERR_UNSUPPORTED, "attend: counts with a bias");
    for (int64_t i = 0; plan->backend->host && i < s->batch; i++)
        if (counts[i] < 0 || counts[i] > s->k_len)
            return ra__fail(RA_ERR_ARGUMENT,
                            "attend: counts[%" PRId64 "] is %" PRId64 ", but must be 0 to %" PRId64,
                            i, counts[i], s->k_len);
    io->counts = counts;
    return RA_OK;
}

static ra_status take_attend_args(const ra_plan *plan, const ra_attend_args *given,
                                  ra_stream *stream, struct ra__io *io)
{
    if (!given) return ra__fail(RA_ERR_ARGUMENT, "attend: NULL argument");
    const ra_attend_args *args = given;
    ra_attend_args ours; /* where the caller's struct is of another version */
    if (given->size != sizeof ours) {
        ours = ra_attend_args_default();
        RA__TRY(ra__take_struct("ra_attend_args", &ours, sizeof ours, given));
        args = &ours;
    }
    *io = (struct ra__io){ .lse = args->lse,
                           .progress = args->progress,
                           .context = args->context,
                           .sinks = args->sinks,
                           .seed = args->dropout_seed,
                           .queue = args->queue };
    RA__TRY(take_bias(plan, &args->bias, io));
    RA__TRY(take_counts(plan, args->counts, io));
    if (args->stream) return take_stream(plan, args->stream, false, stream, io);
    RA__TRY(refuse_memory(plan));
    RA__TRY(take_inputs(plan, &args->q, &args->k, &args->v, io));
    RA__TRY(ra__output_from(&plan->programs.caller.shape, out_shape(plan, "out"), &args->out,
                            &io->out));
    return check_forward_apart(io);
}

ra_status ra_attend(ra_plan *plan, const ra_attend_args *args)
{
    struct ra__io io;
    ra_stream stream;
    RA__TRY(enter(plan, "attend"));
    ra_status status = take_attend_args(plan, args, &stream, &io);
    if (status != RA_OK) return leave(plan, false, status);
    return leave(plan, true, ra__exec_run(&plan->exec, RA__FORWARD, &io));
}

static ra_status take_gradients(const ra_plan *plan, const ra_gradient_args *args,
                                struct ra__io *io)
{
    const struct ra__side *caller = caller_of(plan);
    const struct ra__shape *s = &caller->shape;
    struct ra__tensor_shape dq = { "dq", caller->queries, s->q_heads, s->dim };
    struct ra__tensor_shape dk = { "dk", caller->keys, s->kv_heads, s->dim };
    struct ra__tensor_shape dv = { "dv", caller->keys, s->kv_heads, s->value_dim };
    RA__TRY(ra__output_from(s, dq, &args->dq, &io->dq));
    RA__TRY(ra__output_from(s, dk, &args->dk, &io->dk));
    return ra__output_from(s, dv, &args->dv, &io->dv);
}

static ra_status take_dbias(const ra_plan *plan, const ra_gradient_args *args, struct ra__io *io)
{
    const struct ra__shape *s = &plan->programs.caller.shape;
    const ra_bias *bias = &io->bias;
    if (!args->dbias) return RA_OK;
    if (!bias->data || bias->mask)
        return ra__fail(RA_ERR_ARGUMENT, "gradient: dbias is given without a bias that is added");
    if (args->stream)
        return ra__fail(RA_ERR_UNSUPPORTED, "gradient: dbias needs tensors in memory");
    if ((uintptr_t)args->dbias % sizeof(float))
        return ra__fail(RA_ERR_ARGUMENT, "gradient: dbias is not aligned to f32");
    /* Heads, or batch items, that share a plane of the bias share its sums. */
    struct ra__axis axes[] = { { "batch", bias->batch_stride ? s->batch : 1, bias->batch_stride },
                               { "head", bias->head_stride ? s->q_heads : 1, bias->head_stride },
                               { "query", caller_of(plan)->queries, bias->query_stride } };
    RA__TRY(ra__check_overlap("dbias", axes, s->k_len));
    io->dbias = args->dbias;
    return RA_OK;
}

static ra_status take_gradient_args(const ra_plan *plan, const ra_gradient_args *given,
                                    ra_stream *stream, struct ra__io *io)
{
    if (!given) return ra__fail(RA_ERR_ARGUMENT, "gradient: NULL argument");
    const struct ra__shape *s = &plan->programs.caller.shape;
    if (!plan->programs.caller.backward)
        return ra__fail(RA_ERR_ARGUMENT,
                        "gradient: made without backward; set it in ra_plan_options");
    ra_gradient_args args = ra_gradient_args_default();
    RA__TRY(ra__take_struct("ra_gradient_args", &args, sizeof args, given));
    if (!args.stream && !args.lse && caller_of(plan)->queries > 0)
        return ra__fail(RA_ERR_ARGUMENT, "gradient: lse is required");
    /* The LSE is only read in a backward run; the cast matches the type of forward. */
    *io = (struct ra__io){ .lse = (float *)args.lse,
                           .dlse = args.dlse,
                           .progress = args.progress,
                           .context = args.context,
                           .sinks = args.sinks,
                           .dsinks = args.dsinks,
                           .seed = args.dropout_seed,
                           .queue = args.queue };
    if (args.dsinks && !args.sinks)
        return ra__fail(RA_ERR_ARGUMENT, "gradient: dsinks is given without sinks");
    RA__TRY(take_bias(plan, &args.bias, io));
    RA__TRY(take_dbias(plan, &args, io));
    if (args.stream) return take_stream(plan, args.stream, true, stream, io);
    RA__TRY(refuse_memory(plan));
    RA__TRY(take_inputs(plan, &args.q, &args.k, &args.v, io));
    RA__TRY(ra__input_from(s, out_shape(plan, "out"), &args.out, &io->out));
    RA__TRY(ra__input_from(s, out_shape(plan, "dout"), &args.dout, &io->dout));
    RA__TRY(take_gradients(plan, &args, io));
    return check_backward_apart(io);
}

ra_status ra_gradient(ra_plan *plan, const ra_gradient_args *args)
{
    struct ra__io io;
    ra_stream stream;
    RA__TRY(enter(plan, "gradient"));
    ra_status status = take_gradient_args(plan, args, &stream, &io);
    if (status != RA_OK) return leave(plan, false, status);
    return leave(plan, true, ra__exec_run(&plan->exec, RA__BACKWARD, &io));
}
