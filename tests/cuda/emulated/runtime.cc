/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.cc - errors, devices, what is known about kernels, and launches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "cuda_runtime.h"
#include "internal.h"
#include "tensor_map.h"

namespace emulated
{

std::mutex lock;
std::condition_variable changed;

static thread_local cudaError_t last_error = cudaSuccess;
static thread_local int device_of_thread;
static cudaError_t sticky_error = cudaSuccess;
/* cudaFuncSetAttribute; by device and kernel */
static std::map<std::pair<int, const void *>, int> shared_limits;
static std::set<const void *> buried;

constexpr int SHARED_DEFAULT = 48 * 1024; /* a kernel may have without asking */

call::call() : held(lock), error(cudaSuccess)
{
    counted_failure(COUNT_CALL);
    error = device_lost() ? cudaErrorDevicesUnavailable : sticky_error;
}

cudaError_t noted(cudaError_t error)
{
    if (error) last_error = error;
    return error;
}

int current_device() { return device_of_thread; }
int device_count() { return (int)setting("RINGATTN_EMULATED_GPUS", 1); }
void set_sticky(cudaError_t error) { sticky_error = error; }
cudaError_t sticky() { return device_lost() ? cudaErrorDevicesUnavailable : sticky_error; }

void bury(const void *handle) { buried.insert(handle); }

void check_buried(const void *handle, const char *what)
{
    if (buried.count(handle))
        fail("%s is used whose context ended when the device was reset", what);
}

/* What a kernel may have on the current device. */
static int shared_limit(const void *kernel)
{
    const auto limit = shared_limits.find({ current_device(), kernel });
    return limit == shared_limits.end() ? SHARED_DEFAULT : limit->second;
}

/* "90,61": of device 0, and of all others. */
static int compute_capability(int device)
{
    const char *text = getenv("RINGATTN_EMULATED_SM");
    for (const char *comma; text && device-- > 0 && (comma = strchr(text, ','));) text = comma + 1;
    return text && *text ? atoi(text) : 80;
}

static int shared_optin_bytes(int device)
{
    switch (compute_capability(device)) {
    case 70: return 96 * 1024;
    case 75: return 64 * 1024;
    case 80:
    case 87: return 163 * 1024;
    case 86:
    case 89:
    case 120:
    case 121: return 99 * 1024;
    }
    return compute_capability(device) < 70 ? SHARED_DEFAULT : 227 * 1024;
}

static int shared_per_multiprocessor(int device)
{
    return compute_capability(device) < 70 ? 96 * 1024 : shared_optin_bytes(device) + 1024;
}

static int attribute(enum cudaDeviceAttr attr, int device)
{
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return INT_MAX;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return SHARED_DEFAULT;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: return 1000000;
    case cudaDevAttrMultiProcessorCount: return (int)setting("RINGATTN_EMULATED_SMS", 4);
    case cudaDevAttrGlobalMemoryBusWidth: return 64;
    case cudaDevAttrL2CacheSize: return 4 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrComputeCapabilityMajor: return compute_capability(device) / 10;
    case cudaDevAttrComputeCapabilityMinor: return compute_capability(device) % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return shared_per_multiprocessor(device);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return shared_optin_bytes(device);
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 16;
    case cudaDevAttrReservedSharedMemoryPerBlock: return compute_capability(device) < 80 ? 0 : 1024;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterReadOnlySupported: return 0;
    }
    return -1;
}

static void describe_device(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "Emulated GPU %d", device);
    prop->totalGlobalMem = (size_t)setting("RINGATTN_EMULATED_MEMORY", (int64_t)8 << 30);
    prop->sharedMemPerBlock = SHARED_DEFAULT;
    prop->sharedMemPerBlockOptin = (size_t)shared_optin_bytes(device);
    prop->sharedMemPerMultiprocessor = (size_t)shared_per_multiprocessor(device);
    prop->reservedSharedMemPerBlock = (size_t)attribute(cudaDevAttrReservedSharedMemoryPerBlock,
                                                        device);
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = INT_MAX;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = compute_capability(device) / 10;
    prop->minor = compute_capability(device) % 10;
    prop->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount, device);
    prop->l2CacheSize = attribute(cudaDevAttrL2CacheSize, device);
    prop->concurrentKernels = prop->unifiedAddressing = prop->canMapHostMemory = 1;
    prop->asyncEngineCount = 2;
    prop->pciBusID = device + 1;
}

static bool valid_device(int device) { return device >= 0 && device < device_count(); }

/* ---- Launches. ---- */

