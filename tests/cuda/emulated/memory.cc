/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cc - allocations, pinned memory and copies.
 *
 * Device memory is memory of the heap, filled with 0xC3; a sanitizer then sees accesses outside of
 * it, and otherwise bytes after its end are checked when it is freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <vector>

#include "internal.h"
#include "races.h"

namespace emulated
{

constexpr int POISON_BYTE = 0xC3, BEYOND_BYTE = 0xA5;
constexpr size_t BEYOND_BYTES = EMULATED_ASAN ? 0 : 256;
constexpr int MAX_DEVICES = 64;
/* An allocation has pages of its own, which a reset of the device takes the right to read from. A
 * sanitizer finds that by itself. */
constexpr size_t PAGE = EMULATED_ASAN ? RACES_PAGE : 4096;

static std::map<uintptr_t, range> ranges; /* by start */
static size_t used[MAX_DEVICES];          /* bytes of device memory */
static size_t device_allocations, host_allocations;

static size_t total_memory()
{
    return (size_t)setting("RINGATTN_EMULATED_MEMORY", (int64_t)8 << 30);
}

const range *find_range(const void *pointer)
{
    auto after = ranges.upper_bound((uintptr_t)pointer);
    if (after == ranges.begin()) return nullptr;
    const range &r = std::prev(after)->second;
    return (uintptr_t)pointer - r.start < r.size ? &r : nullptr;
}

static size_t padded(size_t size)
{
    return EMULATED_ASAN ? races_padded(size) : (size + BEYOND_BYTES + PAGE - 1) / PAGE * PAGE;
}

static void *allocate(size_t size)
{
    void *memory = nullptr;
    if (posix_memalign(&memory, PAGE, padded(size))) return nullptr;
    memset(memory, POISON_BYTE, size);
    memset((char *)memory + size, BEYOND_BYTE, BEYOND_BYTES);
    return memory;
}

/* Takes the range out of the table; true where its memory is ours, and to be freed. */
static bool forget(uintptr_t start)
{
    const range r = ranges.at(start);
    ranges.erase(start);
    if (r.registered) return false;
    unsigned char *memory = (unsigned char *)start;
    for (size_t i = 0; i < BEYOND_BYTES; i++)
        if (memory[r.size + i] != BEYOND_BYTE)
            fail("byte %zu of an allocation of %zu bytes was written", r.size + i, r.size);
    if (r.type == cudaMemoryTypeDevice) {
        used[r.device] -= r.size;
        races_forget(memory, r.size);
    }
    (r.type == cudaMemoryTypeDevice ? device_allocations : host_allocations)--;
    memset(memory, POISON_BYTE, r.size);
    return true;
}

static void release(uintptr_t start)
{
    if (forget(start)) free((void *)start);
}

/* Memory that is not freed is not given to others, so no use of it is missed. */
void reset_memory(int device)
{
    std::vector<range> ended;
    for (const auto &r : ranges)
        if (r.second.device == device) ended.push_back(r.second);
    for (const range &r : ended) {
        if (!forget(r.start)) continue;
        if (EMULATED_ASAN) free((void *)r.start);
        else if (mprotect((void *)r.start, padded(r.size), PROT_NONE))
            fail("%zu bytes could not be taken away", r.size);
    }
}

static cudaError_t allocate_range(void **out, size_t size, enum cudaMemoryType type)
{
    if (!out) return cudaErrorInvalidValue;
    const cudaError_t forbidden = capture_forbids();
    if (forbidden) return forbidden;
    if (counted_failure(COUNT_ALLOC)) return cudaErrorMemoryAllocation;
    *out = nullptr;
    if (size == 0) return cudaSuccess;
    const int device = current_device();
    const bool on_device = type == cudaMemoryTypeDevice;
    if (on_device && (size > total_memory() || used[device] > total_memory() - size))
        return cudaErrorMemoryAllocation;
    void *memory = allocate(size);
    if (!memory) return cudaErrorMemoryAllocation;
    ranges[(uintptr_t)memory] = range{ (uintptr_t)memory, size, type, device, false };
    if (on_device) {
        used[device] += size;
        races_watch(memory, size, WATCHED_DEVICE);
    }
    (on_device ? device_allocations : host_allocations)++;
    *out = memory;
    return cudaSuccess;
}

/* cudaFree, cudaFreeHost and cudaHostUnregister: all wait for the device. */
static cudaError_t free_range(void *pointer, enum cudaMemoryType type, bool registered,
                              cudaError_t unknown)
{
    call c;
    if (!pointer && !registered) return noted(c.error);
    const range *r = find_range(pointer);
    if (!r || r->start != (uintptr_t)pointer || r->type != type || r->registered != registered)
        return noted(c.error ? c.error : unknown);
    if (!c.error && capture_forbids()) return noted(cudaErrorStreamCaptureUnsupported);
    finish_all(c.held);
    release((uintptr_t)pointer);
    return noted(c.error ? c.error : sticky());
}

/* ---- Copies. ---- */

enum place { PAGEABLE, PINNED, DEVICE, OUTSIDE };

/* Where `bytes` from a pointer on are; OUTSIDE: they run over the end of an allocation. */
static enum place place_of(const void *pointer, size_t bytes)
{
    const range *r = find_range(pointer);
    if (!r) return PAGEABLE;
    if (bytes > r->start + r->size - (uintptr_t)pointer) return OUTSIDE;
    return r->type == cudaMemoryTypeDevice ? DEVICE : PINNED;
}

struct copy {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, width, height;
};

static size_t extent(size_t pitch, size_t width, size_t height)
{
    return (height - 1) * pitch + width;
}

static void copy_rows(const copy &c)
{
    for (size_t row = 0; row < c.height; row++) {
        race_access(c.src + row * c.src_pitch, c.width, ACCESS_READ);
        race_access(c.dst + row * c.dst_pitch, c.width, ACCESS_WRITE);
        memmove(c.dst + row * c.dst_pitch, c.src + row * c.src_pitch, c.width);
    }
}

static bool direction_matches(enum cudaMemcpyKind kind, enum place dst, enum place src)
{
    if (kind == cudaMemcpyDefault) return true;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return to_device == (dst == DEVICE) && from_device == (src == DEVICE);
}

/* Pageable memory is read before the call returns and written before it returns; pinned memory when
 * the copy runs. */
static cudaError_t start_copy(copy c, enum cudaMemcpyKind kind, cudaStream_t stream, call &api)
{
    if (counted_failure(COUNT_COPY)) return cudaErrorUnknown;
    if (!valid_stream(stream)) return cudaErrorInvalidResourceHandle;
    if (c.width == 0 || c.height == 0) return cudaSuccess;
    if (!c.dst || !c.src) return cudaErrorInvalidValue;
    if (c.height > 1 && (c.dst_pitch < c.width || c.src_pitch < c.width))
        return cudaErrorInvalidPitchValue;
    const enum place dst = place_of(c.dst, extent(c.dst_pitch, c.width, c.height));
    const enum place src = place_of(c.src, extent(c.src_pitch, c.width, c.height));
    if (dst == OUTSIDE || src == OUTSIDE) return cudaErrorInvalidValue;
    if (!direction_matches(kind, dst, src)) return cudaErrorInvalidValue;
    if ((dst == PAGEABLE || src == PAGEABLE) && capture_forbids_on(stream))
        return cudaErrorStreamCaptureUnsupported;
    std::shared_ptr<std::vector<char>> staged;
    if (src == PAGEABLE) {
        staged = std::make_shared<std::vector<char>>(c.width * c.height);
        copy_rows(copy{ staged->data(), c.src, c.width, c.src_pitch, c.width, c.height });
        c.src = staged->data();
        c.src_pitch = c.width;
    }
    if (staged && dst == DEVICE && is_legacy(stream))
        return enqueue_late([c, staged] { copy_rows(c); }, api.held);
    const cudaError_t error = enqueue(
        stream, [c, staged] { copy_rows(c); }, api.held);
    if (error || dst != PAGEABLE) return error;
    return finish_stream(stream, api.held);
}

static cudaError_t start_fill(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream, call &api)
{
    if (counted_failure(COUNT_COPY)) return cudaErrorUnknown;
    if (!valid_stream(stream)) return cudaErrorInvalidResourceHandle;
    if (width == 0 || height == 0) return cudaSuccess;
    if (height > 1 && pitch < width) return cudaErrorInvalidPitchValue;
    const enum place place = place_of(pointer, (height - 1) * pitch + width);
    if (place == OUTSIDE || place == PAGEABLE) return cudaErrorInvalidValue;
    const auto fill = [=] {
        for (size_t row = 0; row < height; row++) {
            race_access((char *)pointer + row * pitch, width, ACCESS_WRITE);
            memset((char *)pointer + row * pitch, value, width);
        }
    };
    return enqueue(stream, fill, api.held);
}

/* RINGATTN_EMULATED_LEAKS=1: whoever leaves something behind does not exit with success. */
void check_leaks()
{
    if (!setting("RINGATTN_EMULATED_LEAKS", 0)) return;
    const size_t others = streams_alive() + events_alive() + graphs_alive();
    if (!device_allocations && !host_allocations && !others) return;
    fprintf(stderr,
            "emulated CUDA: left at the end: %zu device and %zu pinned allocations, %zu streams, "
            "%zu events, %zu graphs\n",
            device_allocations, host_allocations, streams_alive(), events_alive(), graphs_alive());
    _exit(97);
}

} // namespace emulated

