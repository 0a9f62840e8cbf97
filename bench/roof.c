/* SPDX-License-Identifier: Apache-2.0 */
/* roof.c - nothing is faster than the machine. */
#include "roof.h"

#include <math.h>
#include <string.h>

/* A kernel that beats its ceiling by more than noise did less than it says. */
#define CEILING_SLACK 1.05

static const struct rule {
    const char *kernel, *ceiling;
} rules[] = {
    { "avx2", "fma-avx2" },
    { "avx512", "fma-avx512" },
    { "avx512bf16", "dpbf16-avx512" },
    { "amx", "tdpbf16-amx" },
};

/* Both 16-bit dtypes are multiplied at one rate. */
static const struct rule device_rules[] = {
    { "simt", "fma-f32" },
    { "tf32x3", "mma-tf32x3" },
    { "mma", "mma-bf16" },
    { "sm90", "wgmma-bf16" },
};

const struct ceiling *roof_usable(const char *name)
{
    const struct ceiling *ceiling = name ? ceiling_find(name) : NULL;
    return ceiling && !ceiling_absent(ceiling) ? ceiling : NULL;
}

const struct ceiling *roof_of(const char *kernel)
{
    const struct ceiling *own = NULL;
    for (int i = 0; i < COUNT(rules) && !own; i++)
        if (!strcmp(rules[i].kernel, kernel)) own = roof_usable(rules[i].ceiling);
    if (!own) own = roof_usable("fma-avx512");
    return own ? own : roof_usable("fma-avx2");
}

const char *roof_of_device(const char *kernel)
{
    for (int i = 0; i < COUNT(device_rules); i++)
        if (!strcmp(device_rules[i].kernel, kernel)) return device_rules[i].ceiling;
    return NULL;
}

/* Threads that a row keeps busy at once. */
static int64_t busy(const struct row *row)
{
    if (!row_is_cpu(row)) return 1;
    int64_t threads = (row->ranks ? row->ranks : 1) * row->threads;
    return threads < row->cores ? threads : row->cores;
}

/* Bytes read depend on the row, so a decode has only its own samples. */
static double peak_of(const struct row *row, const struct rows *rows)
{
    double peak = row->ceiling_peak;
    for (int i = 0; i < rows->count && strcmp(row->kind, "decode"); i++) {
        const struct row *r = &rows->at[i];
        bool other = strcmp(r->ceiling, row->ceiling) || !strcmp(r->kind, "decode");
        if (!other && busy(r) >= busy(row)) peak = fmax(peak, r->ceiling_peak);
    }
    return peak;
}

int roof_check(const struct row *row, const struct rows *rows)
{
    if (!*row->ceiling || !strcmp(row->kind, "ceiling")) return EXIT_PASS;
    double peak = peak_of(row, rows);
    if (!(row->rate_most > CEILING_SLACK * peak)) return EXIT_PASS;
    fprintf(stderr, "ringattn: bench: %s, %s, %s: %.1f %s is faster than its ceiling %s, %.1f\n",
            row->problem, row->pass, row->kernel, row->rate_most, row->unit, row->ceiling, peak);
    return EXIT_CHECK;
}
