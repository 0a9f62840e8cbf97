/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - the middle and the ends of some numbers. */
#include "spread.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, compare);
    double median = 0.5 * (numbers[(count - 1) / 2] + numbers[count / 2]);
    return (struct spread){ median, numbers[0], numbers[count - 1] };
}
