/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - making plans, and querying them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"

/* Which rank the plan is for: that of the group, or the one in the options. */
static ra_status take_rank(const ra_group *group, const ra_plan_options *options, int *ranks,
                           int *rank, int *threads)
{
    *ranks = group ? group->rank.ranks : options->ranks ? options->ranks : 1;
    *rank = group ? group->rank.rank : options->rank;
    *threads = group ? ra__rank_threads(&group->rank) : options->threads ? options->threads : 1;
    if (*ranks < 1 || *ranks > RA__MOST_RANKS || *rank < 0 || *rank >= *ranks)
        return ra__fail(RA_ERR_ARGUMENT, "plan: rank %d of %d ranks; there may be 1 to %d", *rank,
                        *ranks, RA__MOST_RANKS);
    if (*threads < 1 || *threads > RA__MOST_THREADS)
        return ra__fail(RA_ERR_ARGUMENT, "plan: %d threads; there may be 1 to %d", *threads,
                        RA__MOST_THREADS);
    return RA_OK;
}

static ra_status copy_layout(const char *whose, const ra_layout *layout, int64_t length, int ranks,
                             ra_layout **out)
{
    if (layout->length != length || layout->ranks != ranks)
        return ra__fail(RA_ERR_ARGUMENT,
                        "plan: the layout of the %s is for %" PRId64
                        " positions over %d ranks, not %" PRId64 " over %d",
                        whose, layout->length, layout->ranks, length, ranks);
    return ra__layout_copy(layout, out);
}

/* Over the ranks by the rule, in each sequence or over all positions. */
static ra_status divide(const ra_plan *plan, const char *partition, bool keys, int64_t length,
                        int ranks, ra_layout **out)
{
    const struct ra__sequences *sequences = &plan->sequences;
    if (sequences->count == 0)
        return ra__layout_create(partition, length, ranks, plan->pattern, out);
    int64_t *bounds;
    RA__TRY(ra__sequences_bounds(sequences, keys, length, &bounds));
    ra_status status = ra__layout_create_parts(partition, bounds, sequences->count + 1, ranks, out);
    ra__free(bounds);
    return status;
}

static ra_status make_layouts(ra_plan *plan, const struct ra__shape *shape,
                              const ra_plan_options *options, int ranks)
{
    bool same = shape->q_len == shape->k_len && !options->kv_layout &&
                (options->layout || plan->sequences.count == 0);
    if (options->layout && !options->kv_layout && !same)
        return ra__fail(RA_ERR_ARGUMENT,
                        "plan: kv_layout is missing; the number of keys differs from that of "
                        "queries");
    if (options->kv_layout && !options->layout)
        return ra__fail(RA_ERR_ARGUMENT, "plan: kv_layout is given without layout");
    if (options->layout && options->partition)
        return ra__fail(RA_ERR_ARGUMENT, "plan: both a partition and a layout are given");
    RA__TRY(options->layout
                ? copy_layout("queries", options->layout, shape->q_len, ranks, &plan->q_layout)
                : divide(plan, options->partition, false, shape->q_len, ranks, &plan->q_layout));
    if (same) {
        plan->k_layout = plan->q_layout;
        return RA_OK;
    }
    return options->layout
               ? copy_layout("keys", options->kv_layout, shape->k_len, ranks, &plan->k_layout)
               : divide(plan, options->partition, true, shape->k_len, ranks, &plan->k_layout);
}

/* The plan's copies of the caller's data are charged to it. */
static void charge_copies(ra_plan *plan)
{
    ra_layout *layouts[] = { plan->q_layout, plan->k_layout };
    int count = plan->q_layout == plan->k_layout ? 1 : 2;
    void *copies[] = { plan->order, plan->order ? plan->order->origin : NULL, plan->terms.alibi,
                       plan->terms.see_from, plan->terms.see_to };
    for (int i = 0; i < RA__COUNT(copies); i++) ra__charge(&plan->account, copies[i]);
    for (int i = 0; i < count; i++) ra__layout_charge(&plan->account, layouts[i]);
}

/* The most that the windows of a stream take of a budget. */
enum { WINDOW_EIGHTHS = 7 };

struct size {
    char text[16];
};

