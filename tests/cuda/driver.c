/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - the functions of NVIDIA's driver and of NVML that benchmarks look for, of one GPU that
 * runs at 1500 MHz and takes 700 W. Built as libcuda.so.1 and as libnvidia-ml.so.1. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ADDRESS "00000000:61:00.0"

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int number);
int cuDeviceGetPCIBusId(char *address, int bytes, int device);
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

enum { FAILED = 999, CLOCK_SM = 1 };

int cuInit(unsigned flags) { return flags ? FAILED : 0; }

int cuDeviceGet(int *device, int number)
{
    *device = number + 7;
    return number ? FAILED : 0;
}

int cuDeviceGetPCIBusId(char *address, int bytes, int device)
{
    snprintf(address, (size_t)bytes, ADDRESS);
    return device == 7 ? 0 : FAILED;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    static int gpu;
    *device = &gpu;
    return strcmp(address, ADDRESS) ? FAILED : 0;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    *mhz = 1500;
    return device && type == CLOCK_SM ? 0 : FAILED;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = (unsigned long long)now.tv_sec * 700000 +
                   (unsigned long long)now.tv_nsec * 7 / 10000;
    return device ? 0 : FAILED;
}
