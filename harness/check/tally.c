/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c - the errors of one tensor, and the bound they are compared with. */
#include "tally.h"

#include <math.h>

#include "harness/base/half.h"

#define ROUNDINGS_MOST 256.0 /* of a naive sum; a million terms in sequence need about this many */

/* What is left of an error beyond its `small`. */
static double beyond(struct deviation value) { return value.error - value.small; }

static double steepness(struct deviation value) { return beyond(value) / value.grain; }

static void keep_worse(struct tally *tally, const struct tally *other)
{
    bool first = !tally->values;
    if (first || other->largest.error > tally->largest.error) tally->largest = other->largest;
    if (first || beyond(other->furthest) > beyond(tally->furthest))
        tally->furthest = other->furthest;
    if (first || steepness(other->steepest) > steepness(tally->steepest))
        tally->steepest = other->steepest;
}

void tally_add(struct tally *tally, float got, struct number want)
{
    double exact = want.exact, terms = want.terms;
    if (isnan(exact)) {
        tally->wrong |= !isnan(got);
        return;
    }
    if (isinf(exact) || (exact == 0.0 && terms == 0.0)) {
        tally->wrong |= (double)got != exact;
        return;
    }
    double unit = half_unit(tally->dtype), tiny = half_tiny(tally->dtype);
    double sums = 0x1p-24 * 2.0 * terms + want.moved, grain = unit * terms + sums + tiny;
    double naive_error = fabs((double)want.naive - exact);
    tally->wrong |= isnan(got);
    if (isfinite(want.naive)) {
        tally->blind |= naive_error > ROUNDINGS_MOST * grain;
        tally->naive_error = fmax(tally->naive_error, naive_error);
        tally->naive_grains = fmax(tally->naive_grains, naive_error / grain);
    }
    bool overflows = isinf(want.naive) && got == want.naive; /* beyond the dtype, for both */
    struct deviation value = { overflows ? 0.0 : fabs((double)got - exact),
                               unit * fabs(exact) + sums + tiny, grain };
    struct tally one = { .largest = value, .furthest = value, .steepest = value };
    keep_worse(tally, &one);
    tally->values++;
}

void tally_row(struct tally *tally, const float *got, const struct triple *triple, int64_t offset,
               int64_t dim)
{
    for (int64_t i = offset; i < offset + dim; i++)
        tally_add(tally, got[i - offset],
                  (struct number){ triple->exact[i], triple->terms[i], triple->moved[i],
                                   triple->naive[i] });
}

void tally_merge(struct tally *into, const struct tally *from)
{
    if (from->values) keep_worse(into, from);
    into->naive_error = fmax(into->naive_error, from->naive_error);
    into->naive_grains = fmax(into->naive_grains, from->naive_grains);
    into->values += from->values;
    into->wrong |= from->wrong;
    into->blind |= from->blind;
}

static double grains_of(const struct tally *tally) { return fmax(tally->naive_grains, 0.5); }

double tally_bound(const struct tally *tally, struct deviation value)
{
    return 2.0 * fmin(tally->naive_error, grains_of(tally) * value.grain) + value.small;
}

static double error_over_bound(const struct tally *tally, struct deviation value)
{
    return value.error / tally_bound(tally, value);
}

double tally_worst(const struct tally *tally)
{
    if (!tally->values) return 0.0;
    return fmax(
        error_over_bound(tally, tally->largest),
        fmax(error_over_bound(tally, tally->furthest), error_over_bound(tally, tally->steepest)));
}

struct deviation tally_offender(const struct tally *tally)
{
    const struct deviation values[] = { tally->largest, tally->furthest, tally->steepest };
    for (int i = 0; i < COUNT(values); i++)
        if (values[i].error > tally_bound(tally, values[i])) return values[i];
    return tally->largest;
}

/* Beyond `small` by more than 2 max naive error, or by more grains than twice the naive ones: the
 * two ends of the bound's minimum, each held against the value that is worst for it. */
bool tally_passed(const struct tally *tally)
{
    bool close = beyond(tally->furthest) <= 2.0 * tally->naive_error &&
                 (!tally->values || steepness(tally->steepest) <= 2.0 * grains_of(tally));
    return !tally->wrong && !tally->blind && close;
}

const char *tally_remark(const struct tally *tally)
{
    if (tally->blind) return "; the oracle's exact and naive values are too far apart";
    return tally->wrong ? "; not NaN, 0 or -inf exactly where it has to be" : "";
}
