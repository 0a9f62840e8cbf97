/* SPDX-License-Identifier: Apache-2.0 */
/* test_graphs.cc - graphs of the emulation: what is captured runs at each launch, in the order of
 * streams and events and in no other; what must not happen while a stream is captured ends it. */
#include <cuda_runtime.h>

#include "expect.h"

enum { REPLAYS = 20 };

__global__ void set_kernel(int *data, int x) { *data = x; }
__global__ void double_kernel(int *data) { *data *= 2; }
__global__ void add_kernel(int *to, const int *from) { *to += *from; }

/* Two streams, an event for each direction, and two numbers on the device. */
struct scene {
    cudaStream_t first, second;
    cudaEvent_t forked, joined;
    int *data;

    scene()
    {
        OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
        OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
        OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
        OK(cudaMalloc(&data, 2 * sizeof *data));
    }
    ~scene()
    {
        OK(cudaStreamDestroy(first));
        OK(cudaStreamDestroy(second));
        OK(cudaEventDestroy(forked));
        OK(cudaEventDestroy(joined));
        OK(cudaFree(data));
        (void)cudaGetLastError();
    }
};

template <typename... Parameters, typename... Arguments>
static void put(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments)
{
    cudaLaunchConfig_t config = shape(1, 1, nullptr);
    config.stream = stream;
    OK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

static int read(const int *from)
{
    int x = 0;
    OK(cudaMemcpy(&x, from, sizeof x, cudaMemcpyDeviceToHost));
    return x;
}

static void begin(const scene &s)
{
    OK(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal));
}

/* The second stream joins the capture of the first. */
static void fork_streams(const scene &s)
{
    OK(cudaEventRecord(s.forked, s.first));
    OK(cudaStreamWaitEvent(s.second, s.forked, 0));
}

static void join_streams(const scene &s)
{
    OK(cudaEventRecord(s.joined, s.second));
    OK(cudaStreamWaitEvent(s.first, s.joined, 0));
}

static cudaGraphExec_t end(const scene &s)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(s.first, &graph));
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

static void ends_with(const scene &s, cudaError_t error)
{
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT(cudaStreamEndCapture(s.first, &graph) == error && !graph);
    for (const cudaStream_t stream : { s.first, s.second }) {
        OK(cudaStreamIsCapturing(stream, &status));
        EXPECT(status == cudaStreamCaptureStatusNone);
    }
}

/* One number is doubled and then added to the other, on a stream each; with or without a wait in
 * between. */
