/* machine.c - the figures of a machine: what a caller gives, and measuring them. */
#include <math.h>

#include "api/handles.h"
#include "exec/measure.h"

static ra_status check(const char *name, double figure)
{
    if (isfinite(figure) && figure >= 0.0) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "plan: %s is %g, but must be 0 (not known) or above", name,
                    figure);
}

ra_status ra__machine_from(const ra_plan_options *options, const char *transport,
                           struct ra__machine *out, char figures[RA__FIGURES_TEXT])
{
    ra_machine measured = ra_machine_default();
    RA__TRY(ra__take_struct("ra_machine", &measured, sizeof measured, options->machine));
    RA__TRY(check("latency", options->latency));
    RA__TRY(check("bandwidth", options->bandwidth));
    RA__TRY(check("flops", options->flops));
    RA__TRY(check("backward_flops", options->backward_flops));
    RA__TRY(check("machine.latency", measured.latency));
    RA__TRY(check("machine.bandwidth", measured.bandwidth));
    RA__TRY(check("machine.flops", measured.flops));
    RA__TRY(check("machine.backward_flops", measured.backward_flops));
    struct ra__machine_sources sources = {
        .given = { options->latency, options->bandwidth, options->flops, options->backward_flops },
        .measured = { measured.latency, measured.bandwidth, measured.flops,
                      measured.backward_flops },
        .transport = transport,
        .backward = options->backward != 0,
    };
    ra__machine_settle(&sources, out, figures);
    return RA_OK;
}

static ra_status measure(const ra_group *group, const ra_problem *problem,
                         const ra_plan_options *given, ra_machine *out)
{
    ra_plan_options options = ra_plan_options_default();
    ra_problem taken;
    struct ra__machine machine;
    RA__TRY(ra__take_struct("ra_plan_options", &options, sizeof options, given));
    struct ra__subject subject = { .rank = &group->rank,
                                   .kernel = options.kernel,
                                   .backward = options.backward != 0 };
    RA__TRY(ra__problem_from(problem, &subject.shape, &taken));
    RA__TRY(ra__measure(&subject, &machine));
    ra__rank_rest(&group->rank);
    *out = ra_machine_default();
    out->latency = machine.latency;
    out->bandwidth = machine.bandwidth;
    out->flops = machine.flops;
    out->backward_flops = machine.backward_flops;
    return RA_OK;
}

ra_status ra_group_measure(ra_group *group, const ra_problem *problem, const ra_plan_options *given,
                           ra_machine *out)
{
    ra_machine machine;
    if (!group || !problem || !out) return ra__fail(RA_ERR_ARGUMENT, "measure: NULL argument");
    ra_status status = measure(group, problem, given, &machine);
    if (status == RA_OK) return ra__give_struct("ra_machine", out, &machine, sizeof machine);
    return ra__tell_others(group, status);
}
