/* SPDX-License-Identifier: Apache-2.0 */
/* test_emulated.cc - the emulation itself: kernels with barriers and shuffles, late streams,
 * injected failures, and 16-bit numbers. What must stop the program runs in a child process. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "expect.h"

namespace ra
{
extern __shared__ __align__(128) unsigned char ra_shared[];
}

/* ---- Kernels. ---- */

struct sum_arguments {
    const float *in;
    float *out; /* [blocks] */
    int count;
};

__device__ static __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int bits = 16; bits; bits >>= 1) x += __shfl_xor_sync(0xffffffffu, x, bits);
    return x;
}

__global__ void __launch_bounds__(256, 2) sum_kernel(const __grid_constant__ struct sum_arguments a)
{
    float *partial = reinterpret_cast<float *>(ra::ra_shared);
    float x = 0;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < a.count;
         i += (int)(gridDim.x * blockDim.x))
        x += a.in[i];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x >= 32) return; /* exited threads count as arrived below */
    x = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x == 0) a.out[blockIdx.x] = x;
}

template <typename T> __global__ void scale_kernel(T *data, int count, T factor)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) data[i] *= factor;
}

/* Checks what every thread sees, and counts what is wrong. */
__global__ void collectives_kernel(unsigned *wrong)
{
    const int t = (int)threadIdx.x, lane = t % 32;
    const unsigned all = 0xffffffffu;
    unsigned bad = 0;
    bad += __shfl_sync(all, t, 3) != t - lane + 3;
    bad += __shfl_sync(all, t, 3, 8) != t - lane % 8 + 3;
    bad += __shfl_up_sync(all, t, 2) != (lane < 2 ? t : t - 2);
    bad += __shfl_down_sync(all, t, 1, 4) != (lane % 4 == 3 ? t : t + 1);
    bad += __shfl_xor_sync(all, (double)t, 5) != (double)(t ^ 5);
    bad += __ballot_sync(all, lane % 2) != 0xaaaaaaaau;
    bad += !__any_sync(all, lane == 7) || __all_sync(all, lane == 7);
    bad += __reduce_max_sync(all, lane) != 31 || __reduce_add_sync(all, lane) != 496;
    if (lane < 16) bad += __shfl_xor_sync(0xffffu, lane, 1) != (lane ^ 1);
    else bad += __shfl_xor_sync(0xffff0000u, lane, 2) != (lane ^ 2);
    __syncwarp(all);
    bad += __syncthreads_count(t % 3 == 0) != ((int)blockDim.x + 2) / 3;
    bad += __syncthreads_or(t == 5) != 1 || __syncthreads_and(t != 5) != 0;
    const int *deposits = emulated_warp_gather(100 + t);
    for (int i = 0; i < 32; i++) bad += deposits[i] != 100 + t - lane + i;
    const int turned = emulated_warp_compute<int>(t, [](const int *in, int *out) {
        for (int i = 0; i < 32; i++) out[i] = in[(i + 1) % 32];
    });
    bad += turned != t - lane + (lane + 1) % 32;
    if (lane == 9) return;
    bad += __ballot_sync(all, 1) != ~(1u << 9);
    bad += !(__activemask() >> lane & 1);
    atomicAdd(wrong, bad);
}

/* Two warps hand a number back and forth: one waits by a named barrier, one by memory. */
__global__ void exchange_kernel(int *out)
{
    volatile int *cell = reinterpret_cast<volatile int *>(ra::ra_shared);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) cell[0] = 41;
        emulated::named_barrier_arrive(1, 64);
        while (cell[1] != 42) emulated::yield();
        if (threadIdx.x == 0) *out = cell[1];
    } else {
        emulated::named_barrier(1, 64);
        const int seen = cell[0];
        if (threadIdx.x == 32) cell[1] = seen + 1;
    }
}

/* out[t]: what thread t sees before and after it waits for its copy, and the zeros after it. */
__global__ void copy_kernel(const int *in, int4 *out)
{
    int *cell = reinterpret_cast<int *>(ra::ra_shared) + 4 * threadIdx.x;
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(cell);
    emulated::copy_async(to, in + threadIdx.x * 4, 16, 4);
    emulated::copies_commit();
    emulated::copy_async(to + 8, in + threadIdx.x * 4 + 2, 4, 4);
    emulated::copies_commit();
    emulated::copies_wait(1);
    const int first = cell[0], zero = cell[1], early = cell[2];
    emulated::copies_wait(0);
    out[threadIdx.x] = make_int4(first, zero, early, cell[2]);
}