/* Human-readable, like the budgets of users: three digits and a unit. */
static struct size size_of(size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    struct size size;
    int unit = 0;
    double count = (double)bytes;
    for (; count >= 1024.0 && unit < RA__COUNT(units) - 1; unit++) count /= 1024.0;
    int digits = unit == 0 || count >= 100.0 ? 0 : count < 10.0 ? 2 : 1;
    snprintf(size.text, sizeof size.text, "%.*f %s", digits, count, units[unit]);
    return size;
}

/* Refuses before anything large is allocated. */
static ra_status check_budget(const ra_plan *plan, const ra_plan_options *options)
{
    const ra_memory *m = &plan->memory;
    if (!options->memory || m->total <= options->memory) return RA_OK;
    return ra__fail(RA_ERR_BUDGET,
                    "plan: rank %d needs %s (%zu bytes), the budget is %s (%zu bytes): shard %s, "
                    "travel %s, state %s, gradient %s, workspace %s, bookkeeping %s",
                    plan->programs.caller.rank, size_of(m->total).text, m->total,
                    size_of(options->memory).text, options->memory, size_of(m->shard).text,
                    size_of(m->travel).text, size_of(m->state).text, size_of(m->gradient).text,
                    size_of(m->workspace).text, size_of(m->bookkeeping).text);
}

/* The forecast becomes what was allocated. */
static void report_account(ra_plan *plan)
{
    ra_memory *m = &plan->memory;
    const size_t *bytes = plan->account.bytes;
    m->travel = bytes[RA__FOR_TRAVEL];
    m->state = bytes[RA__FOR_STATE];
    m->gradient = bytes[RA__FOR_GRADIENT];
    m->workspace = bytes[RA__FOR_WORKSPACE];
    m->bookkeeping = bytes[RA__FOR_BOOKKEEPING];
    m->total = m->shard + m->travel + m->state + m->gradient + m->workspace + m->bookkeeping;
}

static ra_status make_visible_ranges(ra_plan *plan, int64_t k_len)
{
    const int32_t *origin = plan->order->origin;
    size_t count = (size_t)k_len;
    int32_t *from = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, count, sizeof *from);
    int32_t *to = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, count, sizeof *to);
    plan->terms.see_from = from;
    plan->terms.see_to = to;
    if (!from || !to) return ra__fail(RA_ERR_MEMORY, "plan: %zu positions of an order", count);
    for (int64_t i = 0; i < k_len; i++) {
        int64_t low, high;
        ra__pattern_visible(plan->pattern, k_len, origin[i], &low, &high);
        from[i] = (int32_t)low;
        to[i] = (int32_t)high;
    }
    return RA_OK;
}

/* Copies of what changes scores, and the masks by original position. */
static ra_status make_terms(ra_plan *plan, const ra_problem *problem, const struct ra__shape *shape)
{
    plan->terms.softcap = problem->softcap;
    plan->terms.dropout = problem->dropout;
    if (problem->alibi) {
        size_t bytes = (size_t)shape->q_heads * sizeof(float);
        plan->terms.alibi = ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes);
        if (!plan->terms.alibi) return ra__fail(RA_ERR_MEMORY, "plan: %zu bytes", bytes);
        memcpy(plan->terms.alibi, problem->alibi, bytes);
    }
    if (!plan->order) return RA_OK;
    plan->terms.origin = plan->order->origin;
    return ra__pattern_sees_all(plan->pattern) ? RA_OK : make_visible_ranges(plan, shape->k_len);
}

/* An order that changes nothing is dropped. */
static ra_status copy_order(ra_plan *plan, const ra_order *order)
{
    if (!order || !order->origin) return RA_OK;
    return ra__order_copy(order, &plan->order);
}

static struct ra__target target_of(ra_plan *plan, int threads)
{
    return (struct ra__target){ .backend = plan->backend,
                                .kernel = plan->kernel,
                                .threads = threads,
                                .terms = &plan->terms,
                                .device = plan->group ? plan->group->rank.device : NULL,
                                .number = plan->number,
                                .runs = &plan->runs };
}

/* Workspace is not included, as struct ra__choice says. */
static ra_status bytes_of(void *context, const struct ra__plan *plan, size_t own, size_t *out)
{
    ra_memory memory;
    RA__TRY(ra__exec_memory(plan, own, context, &memory));
    *out = memory.total - memory.workspace;
    return RA_OK;
}

/* The block of a stream, where none was asked for, if its windows may have so many eighths of the
 * budget. */
