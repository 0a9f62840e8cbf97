/* SPDX-License-Identifier: Apache-2.0 */
/* test_races.cc - the search for races: every kernel is right with what orders it, and a race without
 * that one thing. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "backend/cuda/sm90/wgmma.cuh"
#include "expect.h"

enum { BARRIER = 4096, BARRIER_2 = 4104, PLACE = 8192 };

/* How many there are when the kernel runs, with what orders it or without. */
typedef void kernel(float *data, bool ordered);

static int races(kernel *code, unsigned blocks, unsigned threads, bool ordered,
                 cudaLaunchAttribute *attribute = nullptr)
{
    float *data;
    const cudaLaunchConfig_t config = shape(blocks, threads, attribute);
    const int before = emulated::races_found();
    OK(cudaMalloc(&data, 65536));
    OK(cudaMemset(data, 0, 65536));
    OK(cudaLaunchKernelEx(&config, code, data, ordered));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(data));
    return emulated::races_found() - before;
}

static volatile int sink; /* what is read must not be optimised away */
static float *shared(uint32_t at) { return static_cast<float *>(emulated::shared_pointer(at, 4)); }
static bool is(unsigned thread) { return threadIdx.x == thread; }

/* ---- Barriers ---- */

static void of_a_block(float *, bool ordered)
{
    if (is(0)) *shared(0) = 1;
    if (ordered) __syncthreads();
    if (is(40)) sink = (int)*shared(0);
}
static void write_after_read(float *, bool ordered)
{
    sink = (int)*shared(0);
    if (ordered) __syncthreads();
    if (is(7)) *shared(0) = 1;
}
/* The second of two barriers, where threads that are late must not learn of it early. */
static void between_two(float *, bool ordered)
{
    __syncthreads();
    if (is(0)) *shared(0) = 1;
    if (ordered) __syncthreads();
    if (is(40)) sink = (int)*shared(0);
    __syncthreads();
}
/* A shuffle orders no memory. */
static void of_a_warp(float *, bool ordered)
{
    if (is(0)) *shared(0) = 1;
    if (ordered) __syncwarp();
    else __shfl_sync(ALL_LANES, 0, 0);
    if (is(1)) sink = (int)*shared(0);
}
static void of_two_warps(float *, bool ordered)
{
    if (threadIdx.x < 32) {
        if (!ordered) named_arrive(1, 64);
        *shared(4 * threadIdx.x) = 1;
        if (ordered) named_arrive(1, 64);
    } else {
        named_sync(1, 64);
        sink = (int)*shared(20);
    }
}
static void of_a_cluster(float *, bool ordered)
{
    if (is(0)) *(float *)emulated::shared_pointer_of(1 - emulated::cluster_rank(), 0, 4) = 1;
    if (ordered) everyone_sync<2>();
    else __syncthreads();
    if (is(32)) sink = (int)*shared(0);
    everyone_sync<2>();
}

/* ---- mbarriers ---- */

static void make_barriers(bool ordered = true)
{
    if (is(0)) barrier_init(BARRIER, 1), barrier_init(BARRIER_2, 1);
    if (ordered) __syncthreads();
}
static void barrier_made(float *, bool ordered)
{
    make_barriers(ordered);
    if (is(32)) barrier_arrive(BARRIER);
}
static void arrival(float *, bool ordered)
{
    make_barriers();
    if (is(0)) {
        if (!ordered) barrier_arrive(BARRIER);
        *shared(0) = 1;
        if (ordered) barrier_arrive(BARRIER);
    }
    if (is(32)) barrier_wait(BARRIER, 0), sink = (int)*shared(0);
}
/* The first lane arrives for all; the others' reads come before that by __syncwarp alone. */
static void arrival_for_a_warp(float *, bool ordered)
{
    make_barriers();
    if (threadIdx.x < 32) {
        sink = (int)*shared(0);
        if (ordered) __syncwarp();
        if (is(0)) barrier_arrive(BARRIER);
    }
    if (is(32)) barrier_wait(BARRIER, 0), *shared(0) = 1;
}

/* ---- The copy engine ---- */

