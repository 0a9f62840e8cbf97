/* SPDX-License-Identifier: Apache-2.0 */
/* gauge.c - clock and power of a GPU, by NVML. Nothing of NVIDIA is needed to build it: the few
 * functions are declared here as their documentation has them. */
#include "gauge.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/machine.h"
#include "harness/device/maker.h"

enum { SUCCESS = 0, CLOCK_SM = 1 /* NVML_CLOCK_SM */, ADDRESS_BYTES = 32 };
#define STEP_SECONDS 0.01 /* between two looks at the clock */
#define MOMENT 1e-4       /* seconds: a counter that is read in less is read at one moment */

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *address, void **device);
    int (*clock)(void *device, int type, unsigned *mhz);
    int (*energy)(void *device, unsigned long long *millijoules); /* since the driver was loaded */
};

/* What the counter said at a moment. */
struct energy {
    bool known;
    unsigned long long millijoules;
    double seconds;
};

struct gauge {
    void *library;
    struct nvml nvml;
    void *device;
    pthread_t thread;
    bool running; /* the thread */
    atomic_bool stop;
    double clocks; /* sum */
    int samples;
    struct energy start;
};

/* The GPU by its place on the bus: CUDA may count GPUs in another order than NVML. */
static bool find_address(int number, char *address)
{
    int (*init)(unsigned), (*get)(int *, int), (*name)(char *, int, int), device;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return false;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&name = dlsym(driver, "cuDeviceGetPCIBusId");
    return init && get && name && !init(0) && !get(&device, number) &&
           !name(address, ADDRESS_BYTES, device);
}

static bool find_functions(void *library, struct nvml *nvml)
{
    *(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml->shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&nvml->find = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&nvml->clock = dlsym(library, "nvmlDeviceGetClockInfo");
    *(void **)&nvml->energy = dlsym(library, "nvmlDeviceGetTotalEnergyConsumption");
    return nvml->init && nvml->shutdown && nvml->find && nvml->clock && nvml->energy;
}

struct gauge *gauge_open(const char *device)
{
    char address[ADDRESS_BYTES] = "";
    struct gauge *gauge = calloc(1, sizeof *gauge);
    if (!gauge) return NULL;
    gauge->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (gauge->library && find_address(maker_number(device), address) &&
        find_functions(gauge->library, &gauge->nvml) && gauge->nvml.init() == SUCCESS) {
        if (gauge->nvml.find(address, &gauge->device) == SUCCESS) return gauge;
        gauge->nvml.shutdown();
    }
    if (gauge->library) dlclose(gauge->library);
    free(gauge);
    return NULL;
}

static void *watch(void *argument)
{
    struct gauge *gauge = argument;
    unsigned mhz;
    do {
        if (gauge->nvml.clock(gauge->device, CLOCK_SM, &mhz) == SUCCESS) {
            gauge->clocks += mhz;
            gauge->samples++;
        }
        usleep((useconds_t)(STEP_SECONDS * 1e6));
    } while (!atomic_load(&gauge->stop));
    return NULL;
}

static struct energy read_once(const struct gauge *gauge, double *took)
{
    const double before = machine_seconds();
    struct energy read = { .known = false };
    read.known = gauge->nvml.energy(gauge->device, &read.millijoules) == SUCCESS;
    const double after = machine_seconds();
    read.seconds = (before + after) / 2;
    *took = after - before;
    return read;
}

/* The reading that took least: in a short turn it would count if the thread was held up between
 * counter and clock. */
static struct energy read_energy(const struct gauge *gauge)
{
    enum { TRIES = 5 };
    double least, took;
    struct energy best = read_once(gauge, &least);
    for (int i = 1; i < TRIES && best.known && least > MOMENT; i++) {
        const struct energy read = read_once(gauge, &took);
        if (took >= least) continue;
        best = read;
        least = took;
    }
    return best;
}

void gauge_start(struct gauge *gauge)
{
    if (!gauge) return;
    atomic_store(&gauge->stop, false);
    gauge->clocks = 0.0;
    gauge->samples = 0;
    gauge->start = read_energy(gauge);
    gauge->running = !pthread_create(&gauge->thread, NULL, watch, gauge);
}

/* Power by the counter of energy: the power that NVML reports itself is a mean over the second
 * before, so that of somebody else's turn. */
struct gauge_reading gauge_stop(struct gauge *gauge)
{
    struct gauge_reading reading = { NAN, NAN };
    if (!gauge) return reading;
    const struct energy end = read_energy(gauge), *start = &gauge->start;
    const bool known = start->known && end.known;
    if (known && end.millijoules > start->millijoules) /* in steps that may be longer than a turn */
        reading.power_watts = (double)(end.millijoules - start->millijoules) * 1e-3 /
                              (end.seconds - start->seconds);
    atomic_store(&gauge->stop, true);
    if (gauge->running) pthread_join(gauge->thread, NULL);
    gauge->running = false;
    if (gauge->samples) reading.clock_mhz = gauge->clocks / gauge->samples;
    return reading;
}

void gauge_close(struct gauge *gauge)
{
    if (!gauge) return;
    gauge->nvml.shutdown();
    dlclose(gauge->library);
    free(gauge);
}
