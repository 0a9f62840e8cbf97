/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the table that this module exports to the library, and the backend in it. */
#include "backend/cuda/cuda.h"
#include "core/version.h"

const struct ra__host *ra__cuda_host;

static void start(const struct ra__host *host) { ra__cuda_host = host; }

static bool present(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
    cudaGetLastError();
    return false;
}

/* Steps are queued by the thread that calls. */
static int threads(const void *device)
{
    (void)device;
    return 1;
}

static const char *kernel_name(const struct ra__kernel *kernel) { return kernel->name; }

static const struct ra__backend backend = {
    .name = "cuda",
    .summary = "a GPU of NVIDIA: cuda, or cuda:N for the N-th of several",
    .host = false,
    .many_jobs = true,
    .present = present,
    .open = ra__cuda_open,
    .close = ra__cuda_close,
    .threads = threads,
    .alloc = ra__cuda_alloc,
    .free = ra__cuda_free,
    .pin = ra__cuda_pin,
    .unpin = ra__cuda_unpin,
    .cuda_memory = true,
    .copy = ra__cuda_copy,
    .make_current = ra__cuda_make_current,
    .restore = ra__cuda_restore,
    .choose = ra__cuda_choose,
    .kernel_name = kernel_name,
    .device_at = ra__cuda_device_at,
    .kernel_at = ra__cuda_kernel_at,
    .prepare = ra__cuda_prepare,
    .release = ra__cuda_release,
    .issue = ra__cuda_issue,
    .wait = ra__cuda_wait,
    .has_passed = ra__cuda_has_passed,
    .drain = ra__cuda_drain,
    .follow = ra__cuda_follow,
    .precede = ra__cuda_precede,
    .finish = ra__cuda_finish,
    .pairs = ra__cuda_pairs,
};

static const struct ra__backend *const backends[] = { &backend, NULL };

extern RA_API const struct ra__plugin ra_plugin;
const struct ra__plugin ra_plugin = {
    .shape = RA__PLUGIN_VERSION,
    .version = RA__VERSION,
    .start = start,
    .about = ra__cuda_about,
    .backends = backends,
};
