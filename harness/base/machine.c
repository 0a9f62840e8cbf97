/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what the operating system knows: cores, memory, the clock. */
#include "machine.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"

#ifdef __GLIBC__
#include <malloc.h>
/* At most 32 MiB: what is larger is mapped and given back by itself, as always. */
void machine_keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
}
#else
void machine_keep_memory(void) {}
#endif

int machine_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

const char *machine_cpu(void)
{
    static char name[128] = "unknown CPU";
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "model name : %127[^\n]", name) == 1) break;
    if (file) fclose(file);
    return name;
}

size_t machine_memory(void)
{
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    FILE *limit = fopen("/sys/fs/cgroup/memory.max", "r");
    if (!limit) return bytes;
    unsigned long long group;
    if (fscanf(limit, "%llu", &group) == 1 && group < bytes) bytes = (size_t)group;
    fclose(limit);
    return bytes;
}

/* A million tokens are half a million small pages per tensor: looking these up costs a tenth of the
 * time of sparse attention. */
void *machine_tensor(size_t bytes)
{
    enum { LARGE_PAGE = 1 << 21 };
    void *memory = NULL;
    if (bytes < LARGE_PAGE) return malloc(bytes ? bytes : 1);
    if (posix_memalign(&memory, LARGE_PAGE, bytes)) return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: small pages do as well */
    return memory;
}

size_t machine_peak_rss(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

double machine_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