static cudaError_t check_launch(const cudaLaunchConfig_t *config, const void *kernel)
{
    const dim3 grid = config->gridDim, block = config->blockDim;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (!grid.x || !grid.y || !grid.z || !block.x) return cudaErrorInvalidConfiguration;
    if (grid.x > INT_MAX || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (block.x > 1024 || block.y != 1 || block.z != 1) return cudaErrorInvalidConfiguration;
    const int most = shared_limit(kernel);
    if (config->dynamicSmemBytes > (size_t)most) return cudaErrorInvalidValue;
    if (!valid_stream(config->stream)) return cudaErrorInvalidResourceHandle;
    return cudaSuccess;
}

/* Blocks of this shape that an SM has room for. */
static int blocks_per_multiprocessor(int threads, size_t shared_bytes)
{
    const int shared = (int)shared_bytes +
                       attribute(cudaDevAttrReservedSharedMemoryPerBlock, current_device());
    int most = threads > 1024 ? 0 : 2048 / threads;
    if (shared && shared_per_multiprocessor(current_device()) / shared < most)
        most = shared_per_multiprocessor(current_device()) / shared;
    return most < 16 ? most : 16;
}

/* All blocks of a cooperative launch run at the same time; only Hopper has clusters. */
static cudaError_t check_gang(const cudaLaunchConfig_t *config)
{
    const int room = attribute(cudaDevAttrMultiProcessorCount, current_device()) *
                     blocks_per_multiprocessor((int)config->blockDim.x, config->dynamicSmemBytes);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute *a = &config->attrs[i];
        if (a->id == cudaLaunchAttributeCooperative && a->val.cooperative &&
            config->gridDim.x > (unsigned)room)
            return cudaErrorCooperativeLaunchTooLarge;
        if (a->id == cudaLaunchAttributeClusterDimension && a->val.clusterDim.x > 1 &&
            compute_capability(current_device()) < 90)
            return cudaErrorInvalidConfiguration;
    }
    return cudaSuccess;
}

/* Blocks that run at the same time: a cluster, all of a cooperative launch, or one. */
static int gang_of(const cudaLaunchConfig_t *config)
{
    int gang = 1;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute *a = &config->attrs[i];
        if (a->id == cudaLaunchAttributeClusterDimension) gang = (int)a->val.clusterDim.x;
        if (a->id == cudaLaunchAttributeCooperative && a->val.cooperative)
            return (int)config->gridDim.x;
    }
    return gang;
}

static bool starts_early(const cudaLaunchConfig_t *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            return config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    return false;
}

cudaError_t launch_kernel(const cudaLaunchConfig_t *config, const void *kernel,
                          size_t parameter_bytes, std::function<void()> body)
{
    call c;
    if (c.error) return noted(c.error);
    if (!config) return noted(cudaErrorInvalidValue);
    if (counted_failure(COUNT_LAUNCH)) return noted(cudaErrorLaunchOutOfResources);
    if (parameter_bytes > (compute_capability(current_device()) < 90 ? 4096 : 32764))
        return noted(cudaErrorInvalidValue);
    cudaError_t error = check_launch(config, kernel);
    if (!error) error = check_gang(config);
    if (error) return noted(error);
    launch work = { config->gridDim, config->blockDim,     config->dynamicSmemBytes,
                    gang_of(config), starts_early(config), std::move(body) };
    if (!work.gang || config->gridDim.x % (unsigned)work.gang)
        return noted(cudaErrorInvalidConfiguration);
    const auto run = [work] {
        if (counted_failure(COUNT_KERNEL)) set_sticky(cudaErrorIllegalAddress);
        else run_grid(work);
    };
    return noted(enqueue(config->stream, run, c.held));
}

/* Runs when the library is unloaded. */
struct at_end {
    ~at_end()
    {
        check_races();
        check_leaks();
    }
};
static at_end checks_leaks;

} // namespace emulated

using namespace emulated;

/* ---- Errors. ---- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::mutex> held(lock);
    return sticky() ? sticky() : last_error;
}

struct error_text {
    cudaError_t error;
    const char *name, *text;
};

#define EMULATED_ROW(NAME, VALUE, TEXT) { NAME, #NAME, TEXT },
static const struct error_text error_texts[] = { EMULATED_ERRORS(EMULATED_ROW) };
#undef EMULATED_ROW

const char *cudaGetErrorName(cudaError_t error)
{
    for (const error_text &row : error_texts)
        if (row.error == error) return row.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const error_text &row : error_texts)
        if (row.error == error) return row.text;
    return "unrecognized error code";
}

/* ---- Devices. ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version) return noted(cudaErrorInvalidValue);
    *version = device_count() ? CUDART_VERSION : 0; /* 0: there is no driver */
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version) return noted(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    call c;
    if (c.error) return noted(c.error);
    if (!count) return noted(cudaErrorInvalidValue);
    *count = device_count() > 0 ? device_count() : 0;
    return noted(*count ? cudaSuccess : cudaErrorNoDevice);
}

/* By device: the ID of its context, which begins when the device is set and ends when it is reset;
 * 0: it has none. A thread has one from when it sets a device; functions of the runtime would make
 * one as well, those of the driver do not. */