using namespace emulated;

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(allocate_range(pointer, size, cudaMemoryTypeDevice));
}

cudaError_t cudaFree(void *pointer)
{
    return free_range(pointer, cudaMemoryTypeDevice, false, cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    if (!valid_stream(stream)) return noted(cudaErrorInvalidResourceHandle);
    const cudaError_t error = allocate_range(pointer, size, cudaMemoryTypeDevice);
    if (error || !size) return noted(error);
    /* Before its turn on the stream nobody may write it; who does loses what he wrote. */
    void *memory = *pointer;
    return noted(enqueue(
        stream, [=] { memset(memory, POISON_BYTE, size); }, c.held));
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    call c;
    if (!pointer) return noted(c.error);
    const range *r = find_range(pointer);
    if (!r || r->start != (uintptr_t)pointer || r->type != cudaMemoryTypeDevice)
        return noted(c.error ? c.error : cudaErrorInvalidValue);
    if (c.error) {
        release((uintptr_t)pointer);
        return noted(c.error);
    }
    if (!valid_stream(stream)) return noted(cudaErrorInvalidResourceHandle);
    return noted(enqueue_release(
        stream, [=] { release((uintptr_t)pointer); }, c.held));
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(allocate_range(pointer, size, cudaMemoryTypeHost));
}

cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }

