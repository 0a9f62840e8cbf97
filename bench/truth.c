/* SPDX-License-Identifier: Apache-2.0 */
/* truth.c - nothing is faster than the machine. */
#include "truth.h"

#include <math.h>
#include <string.h>

/* A kernel that beats its ceiling by more than noise did less than it says. */
#define CEILING_SLACK 1.05

static const char *ceiling_name(const struct record *r) { return r->dtype ? r->ceiling : r->name; }

/* The best that a line's ceiling ever showed with as many threads. Bytes read depend on the line,
 * so decoding has only its own samples. */
static double peak_of(const struct records *records, const struct record *row)
{
    double peak = row->peak;
    for (int i = 0; i < records->count && strcmp(row->kind, "decode"); i++) {
        const struct record *r = &records->rows[i];
        const char *name = ceiling_name(r);
        if (r->threads == row->threads && strcmp(r->kind, "decode") && name &&
            !strcmp(name, row->ceiling))
            peak = fmax(peak, r->peak);
    }
    return peak;
}

int truth_check(const struct records *records)
{
    int status = EXIT_PASS;
    for (int i = 0; i < records->count; i++) {
        const struct record *r = &records->rows[i];
        double peak = r->ceiling ? peak_of(records, r) : INFINITY;
        if (!(r->rate.most > CEILING_SLACK * peak)) continue;
        fprintf(stderr,
                "ringattn: bench: %s %s d=%lld %s %s of %lld keys on %d threads: %.1f %s is faster "
                "than its ceiling %s, %.1f\n",
                r->name, r->dtype, (long long)r->dim, r->pass, r->pattern, (long long)r->k_len,
                r->threads, r->rate.most, r->unit, r->ceiling, peak);
        status = EXIT_CHECK;
    }
    return status;
}
