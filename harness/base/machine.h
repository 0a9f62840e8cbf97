/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - what the operating system knows: cores, memory, the clock. */
#ifndef HARNESS_MACHINE_H
#define HARNESS_MACHINE_H

#include "complain.h"

int machine_cores(void);       /* this process may run on */
const char *machine_cpu(void); /* the name its maker gave it, or "unknown CPU" */
size_t machine_memory(
    void); /* bytes this process may use: physical, or its control group's limit */
/* Memory for a tensor, in large pages where the system has them; to be freed. NULL when there is
 * none. */
void *machine_tensor(size_t bytes);

/* From here on freed memory stays with the process: the plans of thousands of ranks, made and freed
 * one after the other, take half of the time. */
void machine_keep_memory(void);

size_t machine_peak_rss(void); /* high-water mark of this process, bytes */
double machine_seconds(void);  /* monotonic */

#endif