__global__ void hang_kernel()
{
    if (threadIdx.x < 40) __syncthreads();
    else __syncwarp(threadIdx.x < 64 ? 0xffffffffu : 0xffffffffu);
}

__global__ void forgotten_barrier_kernel(int *out)
{
    int *cell = reinterpret_cast<int *>(ra::ra_shared);
    cell[threadIdx.x] = (int)threadIdx.x;
    const int other = cell[(threadIdx.x + 32) % blockDim.x]; /* no barrier before */
    out[threadIdx.x] = other;
}

__global__ void overrun_kernel() { ra::ra_shared[64] = (unsigned char)threadIdx.x; }

__global__ void omitted_lane_kernel() { __shfl_sync(0xffffu, 1, 0); }

/* ---- Host. ---- */

static cudaLaunchConfig_t shape(unsigned grid, unsigned block, size_t shared, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(block);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    return config;
}

static cudaStream_t make_stream()
{
    cudaStream_t stream = nullptr;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void sums_by_many_blocks()
{
    const int count = 10000, blocks = 7;
    std::vector<float> in(count), out(blocks);
    for (int i = 0; i < count; i++) in[i] = (float)(i % 10);
    float *d_in, *d_out;
    OK(cudaMalloc(&d_in, count * sizeof(float)));
    OK(cudaMalloc(&d_out, blocks * sizeof(float)));
    cudaStream_t stream = make_stream();
    OK(cudaMemcpyAsync(d_in, in.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
    for (float &x : in) x = -1; /* pageable: it was read by the call */
    const cudaLaunchConfig_t config = shape(blocks, 256, 8 * sizeof(float), stream);
    OK(cudaLaunchKernelEx(&config, sum_kernel, sum_arguments{ d_in, d_out, count }));
    OK(cudaMemcpyAsync(out.data(), d_out, blocks * sizeof(float), cudaMemcpyDeviceToHost, stream));
    float total = 0;
    for (float x : out) total += x;
    EXPECT(total == 45000.0f);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(d_in));
    OK(cudaFree(d_out));
}

static void collectives_see_all_lanes()
{
    unsigned *wrong, result = 1;
    OK(cudaMalloc(&wrong, sizeof *wrong));
    OK(cudaMemset(wrong, 0, sizeof *wrong));
    const cudaLaunchConfig_t config = shape(3, 128, 0, nullptr);
    OK(cudaLaunchKernelEx(&config, collectives_kernel, wrong));
    OK(cudaMemcpy(&result, wrong, sizeof result, cudaMemcpyDeviceToHost));
    EXPECT(result == 0);
    OK(cudaFree(wrong));
}

static void barriers_by_name_and_memory()
{
    int *out, result = 0;
    OK(cudaMalloc(&out, sizeof *out));
    const cudaLaunchConfig_t config = shape(1, 64, 16, nullptr);
    OK(cudaLaunchKernelEx(&config, exchange_kernel, out));
    OK(cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost));
    EXPECT(result == 42);
    OK(cudaFree(out));
}

static void asynchronous_copies_are_late()
{
    const int count = 64;
    std::vector<int> in(4 * count);
    std::vector<int4> result(count);
    for (size_t i = 0; i < in.size(); i++) in[i] = (int)i;
    int *data;
    int4 *out;
    OK(cudaMalloc(&data, in.size() * sizeof(int)));
    OK(cudaMalloc(&out, count * sizeof(int4)));
    OK(cudaMemcpy(data, in.data(), in.size() * sizeof(int), cudaMemcpyHostToDevice));
    const cudaLaunchConfig_t config = shape(1, count, 16 * count, nullptr);
    OK(cudaLaunchKernelEx(&config, copy_kernel, data, out));
    OK(cudaMemcpy(result.data(), out, count * sizeof(int4), cudaMemcpyDeviceToHost));
    bool late = false;
    for (int t = 0; t < count; t++) {
        const int4 seen = result[(size_t)t];
        EXPECT(seen.x == 4 * t && seen.y == 0);
        late |= seen.w != seen.z;
        /* Two copies into the same bytes, of which a device may do the second first. */
        if (!getenv("RINGATTN_EMULATED_SEED")) EXPECT(seen.w == 4 * t + 2);
    }
    EXPECT(late);
    OK(cudaFree(data));
    OK(cudaFree(out));
}

/* One stream doubles, another adds up after an event, or without one. */
static float doubled_sum(bool with_event)
{
    const int count = 256;
    float *pinned, *data, *out, result = 0;
    OK(cudaMallocHost(&pinned, count * sizeof(float)));
    OK(cudaMalloc(&data, count * sizeof(float)));
    OK(cudaMalloc(&out, sizeof(float)));
    for (int i = 0; i < count; i++) pinned[i] = 1;
    cudaStream_t first = make_stream(), second = make_stream();
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMemcpyAsync(data, pinned, count * sizeof(float), cudaMemcpyHostToDevice, first));
    const cudaLaunchConfig_t scale = shape(2, 128, 0, first), sum = shape(1, 256, 32, second);
    OK(cudaLaunchKernelEx(&scale, scale_kernel<float>, data, count, 2));
    OK(cudaEventRecord(event, first));
    if (with_event) OK(cudaStreamWaitEvent(second, event, 0));
    OK(cudaLaunchKernelEx(&sum, sum_kernel, sum_arguments{ data, out, count }));
    OK(cudaMemcpyAsync(&result, out, sizeof result, cudaMemcpyDeviceToHost, second));
    OK(cudaDeviceSynchronize());
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaFree(data));
    OK(cudaFree(out));
    OK(cudaFreeHost(pinned));
    return result;
}