static cudaGraphExec_t capture_sum(const scene &s, bool waits)
{
    enum cudaStreamCaptureStatus status;
    begin(s);
    fork_streams(s);
    OK(cudaStreamIsCapturing(s.second, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    put(s.second, double_kernel, s.data + 1);
    if (waits) join_streams(s);
    put(s.first, add_kernel, s.data, (const int *)(s.data + 1));
    if (!waits) join_streams(s);
    return end(s);
}

/* How many of the sums are right; launches follow one another and what is on their stream. */
static int right_sums(bool waits)
{
    scene s;
    int right = 0;
    const cudaGraphExec_t exec = capture_sum(s, waits);
    for (int i = 1; i <= REPLAYS; i++) {
        put(s.first, set_kernel, s.data, i);
        put(s.first, set_kernel, s.data + 1, 10);
        OK(cudaGraphLaunch(exec, s.first));
        OK(cudaGraphLaunch(exec, s.first));
        OK(cudaStreamSynchronize(s.first));
        right += read(s.data) == i + 20 + 40;
    }
    OK(cudaGraphExecDestroy(exec));
    return right;
}

static void graphs_keep_their_order()
{
    EXPECT(right_sums(true) == REPLAYS);
    EXPECT(right_sums(false) < REPLAYS);
}

static void nothing_runs_while_captured()
{
    scene s;
    put(s.first, set_kernel, s.data, 1);
    OK(cudaStreamSynchronize(s.first));
    begin(s);
    put(s.first, set_kernel, s.data, 2);
    const cudaGraphExec_t exec = end(s);
    EXPECT(read(s.data) == 1);
    OK(cudaGraphLaunch(exec, s.second)); /* the thread of the launch waits for that stream */
    OK(cudaStreamSynchronize(s.second));
    EXPECT(read(s.data) == 2);
    OK(cudaGraphExecDestroy(exec));
}

/* On a device a graph comes of some of these, too; but not of those in the CUDA documentation. */
static void forbidden(cudaError_t (*act)(const scene &))
{
    scene s;
    OK(cudaEventRecord(s.joined, s.second)); /* before the capture */
    begin(s);
    fork_streams(s);
    EXPECT(act(s) != cudaSuccess);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
}

static void forbidden_calls_end_a_capture()
{
    forbidden([](const scene &s) { return cudaStreamSynchronize(s.second); });
    forbidden([](const scene &s) { return cudaStreamQuery(s.first); });
    forbidden([](const scene &s) { return cudaEventQuery(s.joined); });
    forbidden([](const scene &s) { return cudaEventSynchronize(s.joined); });
    forbidden([](const scene &) { return cudaDeviceSynchronize(); });
    forbidden([](const scene &s) { return cudaFree(s.data); });
    forbidden([](const scene &s) { return cudaStreamDestroy(s.second); });
    forbidden([](const scene &s) { return cudaStreamWaitEvent(s.first, s.joined, 0); });
    forbidden([](const scene &) {
        void *more;
        return cudaMalloc(&more, 1);
    });
    forbidden([](const scene &s) {
        const int x = 1;
        return cudaMemcpyAsync(s.data, &x, sizeof x, cudaMemcpyHostToDevice, s.first);
    });
}

/* A thread that says so may ask about other work while a stream is captured. */
static void relaxed_threads_may_ask()
{
    scene s;
    enum cudaStreamCaptureStatus status;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaEventRecord(s.joined, s.second));
    OK(cudaStreamSynchronize(s.second));
    begin(s);
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeGlobal);
    OK(cudaEventQuery(s.joined));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeRelaxed);
    OK(cudaStreamIsCapturing(cudaStreamLegacy, &status));
    put(s.first, set_kernel, s.data, 1);
    OK(cudaGraphExecDestroy(end(s)));
}

static void captures_need_an_end()
{
    scene s;
    begin(s);
    fork_streams(s);
    put(s.second, double_kernel, s.data);
    ends_with(s, cudaErrorStreamCaptureUnjoined);
    begin(s);
    fork_streams(s);
    cudaGraph_t graph;
    EXPECT(cudaStreamEndCapture(s.second, &graph) == cudaErrorStreamCaptureUnmatched);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
}

/* An event of a capture never passes. */
static void events_of_captures_are_known()
{
    scene s;
    begin(s);
    put(s.first, set_kernel, s.data, 1);
    OK(cudaEventRecord(s.forked, s.first));
    const cudaGraphExec_t exec = end(s);
    EXPECT(cudaEventQuery(s.forked) == cudaErrorCapturedEvent);
    EXPECT(cudaEventSynchronize(s.forked) == cudaErrorCapturedEvent);
    EXPECT(cudaStreamWaitEvent(s.second, s.forked, 0) == cudaErrorCapturedEvent);
    OK(cudaEventRecord(s.forked, s.first));
    OK(cudaEventSynchronize(s.forked));
    OK(cudaGraphExecDestroy(exec));
}

/* The legacy stream waits for blocking streams, and so for one that is captured. */
static void the_legacy_stream_ends_a_capture()
{
    scene s;
    cudaStream_t blocking;
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamCreate(&blocking));
    begin(s);
    OK(cudaMemset(s.data, 0, sizeof *s.data));
    OK(cudaGraphExecDestroy(end(s)));
    OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaStreamIsCapturing(cudaStreamLegacy, &status) == cudaErrorStreamCaptureImplicit);
    OK(cudaStreamIsCapturing(blocking, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    EXPECT(cudaMemset(s.data, 0, sizeof *s.data) == cudaErrorStreamCaptureImplicit);
    EXPECT(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamDestroy(blocking));
}

int main()
{
    graphs_keep_their_order();
    nothing_runs_while_captured();
    forbidden_calls_end_a_capture();
    relaxed_threads_may_ask();
    captures_need_an_end();
    events_of_captures_are_known();
    the_legacy_stream_ends_a_capture();
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