static void choose_block(const ra_plan_options *options, int eighths, struct ra__plan_input *input)
{
    const size_t usual = (size_t)256 << 20;
    const size_t budget = options->memory ? options->memory / 8 * (size_t)eighths : usual;
    ra__stream_choose_block(input, budget);
    input->limit = options->memory;
}

/* The strategy asked for, or the choice of `auto`. */
static ra_status resolve_strategy(ra_plan *plan, const ra_plan_options *options,
                                  struct ra__plan_input *input)
{
    const char *usual = options->transport ? options->transport : "local";
    const char *transport = plan->group ? plan->group->rank.transport->name : usual;
    struct ra__target target = target_of(plan, 1);
    struct ra__choice choice = { .machine = &plan->machine,
                                 .figures = plan->figures,
                                 .bias = options->bias != 0,
                                 .budget = options->memory,
                                 .bytes = bytes_of,
                                 .context = &target,
                                 .why = plan->why };
    RA__TRY(ra__machine_from(options, transport, &plan->machine, plan->figures, &plan->load));
    const bool given = input->block > 0;
    if (!given) choose_block(options, WINDOW_EIGHTHS, input);
    input->chosen = input->strategy->chooses;
    if (input->chosen) RA__TRY(ra__choose(&choice, input));
    else snprintf(plan->why, sizeof plan->why, options->strategy ? "as asked" : "the default");
    plan->shrinks = input->strategy->streams && !given && options->memory > 0;
    return RA_OK;
}

/* Writes the programs and counts their memory. A stream that needs more than the budget tries again
 * with smaller windows: kernels, and steps in small blocks, need memory too. */
static ra_status build(ra_plan *plan, struct ra__plan_input *input, const ra_plan_options *options,
                       int threads, size_t *own)
{
    const struct ra__target target = target_of(plan, threads);
    plan->runs = plan->kernel;
    for (int eighths = WINDOW_EIGHTHS;; eighths -= 2) {
        RA__TRY(ra__plan_build(input, &plan->account, &plan->programs));
        *own = plan->account.bytes[RA__FOR_BOOKKEEPING];
        RA__TRY(ra__exec_memory(&plan->programs, *own, &target, &plan->memory));
        if (!plan->shrinks || plan->memory.total <= options->memory || eighths < 3) break;
        ra__plan_clear(&plan->programs);
        choose_block(options, eighths - 2, input);
    }
    ra__strategy_format(input, plan->strategy);
    if (input->strategy->streams) {
        const size_t used = strlen(plan->figures);
        snprintf(plan->figures + used, sizeof plan->figures - used, ", loads at %.3g GB/s (%s)",
                 plan->machine.load * 1e-9, plan->load);
    }
    return check_budget(plan, options);
}

/* Are all ranks in one process? They share its device then. */
static bool are_here(const ra_group *group, const ra_plan_options *options)
{
    if (group) return group->rank.transport->open != NULL;
    return !options->transport || !strcmp(options->transport, "local");
}

/* Do messages go from device to device? Without a group, those between ranks of one process do. */
static bool reaches(const ra_group *group, const ra_plan_options *options)
{
    return group ? group->rank.reaches : are_here(group, options);
}

/* May ranks read each other's memory? */
static bool takes_loans(const ra_group *group, const ra_plan_options *options)
{
    return group ? group->rank.transport->takes_loans : are_here(group, options);
}

/* Where keys are counted, what a query sees must not depend on where the keys begin. */
static ra_status check_counts(const ra_plan *plan, const ra_plan_options *options,
                              const struct ra__plan_input *input)
{
    if (!options->counts) return RA_OK;
    const char *why = input->ranks > 1            ? "one rank"
                      : input->strategy->streams  ? "tensors in memory, not a stream"
                      : input->backward           ? "forward runs"
                      : options->bias             ? "runs without a bias"
                      : plan->terms.dropout > 0.0 ? "no dropout"
                      : plan->order               ? "no order"
                      : plan->sequences.count > 0 ? "no sequences: each is a batch item"
                      : !plan->pattern->kind->relative || plan->pattern->bounds
                          ? "full, causal or window, without documents"
                          : NULL;
    if (!why) return RA_OK;
    return ra__fail(RA_ERR_UNSUPPORTED, "plan: counts of keys are for %s", why);
}