static void missing_waits_show()
{
    bool shown = false;
    for (int i = 0; i < 20; i++) {
        EXPECT(doubled_sum(true) == 512.0f);
        shown |= doubled_sum(false) != 512.0f;
    }
    EXPECT(shown);
}

static void pinned_memory_is_read_late()
{
    std::vector<int> host(4, 1);
    int *data, result[4];
    OK(cudaMalloc(&data, sizeof result));
    OK(cudaHostRegister(host.data(), sizeof result, cudaHostRegisterDefault));
    cudaStream_t stream = make_stream();
    OK(cudaMemcpyAsync(data, host.data(), sizeof result, cudaMemcpyHostToDevice, stream));
    for (int &x : host) x = 2;
    cudaError_t state;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
    }
    OK(state);
    (void)cudaGetLastError();
    OK(cudaMemcpy(result, data, sizeof result, cudaMemcpyDeviceToHost));
    if (!getenv("RINGATTN_EMULATED_SEED")) EXPECT(result[3] == 2);
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, host.data() + 1));
    EXPECT(attributes.type == cudaMemoryTypeHost);
    OK(cudaHostUnregister(host.data()));
    OK(cudaPointerGetAttributes(&attributes, host.data()));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(data));
}

static void rows_are_copied_with_their_pitch()
{
    char *data, in[12] = "abcdefghijk", out[6];
    OK(cudaMalloc(&data, 16));
    OK(cudaMemset(data, '.', 16));
    OK(cudaMemcpy2DAsync(data, 8, in, 4, 3, 2, cudaMemcpyHostToDevice, nullptr));
    OK(cudaMemcpy2D(out, 3, data + 1, 8, 3, 2, cudaMemcpyDeviceToHost));
    EXPECT(!memcmp(out, "bc.fg.", 6));
    OK(cudaMemset2DAsync(data + 1, 8, '-', 2, 2, nullptr));
    OK(cudaMemcpy2D(out, 3, data, 8, 3, 2, cudaMemcpyDeviceToHost));
    EXPECT(!memcmp(out, "a--e--", 6));
    EXPECT(cudaMemcpy(data + 8, in, 9, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(data, in, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaSuccess);
    OK(cudaFree(data));
}

static void add_one(void *user) { ++*(int *)user; }

static void host_functions_run_in_order()
{
    cudaStream_t stream = make_stream();
    int calls = 0;
    OK(cudaLaunchHostFunc(stream, add_one, &calls));
    OK(cudaLaunchHostFunc(stream, add_one, &calls));
    OK(cudaStreamSynchronize(stream));
    EXPECT(calls == 2);
    OK(cudaStreamDestroy(stream));
}

static void ranks_are_threads()
{
    std::vector<std::thread> ranks;
    for (int r = 0; r < 3; r++)
        ranks.emplace_back([] {
            for (int i = 0; i < 3; i++) EXPECT(doubled_sum(true) == 512.0f);
        });
    for (std::thread &rank : ranks) rank.join();
}

static void failures_are_injected()
{
    void *memory = nullptr;
    setenv("RINGATTN_EMULATED_FAIL", "alloc:2", 1);
    OK(cudaMalloc(&memory, 100));
    void *second = nullptr;
    EXPECT(cudaMalloc(&second, 100) == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&second, 100));
    OK(cudaFree(second));
    setenv("RINGATTN_EMULATED_FAIL", "launch:1,copy:2", 1);
    const cudaLaunchConfig_t config = shape(1, 32, 0, nullptr);
    EXPECT(cudaLaunchKernelEx(&config, hang_kernel) == cudaErrorLaunchOutOfResources);
    OK(cudaMemset(memory, 0, 100));
    EXPECT(cudaMemset(memory, 0, 100) != cudaSuccess);
    setenv("RINGATTN_EMULATED_FAIL", "kernel:1", 1);
    cudaStream_t stream = make_stream();
    const cudaLaunchConfig_t late = shape(1, 32, 0, stream);
    OK(cudaLaunchKernelEx(&late, scale_kernel<float>, (float *)memory, 25, 1.0f));
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    EXPECT(cudaMemset(memory, 0, 100) == cudaErrorIllegalAddress);
    setenv("RINGATTN_EMULATED_FAIL", "lost:2", 1);
    OK(cudaMemset(memory, 0, 100));
    EXPECT(cudaMemset(memory, 0, 100) == cudaErrorDevicesUnavailable);
    EXPECT(cudaStreamDestroy(stream) == cudaErrorDevicesUnavailable);
    EXPECT(cudaFree(memory) == cudaErrorDevicesUnavailable);
    unsetenv("RINGATTN_EMULATED_FAIL");
    int count = 0;
    OK(cudaGetDeviceCount(&count));
    EXPECT(count == 1);
    setenv("RINGATTN_EMULATED_GPUS", "0", 1);
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    unsetenv("RINGATTN_EMULATED_GPUS");
    setenv("RINGATTN_EMULATED_MEMORY", "1000", 1);
    EXPECT(cudaMalloc(&memory, 1001) == cudaErrorMemoryAllocation);
    unsetenv("RINGATTN_EMULATED_MEMORY");
    (void)cudaGetLastError();
}

static unsigned long long context_id()
{
    unsigned long long id = 0;
    void *entry;
    enum cudaDriverEntryPointQueryResult result;
    OK(cudaGetDriverEntryPointByVersion("cuCtxGetId", &entry, 12000, cudaEnableDefault, &result));
    ((int (*)(void *, unsigned long long *))entry)(nullptr, &id);
    return id;
}

static void a_reset_ends_a_context()
{
    char *device, *pinned, own[8] = "";
    cudaEvent_t event;
    struct cudaPointerAttributes attributes;
    OK(cudaSetDevice(0));
    const unsigned long long before = context_id();
    cudaStream_t stream = make_stream();
    OK(cudaMalloc(&device, 8));
    OK(cudaMallocHost(&pinned, 8));
    OK(cudaHostRegister(own, sizeof own, cudaHostRegisterDefault));
    OK(cudaEventCreate(&event));
    OK(cudaEventRecord(event, stream));
    OK(cudaDeviceReset());
    EXPECT(context_id() == 0);
    OK(cudaSetDevice(0));
    EXPECT(context_id() != 0 && context_id() != before);
    EXPECT(cudaFree(device) == cudaErrorInvalidValue);
    EXPECT(cudaFreeHost(pinned) == cudaErrorInvalidValue);
    EXPECT(cudaHostUnregister(own) == cudaErrorHostMemoryNotRegistered);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    EXPECT(stops([=] { (void)cudaStreamSynchronize(stream); }));
    EXPECT(stops([=] { (void)cudaEventQuery(event); }));
    EXPECT(stops([=] { (void)cudaEventDestroy(event); }));
    EXPECT(stops([=] { (void)*(volatile char *)pinned; }));
    EXPECT(doubled_sum(true) == 512.0f);
    (void)cudaGetLastError();
}

static void devices_say_what_they_are()
{
    struct cudaDeviceProp prop;
    int value;
    OK(cudaGetDeviceProperties(&prop, 0));
    EXPECT(prop.major == 8 && prop.minor == 0 && prop.sharedMemPerBlockOptin == 166912);
    setenv("RINGATTN_EMULATED_SM", "61", 1);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    EXPECT(value == 6);
    unsetenv("RINGATTN_EMULATED_SM");
    const cudaLaunchConfig_t config = shape(1, 32, 100000, nullptr);
    EXPECT(cudaLaunchKernelEx(&config, exchange_kernel, nullptr) == cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(exchange_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 166912));
    EXPECT(cudaFuncSetAttribute(exchange_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                166913) == cudaErrorInvalidValue);
    EXPECT(!strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady"));
}

static void small_numbers_round_to_even()
{
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        const float f16 = __half2float(__ushort_as_half((unsigned short)bits));
        const float bf16 = __bfloat162float(__ushort_as_bfloat16((unsigned short)bits));
        EXPECT(isnan(f16) ? isnan((float)__half(f16)) : __half_as_ushort(__half(f16)) == bits);
        EXPECT(isnan(bf16) ? isnan((float)__nv_bfloat16(bf16))
                           : __bfloat16_as_ushort(__float2bfloat16_rn(bf16)) == bits);
#if defined(__FLT16_MAX__)
        EXPECT(isnan(f16) || f16 == (float)emulated::same_bits<_Float16>((unsigned short)bits));
#endif
    }
    EXPECT(__half_as_ushort(__float2half_rn(65519.0f)) == 0x7bff);
    EXPECT(__half_as_ushort(__float2half_rn(65520.0f)) == 0x7c00);
    EXPECT(__half_as_ushort(__float2half_rn(2049.0f)) == 0x6800);
    EXPECT(__half_as_ushort(__float2half_rn(2051.0f)) == 0x6802);
    EXPECT(__half_as_ushort(__float2half_rn(-0x1p-25f)) == 0x8000);
    EXPECT(__half_as_ushort(__float2half_rn(0x1.8p-24f)) == 0x0002);
    EXPECT(__half_as_ushort(__float2half_rn(0x1.ffcp-15f)) == 0x0400);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(0x3f808000u))) == 0x3f80);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(0x3f818000u))) == 0x3f82);
    EXPECT(__high2float(__floats2bfloat162_rn(1, 2)) == 2 && sizeof(__nv_bfloat162) == 4);
}

