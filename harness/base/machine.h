/* machine.h - what the operating system knows: cores, memory, the clock, Ctrl-C. */
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

size_t machine_peak_rss(void); /* high-water mark of this process, bytes */
double machine_seconds(void);  /* monotonic */

/* From the call on, the first Ctrl-C (or SIGTERM, SIGHUP) only sets a flag, so that work ends in
 * good order; a second one kills as usual. */
void machine_catch_interrupts(void);
bool machine_interrupted(void);
/* After that: "interrupted by Ctrl-C", or by what else. */
const char *machine_interruption(void);
/* EXIT_PASS; once interrupted a sentence that says by what, and that nothing was written. */
int machine_go_on(void);

#endif