constexpr int MAX_CONTEXTS = 64;
static std::atomic<unsigned long long> contexts[MAX_CONTEXTS];
static std::atomic<unsigned long long> last_context;
static thread_local bool has_context;

cudaError_t cudaSetDevice(int device)
{
    call c;
    if (c.error) return noted(c.error);
    if (device_count() <= 0) return noted(cudaErrorNoDevice);
    if (!valid_device(device)) return noted(cudaErrorInvalidDevice);
    device_of_thread = device;
    if (!contexts[device]) contexts[device] = ++last_context;
    has_context = true;
    return cudaSuccess;
}

static int primary_context_state(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = contexts[device] != 0;
    return 0;
}

static int current_context(void **context)
{
    *context = has_context ? &has_context : NULL;
    return 0;
}

/* Of the current context, the only one that can be asked about. */
static int context_id(void *context, unsigned long long *id)
{
    if (context || !id) return cudaErrorInvalidValue;
    if (!has_context) return cudaErrorDeviceUninitialized;
    *id = contexts[device_of_thread];
    return *id ? cudaSuccess : cudaErrorContextIsDestroyed;
}

/* Of the driver there are four functions. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned int,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    *entry = !strcmp(symbol, "cuDevicePrimaryCtxGetState") ? (void *)primary_context_state
             : !strcmp(symbol, "cuCtxGetCurrent")          ? (void *)current_context
             : !strcmp(symbol, "cuCtxGetId")               ? (void *)context_id
             : !strcmp(symbol, "cuTensorMapEncodeTiled")   ? (void *)encode_tiled
                                                           : NULL;
    *result = *entry ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    call c;
    if (c.error) return noted(c.error);
    if (!device) return noted(cudaErrorInvalidValue);
    if (device_count() <= 0) return noted(cudaErrorNoDevice);
    *device = device_of_thread;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int)
{
    call c;
    return noted(c.error);
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(valid_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

/* Of the current device: its memory, streams, events and what was set for kernels are gone. Work is
 * done before. */
cudaError_t cudaDeviceReset(void)
{
    call c;
    finish_all(c.held);
    set_sticky(cudaSuccess);
    last_error = cudaSuccess;
    if (device_lost()) return noted(c.error);
    const int device = current_device();
    reset_graphs(device);
    reset_streams(device);
    reset_memory(device);
    shared_limits.erase(shared_limits.lower_bound({ device, nullptr }),
                        shared_limits.lower_bound({ device + 1, nullptr }));
    contexts[device] = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    call c;
    if (c.error) return noted(c.error);
    if (!valid_device(device)) return noted(cudaErrorInvalidDevice);
    const int answer = attribute(attr, device);
    if (!value || answer < 0) return noted(cudaErrorInvalidValue);
    *value = answer;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    call c;
    if (c.error) return noted(c.error);
    if (!prop) return noted(cudaErrorInvalidValue);
    if (!valid_device(device)) return noted(cudaErrorInvalidDevice);
    describe_device(prop, device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    call c;
    if (c.error) return noted(c.error);
    if (!id || length < 13) return noted(cudaErrorInvalidValue);
    if (!valid_device(device)) return noted(cudaErrorInvalidDevice);
    snprintf(id, (size_t)length, "0000:%02x:00.0", (unsigned)(device + 1) & 0xff);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    call c;
    if (c.error) return noted(c.error);
    if (!can) return noted(cudaErrorInvalidValue);
    if (!valid_device(device) || !valid_device(peer)) return noted(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(valid_device(peer) && peer != device_of_thread ? cudaSuccess
                                                                : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) { return cudaDeviceEnablePeerAccess(peer, 0); }

/* ---- Kernels. ---- */

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    call c;
    if (c.error) return noted(c.error);
    if (!function) return noted(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > shared_optin_bytes(current_device()))
        return noted(cudaErrorInvalidValue);
    shared_limits[{ current_device(), function }] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    call c;
    if (c.error) return noted(c.error);
    if (!attributes) return noted(cudaErrorInvalidValue);
    if (!function) return noted(cudaErrorInvalidDeviceFunction);
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = compute_capability(current_device());
    attributes->maxDynamicSharedSizeBytes = shared_limit(function);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t dynamicSmemBytes)
{
    call c;
    if (c.error) return noted(c.error);
    if (!blocks || threads <= 0) return noted(cudaErrorInvalidValue);
    if (!function) return noted(cudaErrorInvalidDeviceFunction);
    *blocks = blocks_per_multiprocessor(threads, dynamicSmemBytes);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                           const cudaLaunchConfig_t *config)
{
    int blocks;
    if (!clusters || !config) return noted(cudaErrorInvalidValue);
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, (int)config->blockDim.x, config->dynamicSmemBytes);
    if (error) return error;
    *clusters = blocks * attribute(cudaDevAttrMultiProcessorCount, current_device()) /
                gang_of(config);
    return cudaSuccess;
}
