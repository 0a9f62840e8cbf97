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
        slopes[h] = *text ? strtof(text, &end)
                          : (float)exp2(-8.0 * (double)(h + 1) / (double)heads);
        if (end) text = *end ? end + 1 : "0"; /* nothing is read after the last one */
    }
    *out = slopes;
    return EXIT_PASS;
}