static void mistakes_stop_the_program()
{
    EXPECT(stops(shape(1, 64, 0, nullptr), hang_kernel));
    EXPECT(stops(shape(1, 1, 64, nullptr), overrun_kernel));
    EXPECT(stops(shape(1, 32, 0, nullptr), omitted_lane_kernel));
}

static void missing_barriers_show()
{
    int *out;
    std::vector<int> result(128);
    OK(cudaMalloc(&out, 128 * sizeof(int)));
    const cudaLaunchConfig_t config = shape(1, 128, 128 * sizeof(int), nullptr);
    OK(cudaLaunchKernelEx(&config, forgotten_barrier_kernel, out));
    OK(cudaMemcpy(result.data(), out, 128 * sizeof(int), cudaMemcpyDeviceToHost));
    bool wrong = false;
    for (int i = 0; i < 128; i++) wrong |= result[(size_t)i] != (i + 32) % 128;
    EXPECT(wrong);
    OK(cudaFree(out));
}

int main()
{
    sums_by_many_blocks();
    collectives_see_all_lanes();
    barriers_by_name_and_memory();
    asynchronous_copies_are_late();
    missing_waits_show();
    pinned_memory_is_read_late();
    rows_are_copied_with_their_pitch();
    host_functions_run_in_order();
    ranks_are_threads();
    failures_are_injected();
    a_reset_ends_a_context();
    devices_say_what_they_are();
    small_numbers_round_to_even();
    missing_barriers_show();
    mistakes_stop_the_program();
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
