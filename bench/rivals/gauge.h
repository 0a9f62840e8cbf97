/* SPDX-License-Identifier: Apache-2.0 */
/* gauge.h - clock and power of a GPU while something runs on it, by the driver's own library
 * (NVML), which is looked for at run time. */
#ifndef BENCH_RIVALS_GAUGE_H
#define BENCH_RIVALS_GAUGE_H

struct gauge;

struct gauge_reading {
    double clock_mhz;   /* of the multiprocessors, mean; NaN: not known, as the next */
    double power_watts; /* of the board, mean */
};

/* Of a device by name, e.g. "cuda:0". NULL: there is no such library, GPU or memory. */
struct gauge *gauge_open(const char *device);

/* What happens between these calls is measured; both accept NULL. */
void gauge_start(struct gauge *gauge);
struct gauge_reading gauge_stop(struct gauge *gauge);

void gauge_close(struct gauge *gauge); /* accepts NULL */

#endif