static ra_status fill_plan(ra_plan *plan, const ra_problem *problem, const ra_plan_options *options)
{
    struct ra__plan_input input = { .backward = options->backward != 0 };
    int threads;
    ra_problem given;
    RA__TRY(ra__problem_from(problem, &input.shape, &given));
    RA__TRY(take_rank(plan->group, options, &input.ranks, &input.rank, &threads));
    RA__TRY(plan->backend->choose(plan->group ? plan->group->rank.device : NULL, plan->number,
                                  options->kernel, &input.shape, input.backward, &plan->kernel));
    input.stages = !plan->backend->host && !reaches(plan->group, options);
    input.lends = !plan->backend->host && !input.stages && takes_loans(plan->group, options);
    input.loads = !plan->backend->host && !(plan->group && plan->group->on_device);
    input.many_jobs = plan->backend->many_jobs;
    input.device_ranks = are_here(plan->group, options) ? input.ranks : 1;
    input.all_heads = input.shape.q_heads;
    input.sourced = options->sources != 0;
    input.any_order = options->any_order != 0;
    input.counts = options->counts != 0;
    RA__TRY(ra__strategy_parse(options->strategy, &input));
    RA__TRY(ra__pattern_copy(given.pattern, &plan->account, &plan->pattern));
    RA__TRY(ra__sequences_take(&given, &input.shape, &plan->account, &plan->sequences));
    RA__TRY(ra__pattern_check(plan->pattern, &input.shape, &plan->sequences, given.order));
    RA__TRY(ra__pattern_prepare(plan->pattern, &plan->account, &input.shape, &plan->sequences));
    RA__TRY(copy_order(plan, given.order));
    if (plan->order && options->partition && strstr(options->partition, ";perdoc"))
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "plan: ;perdoc under an order: documents use original positions, a "
                        "partition uses the order");
    RA__TRY(make_terms(plan, &given, &input.shape));
    RA__TRY(make_layouts(plan, &input.shape, options, input.ranks));
    charge_copies(plan);
    input.pattern = plan->pattern;
    input.order = plan->order;
    input.sequences = plan->sequences;
    input.terms = &plan->terms;
    input.q_layout = plan->q_layout;
    input.k_layout = plan->k_layout;
    RA__TRY(resolve_strategy(plan, options, &input));
    if (options->bias) RA__TRY(ra__check_bias(&input));
    RA__TRY(check_counts(plan, options, &input));
    size_t own;
    RA__TRY(build(plan, &input, options, threads, &own));
    plan->exec = (struct ra__exec){ .plan = &plan->programs,
                                    .kernel = plan->kernel,
                                    .rank = plan->group ? &plan->group->rank : NULL,
                                    .terms = &plan->terms,
                                    .room = plan->memory.bookkeeping - own,
                                    .account = &plan->account };
    if (!plan->group) return RA_OK;
    RA__TRY(ra__exec_create(&plan->exec));
    report_account(plan);
    return RA_OK;
}

ra_status ra_plan_create(ra_group *group, const ra_problem *problem, const ra_plan_options *given,
                         ra_plan **out)
{
    if (!problem || !out) return ra__fail(RA_ERR_ARGUMENT, "plan: NULL argument");
    ra_plan_options options = ra_plan_options_default();
    RA__TRY(ra__take_struct("ra_plan_options", &options, sizeof options, given));
    ra_plan *plan = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *plan);
    if (!plan) return ra__fail(RA_ERR_MEMORY, "plan: %zu bytes", sizeof *plan);
    plan->group = group;
    ra__group_attach(group);
    ra_status status = group ? ra__group_enter("plan", group)
                             : ra__backend_find(options.device, &plan->backend, &plan->number);
    bool entered = group && status == RA_OK;
    if (group) plan->backend = group->rank.backend;
    if (status == RA_OK) status = fill_plan(plan, problem, &options);
    if (entered) ra__leave(&group->busy);
    if (status != RA_OK) {
        ra_plan_destroy(plan);
        return status;
    }
    ra__log(group, RA_LOG_INFO, "rank %d: plan with kernel %s, strategy %s, %zu bytes",
            plan->programs.caller.rank, ra_plan_kernel(plan), plan->strategy, plan->memory.total);
    *out = plan;
    return RA_OK;
}