cudaError_t cudaFreeHost(void *pointer)
{
    return free_range(pointer, cudaMemoryTypeHost, false, cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    if (!pointer || !size) return noted(cudaErrorInvalidValue);
    if (counted_failure(COUNT_ALLOC)) return noted(cudaErrorMemoryAllocation);
    const uintptr_t start = (uintptr_t)pointer;
    const auto next = ranges.lower_bound(start);
    if (find_range(pointer) || (next != ranges.end() && next->first < start + size))
        return noted(cudaErrorHostMemoryAlreadyRegistered);
    ranges[start] = range{ start, size, cudaMemoryTypeHost, current_device(), true };
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    return free_range(pointer, cudaMemoryTypeHost, true, cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    const range *r = find_range(host);
    if (!device || !r || r->type != cudaMemoryTypeHost) return noted(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    call c;
    if (c.error) return noted(c.error);
    const size_t taken = used[current_device()];
    if (available) *available = total_memory() > taken ? total_memory() - taken : 0;
    if (total) *total = total_memory();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    call c;
    if (c.error) return noted(c.error);
    if (!attributes) return noted(cudaErrorInvalidValue);
    const range *r = find_range(pointer);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = r ? r->device : -2; /* cudaInvalidDeviceId */
    if (!r) return cudaSuccess;
    attributes->type = r->type;
    attributes->devicePointer = const_cast<void *>(pointer);
    if (r->type == cudaMemoryTypeHost) attributes->hostPointer = const_cast<void *>(pointer);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    const copy rows = { (char *)dst, (const char *)src, count, count, count, 1 };
    return noted(start_copy(rows, kind, stream, c));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(dst, src, count, kind, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    const copy rows = { (char *)dst, (const char *)src, dpitch, spitch, width, height };
    return noted(start_copy(rows, kind, stream, c));
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    return cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t count, cudaStream_t stream)
{
    if (dstDevice < 0 || srcDevice < 0) return noted(cudaErrorInvalidDevice);
    return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t count, cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(start_fill(pointer, count, value, count, 1, stream, c));
}

cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    return noted(start_fill(pointer, pitch, value, width, height, stream, c));
}

cudaError_t cudaMemset(void *pointer, int value, size_t count)
{
    return cudaMemsetAsync(pointer, value, count, nullptr);
}
