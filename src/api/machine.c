/* machine.c - the figures that predictions are made with: what the caller gives comes before what
 * was measured, and that before what is usual. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"

/* What a machine is taken for where nobody knows. */
static const struct {
    const char *transport; /* NULL: any other */
    struct ra__machine machine;
} machines[] = {
    { "local", { 5e-6, 8e9, 1e11, 1e11 } }, /* copies between threads */
    { NULL, { 30e-6, 1.2e9, 1e11, 1e11 } }, /* 10 Gbit/s Ethernet */
};

static const char *settle(double given, double measured, double *usual)
{
    if (given > 0.0 || measured > 0.0) *usual = given > 0.0 ? given : measured;
    return given > 0.0 ? "given" : measured > 0.0 ? "measured" : "assumed";
}

static ra_status check(const char *name, double figure)
{
    if (isfinite(figure) && figure >= 0.0) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "plan: %s is %g, but must be 0 (not known) or above", name,
                    figure);
}

ra_status ra__machine_settle(const ra_plan_options *options, const char *transport,
                             struct ra__machine *out, char figures[RA__FIGURES_TEXT])
{
    int row = 0;
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
    while (machines[row].transport && strcmp(machines[row].transport, transport)) row++;
    *out = machines[row].machine;
    double backward = options->backward_flops > 0.0 ? options->backward_flops : options->flops;
    const char *latency = settle(options->latency, measured.latency, &out->latency);
    const char *bandwidth = settle(options->bandwidth, measured.bandwidth, &out->bandwidth);
    const char *flops = settle(options->flops, measured.flops, &out->flops);
    const char *back = settle(backward, measured.backward_flops, &out->backward_flops);
    int used = snprintf(
        figures, RA__FIGURES_TEXT, "%.3g us (%s), %.3g GB/s (%s), %.4g GFLOP/s a rank (%s)",
        out->latency * 1e6, latency, out->bandwidth * 1e-9, bandwidth, out->flops * 1e-9, flops);
    if (options->backward && used < RA__FIGURES_TEXT)
        snprintf(figures + used, RA__FIGURES_TEXT - (size_t)used, ", %.4g backward (%s)",
                 out->backward_flops * 1e-9, back);
    return RA_OK;
}
