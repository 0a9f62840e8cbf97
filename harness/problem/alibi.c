/* SPDX-License-Identifier: Apache-2.0 */
/* alibi.c - the slopes of ALiBi: standard ones, or a list. */
#include "alibi.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text/number.h"

#define SLOPE_MOST 1e6

int alibi_check(const char *what, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    int status = copy ? EXIT_PASS : fault("out of memory: %zu bytes", strlen(text));
    double slope;
    while (!status && *text && rest)
        status = number_real(what, strsep(&rest, ","), 0.0, SLOPE_MOST, &slope);
    free(copy);
    return status;
}

static int64_t count_slopes(const char *text)
{
    int64_t count = 1;
    for (; *text; text++) count += *text == ',';
    return count;
}

/* Slope h of the paper, for a number of heads that is a power of two. */
static double slope_of(int64_t heads, int64_t h)
{
    return exp2(-8.0 * (double)(h + 1) / (double)heads);
}

/* Any other number takes the slopes of the next lower power of two, then every other slope of twice
 * that power, beginning with the first, as the code beside the paper does. */
static double standard_slope(int64_t heads, int64_t h)
{
    int64_t power = 1;
    while (2 * power <= heads) power *= 2;
    return h < power ? slope_of(power, h) : slope_of(2 * power, 2 * (h - power));
}

int alibi_slopes(const char *text, int64_t heads, float **out)
{
    if (*text && count_slopes(text) != heads)
        return refuse("--alibi: %" PRId64 " slope%s for %" PRId64
                      " query heads; give one for each, or none for the standard ones",
                      count_slopes(text), count_slopes(text) == 1 ? "" : "s", heads);
    float *slopes = malloc((size_t)heads * sizeof *slopes);
    if (!slopes) return fault("out of memory: %" PRId64 " slopes", heads);
    for (int64_t h = 0; h < heads; h++) {
        char *end = NULL;
        slopes[h] = *text ? strtof(text, &end) : (float)standard_slope(heads, h);
        if (end) text = *end ? end + 1 : "0"; /* nothing is read after the last one */
    }
    *out = slopes;
    return EXIT_PASS;
}