void ra_plan_destroy(ra_plan *plan)
{
    if (!plan) return;
    ra__exec_destroy(&plan->exec);
    ra__plan_clear(&plan->programs);
    if (plan->k_layout != plan->q_layout) ra_layout_destroy(plan->k_layout);
    ra_layout_destroy(plan->q_layout);
    ra_pattern_destroy(plan->pattern);
    ra__sequences_clear(&plan->sequences);
    ra_order_destroy(plan->order);
    ra__free(plan->terms.alibi);
    ra__free(plan->terms.see_from);
    ra__free(plan->terms.see_to);
    ra__group_detach(plan->group);
    ra__free(plan);
}

int64_t ra_plan_units(const ra_plan *plan, int backward)
{
    if (!plan) return 0;
    return backward ? plan->programs.backward.units : plan->programs.forward.units;
}
int64_t ra_plan_block(const ra_plan *plan)
{
    return plan && plan->programs.caller.strategy->streams ? plan->programs.caller.block : 0;
}

int64_t ra_plan_q_count(const ra_plan *plan)
{
    return plan ? plan->q_layout->count[plan->programs.caller.rank] : 0;
}

int64_t ra_plan_k_count(const ra_plan *plan)
{
    return plan ? plan->k_layout->count[plan->programs.caller.rank] : 0;
}

const char *ra_plan_kernel(const ra_plan *plan)
{
    return plan ? plan->backend->kernel_name(plan->runs) : "";
}
const char *ra_plan_strategy(const ra_plan *plan) { return plan ? plan->strategy : ""; }
const char *ra_plan_why(const ra_plan *plan) { return plan ? plan->why : ""; }
const char *ra_plan_figures(const ra_plan *plan) { return plan ? plan->figures : ""; }

ra_status ra_plan_stats(const ra_plan *plan, ra_stats *out)
{
    if (!plan) return ra__fail(RA_ERR_ARGUMENT, "stats: NULL argument");
    return ra__give_struct("ra_stats", out, &plan->exec.stats, sizeof plan->exec.stats);
}

static ra_status find_program(const ra_plan *plan, int backward, const struct ra__program **out)
{
    if (!plan) return ra__fail(RA_ERR_ARGUMENT, "plan: NULL argument");
    if (backward && !plan->programs.caller.backward)
        return ra__fail(RA_ERR_ARGUMENT, "plan: made without backward; set it in ra_plan_options");
    *out = backward ? &plan->programs.backward : &plan->programs.forward;
    return RA_OK;
}

ra_status ra_plan_forecast(const ra_plan *plan, int backward, ra_stats *out)
{
    const struct ra__program *program;
    RA__TRY(find_program(plan, backward, &program));
    const struct ra__shape *shape = &plan->programs.caller.shape;
    ra_stats stats = ra_stats_default();
    for (int i = 0; i < program->round_count; i++)
        stats.hops += ra__round_carries(program, &program->rounds[i]);
    stats.bytes_sent = ra__program_bytes(&plan->programs, program->sends, program->send_count);
    stats.bytes_received = ra__program_bytes(&plan->programs, program->recvs, program->recv_count);
    stats.pairs = ra__program_pairs(&plan->programs, program);
    stats.flops = ra__flops(shape, stats.pairs, backward);
    struct ra__cost cost = ra__program_cost(&plan->programs, program, &plan->machine);
    stats.seconds = cost.seconds;
    stats.wait_seconds = cost.waited;
    const struct ra__loads loads = ra__program_loads(program);
    stats.bytes_loaded = loads.loaded;
    stats.bytes_stored = loads.stored;
    return ra__give_struct("ra_stats", out, &stats, sizeof stats);
}

ra_status ra_plan_memory(const ra_plan *plan, ra_memory *out)
{
    if (!plan) return ra__fail(RA_ERR_ARGUMENT, "memory: NULL argument");
    return ra__give_struct("ra_memory", out, &plan->memory, sizeof plan->memory);
}

ra_status ra_plan_explain(const ra_plan *plan, int backward, ra_line_fn line, void *context)
{
    const struct ra__program *program;
    if (!line) return ra__fail(RA_ERR_ARGUMENT, "explain: NULL argument");
    RA__TRY(find_program(plan, backward, &program));
    ra__plan_explain(&plan->programs, program, line, context);
    return RA_OK;
}