static void copy(float *data, uint32_t barrier)
{
    barrier_expect(barrier, 256);
    copy_in_plain(PLACE, data, 256, barrier);
}
static void copied(float *data, bool ordered)
{
    make_barriers();
    if (is(0)) copy(data, BARRIER);
    if (ordered || !is(32)) barrier_wait(BARRIER, 0);
    sink = shared_load(PLACE);
    barrier_wait(BARRIER, 0);
}
static void copied_again(float *data, bool ordered)
{
    make_barriers();
    if (is(0)) copy(data, BARRIER);
    barrier_wait(BARRIER, 0);
    if (is(40)) sink = shared_load(PLACE);
    if (ordered) __syncthreads();
    if (is(0)) copy(data, BARRIER_2), barrier_wait(BARRIER_2, 0);
}
static void summed(float *data, bool ordered)
{
    const float some[4] = { 1, 2, 3, 4 };
    if (is(40)) shared_store4(PLACE, some);
    if (is(40) && ordered) shared_publish();
    __syncthreads();
    if (is(0)) add_out(data, PLACE, 16), add_out_done();
}
static void summed_and_written(float *data, bool ordered)
{
    const float some[4] = { 1, 2, 3, 4 };
    if (!is(0)) return;
    shared_store4(PLACE, some);
    shared_publish();
    add_out(data, PLACE, 16);
    if (ordered) add_out_read();
    shared_store4(PLACE, some);
    add_out_done();
}
/* A block sets what the others then add to. */
static void in_turns(float *data, bool ordered)
{
    const float some[4] = { 1, 2, 3, 4 };
    int *turn = (int *)(data + 1024);
    if (!is(0)) return;
    shared_store4(PLACE, some);
    shared_publish();
    turn_wait(turn, (int)blockIdx.x);
    if (blockIdx.x == 0) set_out(data, PLACE, 16);
    else add_out(data, PLACE, 16);
    if (ordered) add_out_done();
    turn_pass(turn);
    add_out_done();
}

/* ---- Products and asynchronous copies ---- */

static void multiplied(float *data, bool ordered)
{
    float d[32];
    for (int i = 0; i < 32; i++) *shared(512 * (uint32_t)i + 4 * threadIdx.x) = 1;
    if (ordered) shared_publish();
    __syncthreads();
    wgmma<__nv_bfloat16, false>(d, matrix_at(0, 0), matrix_at(8192, 0));
    wgmma_commit();
    wgmma_wait<0>();
    data[threadIdx.x] = d[0];
}
static void multiplied_and_written(float *data, bool ordered)
{
    float d[32];
    wgmma<__nv_bfloat16, false>(d, matrix_at(0, 0), matrix_at(8192, 0));
    wgmma_commit();
    if (ordered) wgmma_wait<0>();
    __syncthreads();
    if (is(0)) *shared(8192 + 128) = 1;
    __syncthreads();
    wgmma_wait<0>();
    data[threadIdx.x] = d[0];
}
static void fetched(float *data, bool ordered)
{
    emulated::copy_async(16 * threadIdx.x, data + 4 * threadIdx.x, 16, 16);
    emulated::copies_commit();
    emulated::copies_wait(0);
    __syncthreads();
    sink = (int)*shared(16 * ((threadIdx.x + 40) % 64));
    if (ordered) __syncthreads();
    emulated::copy_async(16 * threadIdx.x, data + 4 * threadIdx.x, 16, 16);
    emulated::copies_commit();
    emulated::copies_wait(0);
}
static void matrices_loaded(float *, bool ordered)
{
    uint32_t words[4];
    *shared(4 * threadIdx.x) = 1;
    if (ordered) __syncwarp();
    load_matrices(words, 16 * threadIdx.x % 128);
    sink = (int)words[0];
}

/* ---- Blocks of a grid ---- */

static void of_a_grid(float *data, bool ordered)
{
    if (is(0)) data[ordered ? blockIdx.x : 0] = 1;
}
static void atomic(float *data, bool ordered)
{
    if (ordered) atomicAdd(data, 1.0f);
    else *data += 1;
}

/* ---- Streams ---- */

static void writes(float *data) { data[threadIdx.x] = 1; }
static void reads(float *data) { sink = (int)data[threadIdx.x]; }

static void launch(void (*code)(float *), cudaStream_t stream, float *data)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream;
    OK(cudaLaunchKernelEx(&config, code, data));
}

/* Starts before the kernel before it has ended. */
static void reads_early(float *data, bool follows)
{
    if (follows) kernel_follow();
    sink = (int)data[threadIdx.x];
}
/* Only one thread waits, and lets the others go on. */
static void reads_early_by_one(float *data, bool follows)
{
    if (follows && is(0)) kernel_follow();
    __syncthreads();
    sink = (int)data[threadIdx.x];
}

static void follows_only(float *, bool) { kernel_follow(); }

