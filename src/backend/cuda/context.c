/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - visits of a thread to a GPU, and the context of the process there. Streams, events
 * and memory belong to a context. A program that resets the GPU ends it: CUDA crashes when it is
 * given a stream or an event of that context later, and its memory may be somebody else's. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* ---- The driver ------------------------------------------------------------------------------ */

/* A function of the driver, as of that version of CUDA, to a pointer to it; NULL: it has none. */
static void find_function(const char *name, unsigned version, void *function)
{
    void *entry = NULL;
#if CUDART_VERSION >= 12050
    enum cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &result) !=
        cudaSuccess) {
        cudaGetLastError();
        entry = NULL;
    }
#else
    (void)name, (void)version;
#endif
    memcpy(function, &entry, sizeof entry);
}

static void find_driver(struct ra__cuda_driver *driver)
{
    find_function("cuDevicePrimaryCtxGetState", 7000, &driver->context_state);
    find_function("cuCtxGetId", 12000, &driver->context_id);
}

/* Has this process a context on that device? Setting a device makes one, which takes memory there;
 * a thread that never chose a device is not to get one on device 0. A driver that cannot be asked
 * counts as yes. */
static bool is_in_use(const struct ra__cuda_driver *driver, int number)
{
    unsigned flags;
    int active;
    if (!driver->context_state || driver->context_state(number, &flags, &active) != 0) return true;
    return active != 0;
}

/* ---- The context ----------------------------------------------------------------------------- */

/* The driver's errors have the numbers of the runtime's. */
static bool is_without_context(int error)
{
    return error == (int)cudaErrorContextIsDestroyed || error == (int)cudaErrorDeviceUninitialized;
}

/* Was the GPU reset, and not used since? Setting the device would make a context that nobody asked
 * for. */
static bool has_ended(const struct ra__cuda_device *device)
{
    return device->context != 0 && !is_in_use(&device->driver, device->number);
}

/* Is the current context, of the device that was set, another one than when it was opened? A driver
 * that does not say counts as no: after the error of a kernel the context is there still. */
static bool has_changed(const struct ra__cuda_device *device)
{
    unsigned long long now = 0;
    if (device->context == 0) return false;
    const int error = device->driver.context_id(NULL, &now);
    return error ? is_without_context(error) : now != device->context;
}

/* ---- Visits ---------------------------------------------------------------------------------- */

/* The device is set even if it is that of the thread already: a new thread has no context, which
 * functions of the driver need. */
static cudaError_t set_device(const struct ra__cuda_driver *driver, int number,
                              struct ra__cuda_visit *visit)
{
    int now;
    cudaError_t error = cudaGetDevice(&now);
    if (error != cudaSuccess) return error;
    const bool returns = now != number && is_in_use(driver, now);
    error = cudaSetDevice(number);
    if (error == cudaSuccess && returns) visit->before = now;
    return error;
}

ra_status ra__cuda_first_enter(struct ra__cuda_device *device, struct ra__cuda_visit *visit)
{
    find_driver(&device->driver);
    RA__TRY(ra__cuda_enter(device, visit));
    if (device->driver.context_id && device->driver.context_id(NULL, &device->context) != 0)
        device->context = 0;
    return RA_OK;
}

ra_status ra__cuda_enter(const struct ra__cuda_device *device, struct ra__cuda_visit *visit)
{
    if (!has_ended(device)) {
        const cudaError_t error = set_device(&device->driver, device->number, visit);
        RA__TRY(ra__cuda_check((int)error, "cudaSetDevice"));
        if (!has_changed(device)) return RA_OK;
    }
    return ra__cuda_fail(RA_ERR_SYSTEM,
                         "cuda: GPU %d was reset since this group was made: its memory is gone; "
                         "make groups and plans anew",
                         device->number);
}

bool ra__cuda_enter_quietly(const struct ra__cuda_device *device, struct ra__cuda_visit *visit)
{
    if (has_ended(device)) return false;
    const cudaError_t error = set_device(&device->driver, device->number, visit);
    if (error == cudaSuccess) return !has_changed(device);
    cudaGetLastError();
    return !is_without_context((int)error);
}

/* A context takes time and memory: none is made where that GPU is the current one anyway. */
ra_status ra__cuda_visit_number(int number, struct ra__cuda_visit *visit)
{
    struct ra__cuda_driver driver;
    int now;
    RA__CUDA_TRY(cudaGetDevice(&now));
    if (now == number) return RA_OK;
    find_driver(&driver);
    return ra__cuda_check((int)set_device(&driver, number, visit), "cudaSetDevice");
}

void ra__cuda_restore(int before)
{
    if (before == RA__CUDA_NOWHERE) return;
    if (cudaSetDevice(before) != cudaSuccess) cudaGetLastError();
}

void ra__cuda_leave(struct ra__cuda_visit *visit) { ra__cuda_restore(visit->before); }

/* A device that is lost, or was reset, is noticed by the next step. Callers have entered the device
 * in this call, so setting it makes no new context. */
int ra__cuda_make_current(void *opaque)
{
    const struct ra__cuda_device *device = opaque;
    struct ra__cuda_visit visit = { RA__CUDA_NOWHERE };
    if (set_device(&device->driver, device->number, &visit) != cudaSuccess) cudaGetLastError();
    return visit.before;
}
