/* tally.c - the errors of one tensor, and the bound they are compared with. */
#include "tally.h"

#include <math.h>

#include "harness/base/half.h"

#define ROUNDINGS_MOST 256.0 /* of a naive sum; a million terms in sequence need about this many */

static void keep_worse(struct tally *tally, struct deviation largest, struct deviation furthest)
{
    struct deviation *most = &tally->furthest;
    if (!tally->values || largest.error > tally->largest.error) tally->largest = largest;
    if (!tally->values || furthest.error - furthest.small > most->error - most->small)
        *most = furthest;
}

void tally_add(struct tally *tally, float got, double exact, float naive, double terms,
               double score_terms)
{
    if (isnan(exact)) {
        tally->wrong |= !isnan(got);
        return;
    }
    if (isinf(exact) || (exact == 0.0 && terms == 0.0)) {
        tally->wrong |= (double)got != exact;
        return;
    }
    double unit = half_unit(tally->dtype), tiny = half_tiny(tally->dtype);
    double sums = 0x1p-24 * (2.0 + 2.0 * score_terms) * terms;
    double small = unit * fabs(exact) + sums + tiny, naive_error = fabs((double)naive - exact);
    tally->wrong |= isnan(got);
    tally->blind |= isfinite(naive) && naive_error > ROUNDINGS_MOST * (unit * terms + sums + tiny);
    tally->naive_error = fmax(tally->naive_error, naive_error);
    struct deviation value = { fabs((double)got - exact), small };
    keep_worse(tally, value, value);
    tally->values++;
}

void tally_row(struct tally *tally, const float *got, const struct triple *triple, int64_t offset,
               int64_t dim, double score_terms)
{
    for (int64_t i = offset; i < offset + dim; i++)
        tally_add(tally, got[i - offset], triple->exact[i], triple->naive[i], triple->terms[i],
                  score_terms);
}

void tally_merge(struct tally *into, const struct tally *from)
{
    if (from->values) keep_worse(into, from->largest, from->furthest);
    into->naive_error = fmax(into->naive_error, from->naive_error);
    into->values += from->values;
    into->wrong |= from->wrong;
    into->blind |= from->blind;
}

double tally_bound(const struct tally *tally, struct deviation value)
{
    return 2.0 * tally->naive_error + value.small;
}

double tally_worst(const struct tally *tally)
{
    if (!tally->values) return 0.0;
    return fmax(tally->largest.error / tally_bound(tally, tally->largest),
                tally->furthest.error / tally_bound(tally, tally->furthest));
}

bool tally_passed(const struct tally *tally)
{
    bool close = tally->furthest.error <= tally_bound(tally, tally->furthest);
    return !tally->wrong && !tally->blind && close;
}

const char *tally_remark(const struct tally *tally)
{
    if (tally->blind) return "; the oracle's exact and naive values are too far apart";
    return tally->wrong ? "; NaN, or not 0 / -inf where nothing is seen" : "";
}