/* With one that touches nothing in between, or not. */
static int races_of_early_ones(kernel *code, bool follows, bool between)
{
    float *data;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.attrs = &early;
    config.numAttrs = 1;
    OK(cudaStreamCreateWithFlags(&config.stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&data, 4096));
    const int before = emulated::races_found();
    launch(writes, config.stream, data);
    if (between) OK(cudaLaunchKernelEx(&config, follows_only, data, true));
    OK(cudaLaunchKernelEx(&config, code, data, follows));
    OK(cudaDeviceSynchronize());
    const int found = emulated::races_found() - before;
    OK(cudaFree(data));
    OK(cudaStreamDestroy(config.stream));
    return found;
}

static void kernels_follow()
{
    for (kernel *code : { reads_early, reads_early_by_one })
        for (const bool between : { false, true })
            EXPECT(!races_of_early_ones(code, true, between) &&
                   races_of_early_ones(code, false, between));
}

enum meeting { NOTHING, EVENT, EARLIER_EVENT, HOST, SAME_STREAM };

/* One operation writes, on one stream, another one reads what it has written. */
static int races_of_streams(bool fills, enum meeting meeting)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    float *data, numbers[32];
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMalloc(&data, 4096));
    const int before = emulated::races_found();
    if (meeting == EARLIER_EVENT) OK(cudaEventRecord(event, first));
    if (fills) OK(cudaMemsetAsync(data, 0, 128, first));
    else launch(writes, first, data);
    if (meeting == EVENT) OK(cudaEventRecord(event, first));
    if (meeting == EVENT || meeting == EARLIER_EVENT) OK(cudaStreamWaitEvent(second, event, 0));
    if (meeting == HOST) OK(cudaStreamSynchronize(first));
    if (meeting == SAME_STREAM) std::swap(first, second);
    if (fills) launch(reads, second, data);
    else OK(cudaMemcpyAsync(numbers, data, 128, cudaMemcpyDeviceToHost, second));
    OK(cudaDeviceSynchronize());
    const int found = emulated::races_found() - before;
    OK(cudaFree(data));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    return found;
}

static void streams_are_ordered_by_events()
{
    for (int fills = 0; fills < 2; fills++) {
        EXPECT(races_of_streams(fills, NOTHING));
        EXPECT(races_of_streams(fills, EARLIER_EVENT));
        for (int meeting : { EVENT, HOST, SAME_STREAM })
            EXPECT(!races_of_streams(fills, (enum meeting)meeting));
    }
}

int main()
{
    static const struct {
        const char *name;
        kernel *code;
        unsigned blocks, threads;
    } kernels[] = {
#define KERNEL(CODE, BLOCKS, THREADS) { #CODE, CODE, BLOCKS, THREADS }
        KERNEL(of_a_block, 1, 64),   KERNEL(write_after_read, 1, 64),
        KERNEL(between_two, 1, 64),  KERNEL(of_a_warp, 1, 32),
        KERNEL(of_two_warps, 1, 64), KERNEL(barrier_made, 1, 64),
        KERNEL(arrival, 1, 64),      KERNEL(arrival_for_a_warp, 1, 64),
        KERNEL(copied, 1, 64),       KERNEL(copied_again, 1, 64),
        KERNEL(summed, 1, 64),       KERNEL(summed_and_written, 1, 32),
        KERNEL(multiplied, 1, 128),  KERNEL(multiplied_and_written, 1, 128),
        KERNEL(fetched, 1, 64),      KERNEL(matrices_loaded, 1, 32),
        KERNEL(of_a_grid, 3, 32),    KERNEL(atomic, 2, 32),
    };
    cudaLaunchAttribute pairs = {}, all = {};
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = { 2, 1, 1 };
    all.id = cudaLaunchAttributeCooperative;
    all.val.cooperative = 1;
    unsetenv("RINGATTN_EMULATED_SEED");
    setenv("RINGATTN_EMULATED_SM", "90", 1);
    for (const auto &k : kernels) {
        const int right = races(k.code, k.blocks, k.threads, true);
        const int wrong = races(k.code, k.blocks, k.threads, false);
        if (right || !wrong) printf("%s: %d races, and %d\n", k.name, right, wrong);
        EXPECT(!right && wrong);
    }
    EXPECT(!races(of_a_cluster, 2, 64, true, &pairs) && races(of_a_cluster, 2, 64, false, &pairs));
    EXPECT(!races(in_turns, 3, 32, true, &all) && races(in_turns, 3, 32, false, &all));
    streams_are_ordered_by_events();
    kernels_follow();
    printf("%s\n", failures ? "FAILED" : "ok");
    fflush(nullptr);
    _exit(failures != 0); /* not the status of a program with races */
}
