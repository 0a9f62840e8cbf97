/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - the figures for predictions: those of the caller come first, then measured ones, then
 * defaults. */
#include <stdio.h>
#include <string.h>

#include "plan/choose.h"

/* The defaults. */
static const struct {
    const char *transport; /* NULL: any other */
    struct ra__machine machine;
} machines[] = {
    { "local", { 5e-6, 8e9, 1e11, 1e11, 1e10, 5e9 } }, /* copies between threads */
    { NULL, { 30e-6, 1.2e9, 1e11, 1e11, 1e10, 5e9 } }, /* 10 Gbit/s Ethernet */
};

static const char *resolve(double given, double measured, double *usual)
{
    if (given > 0.0 || measured > 0.0) *usual = given > 0.0 ? given : measured;
    return given > 0.0 ? "given" : measured > 0.0 ? "measured" : "assumed";
}

void ra__machine_resolve(const struct ra__machine_sources *sources, struct ra__machine *out,
                         char figures[RA__FIGURES_TEXT], const char **load)
{
    const struct ra__machine *given = &sources->given, *measured = &sources->measured;
    int row = 0;
    while (machines[row].transport && strcmp(machines[row].transport, sources->transport)) row++;
    *out = machines[row].machine;
    double backward = given->backward_flops > 0.0 ? given->backward_flops : given->flops;
    const char *latency = resolve(given->latency, measured->latency, &out->latency);
    const char *bandwidth = resolve(given->bandwidth, measured->bandwidth, &out->bandwidth);
    const char *flops = resolve(given->flops, measured->flops, &out->flops);
    const char *back = resolve(backward, measured->backward_flops, &out->backward_flops);
    resolve(given->copy, measured->copy, &out->copy);
    *load = resolve(given->load, measured->load, &out->load);
    int used = snprintf(
        figures, RA__FIGURES_TEXT, "%.3g us (%s), %.3g GB/s (%s), %.4g GFLOP/s a rank (%s)",
        out->latency * 1e6, latency, out->bandwidth * 1e-9, bandwidth, out->flops * 1e-9, flops);
    if (sources->backward && used < RA__FIGURES_TEXT)
        snprintf(figures + used, RA__FIGURES_TEXT - (size_t)used, ", %.4g backward (%s)",
                 out->backward_flops * 1e-9, back);
}
