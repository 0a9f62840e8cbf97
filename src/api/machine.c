/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - the figures of a machine: what a caller gives, and measuring them. */
#include <math.h>

#include "api/handles.h"
#include "exec/measure.h"

static ra_status check(const char *name, const char *field, double figure)
{
    if (isfinite(figure) && figure >= 0.0) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "plan: %s.%s is %g, but must be 0 (not known) or above", name,
                    field, figure);
}

static ra_status take_machine(const char *name, const ra_machine *given, struct ra__machine *out)
{
    ra_machine m = ra_machine_default();
    RA__TRY(ra__take_struct("ra_machine", &m, sizeof m, given));
    RA__TRY(check(name, "latency", m.latency));
    RA__TRY(check(name, "bandwidth", m.bandwidth));
    RA__TRY(check(name, "flops", m.flops));
    RA__TRY(check(name, "backward_flops", m.backward_flops));
    RA__TRY(check(name, "copy", m.copy));
    RA__TRY(check(name, "load", m.load));
    *out = (struct ra__machine){
        m.latency, m.bandwidth, m.flops, m.backward_flops, m.copy, m.load
    };
    return RA_OK;
}

ra_status ra__machine_from(const ra_plan_options *options, const char *transport,
                           struct ra__machine *out, char figures[RA__FIGURES_TEXT],
                           const char **load)
{
    struct ra__machine_sources sources = { .transport = transport,
                                           .backward = options->backward != 0 };
    RA__TRY(take_machine("machine", options->machine, &sources.given));
    RA__TRY(take_machine("measured", options->measured, &sources.measured));
    ra__machine_resolve(&sources, out, figures, load);
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
    ra__rank_idle(&group->rank);
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
    RA__TRY(ra__group_enter("measure", group));
    ra_status status = ra__report_to_group(group, measure(group, problem, given, &machine));
    ra__leave(&group->busy);
    return status == RA_OK ? ra__give_struct("ra_machine", out, &machine, sizeof machine) : status;
}
