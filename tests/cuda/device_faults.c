/* SPDX-License-Identifier: Apache-2.0 */
/* device_faults.c - a group on a GPU when something fails: an error with a sentence, no crash, and
 * nothing left behind. For a real GPU (tools/gpu-check), where faults are made from outside of the
 * library; on the emulated one as well, but for those that it cannot have.
 *
 *     device_faults [TOKENS] [leaks] [budget] [memory] [kernel] [reset]        default: all
 *
 * Each fault has a process of its own: what a kernel has done to a context cannot be undone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "ringattn.h"
#include "ringattn_cuda.h"

enum { HEADS = 4, DIM = 64, RANKS = 4, CHUNKS = 4096 };
enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

static int64_t tokens = 8192;
static size_t tensor_bytes; /* bf16 */

/* Attention on some ranks that share the GPU, with tensors in its memory. */
struct work {
    int ranks;
    int64_t stride; /* between positions of Q; 0: packed */
    void *queue;    /* of calls; NULL: they return when they are done */
    ra_group *groups[RANKS];
    ra_plan *plans[RANKS];
    char *tensors[TENSORS];
    float *lse;
};

static int failed;

static int expect(int holds, const char *what)
{
    if (!holds) {
        printf("    FAILED: %s (last error: %s)\n", what, ra_last_error());
        failed = 1;
    }
    return holds;
}

static void expect_error(ra_status status, ra_status wanted, const char *what)
{
    const int right = wanted == RA_OK ? status != RA_OK : status == wanted;
    if (expect(right, what) && expect(*ra_last_error() != 0, "it comes with a sentence"))
        printf("    %s: %s\n", ra_status_name(status), ra_last_error());
}

static size_t free_memory(void)
{
    size_t available = 0, total = 0;
    cudaDeviceSynchronize();
    cudaMemGetInfo(&available, &total);
    return available;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static ra_status open_tensors(struct work *work)
{
    for (int i = 0; i < TENSORS; i++) {
        if (cudaMalloc((void **)&work->tensors[i], tensor_bytes) != cudaSuccess)
            return RA_ERR_MEMORY;
        cudaMemset(work->tensors[i], 0, tensor_bytes);
    }
    if (cudaMalloc((void **)&work->lse, (size_t)tokens * HEADS * sizeof(float)) != cudaSuccess)
        return RA_ERR_MEMORY;
    return RA_OK;
}

static ra_problem problem_of(void)
{
    ra_problem problem = ra_problem_default();
    problem.dtype = RA_BF16;
    problem.q_len = tokens;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    return problem;
}

static ra_status open_plans(struct work *work, int ranks, size_t budget)
{
    ra_group_options options = ra_group_options_default();
    options.device = "cuda";
    options.on_device = 1;
    ra_status status = ra_group_create_local(ranks, &options, work->groups);
    if (status != RA_OK) return status;
    work->ranks = ranks;
    const ra_problem problem = problem_of();
    ra_plan_options how = ra_plan_options_default();
    how.backward = 1;
    how.memory = budget;
    for (int i = 0; i < ranks && status == RA_OK; i++)
        status = ra_plan_create(work->groups[i], &problem, &how, &work->plans[i]);
    return status;
}

static void close_plans(struct work *work)
{
    for (int i = 0; i < work->ranks; i++) ra_plan_destroy(work->plans[i]);
    for (int i = 0; i < work->ranks; i++) ra_group_destroy(work->groups[i]);
    memset(work->plans, 0, sizeof work->plans);
    memset(work->groups, 0, sizeof work->groups);
    work->ranks = 0;
}

static void close_tensors(struct work *work)
{
    for (int i = 0; i < TENSORS; i++) cudaFree(work->tensors[i]);
    cudaFree(work->lse);
}

/* A rank's part of a tensor: positions are divided evenly. */
static ra_tensor part(const struct work *work, int tensor, int rank)
{
    return ra_tensor_packed(work->tensors[tensor] + (size_t)rank * tensor_bytes / work->ranks);
}

static ra_status attend_rank(ra_group *group, void *context)
{
    const struct work *work = context;
    const int rank = ra_group_rank(group);
    float *lse = work->lse + (int64_t)rank * tokens / work->ranks * HEADS;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_tensor_read(part(work, Q, rank));
    if (work->stride) {
        args.q.batch_stride = work->stride * tokens;
        args.q.position_stride = work->stride;
        args.q.head_stride = DIM;
    }
    args.k = ra_tensor_read(part(work, K, rank));
    args.v = ra_tensor_read(part(work, V, rank));
    args.out = part(work, OUT, rank);
    args.lse = lse;
    args.queue = work->queue;
    ra_status status = ra_attend(work->plans[rank], &args);
    if (status != RA_OK) return status;
    ra_gradient_args back = ra_gradient_args_default();
    back.q = args.q;
    back.k = args.k;
    back.v = args.v;
    back.out = ra_tensor_read(args.out);
    back.lse = lse;
    back.dout = ra_tensor_read(part(work, DOUT, rank));
    back.dq = part(work, DQ, rank);
    back.dk = part(work, DK, rank);
    back.dv = part(work, DV, rank);
    back.queue = work->queue;
    return ra_gradient(work->plans[rank], &back);
}

static ra_status compute(struct work *work)
{
    return ra_group_run(work->groups, work->ranks, attend_rank, work);
}

/* Opens, computes, and closes; on one rank and on four. */
static void compute_once(struct work *work)
{
    for (int ranks = 1; ranks <= RANKS; ranks += RANKS - 1) {
        expect(open_plans(work, ranks, 0) == RA_OK && compute(work) == RA_OK, "it computes");
        close_plans(work);
    }
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void fault_leaks(struct work *work)
{
    compute_once(work); /* loads kernels, which stay */
    const size_t before = free_memory();
    for (int i = 0; i < 5; i++) compute_once(work);
    const size_t after = free_memory();
    printf("    free before %zu MiB, after %zu MiB\n", before >> 20, after >> 20);
    expect(after + tensor_bytes >= before, "memory of groups and plans is given back");
}

static void fault_budget(struct work *work)
{
    compute_once(work);
    const size_t before = free_memory();
    expect_error(open_plans(work, 1, 64 << 10), RA_ERR_BUDGET, "64 KiB are too little");
    close_plans(work);
    expect(free_memory() + tensor_bytes >= before, "nothing is left behind");
    compute_once(work);
}

static void fault_memory(struct work *work)
{
    static void *chunks[CHUNKS];
    int count = 0;
    compute_once(work);
    const size_t before = free_memory();
    for (size_t bytes = (size_t)1 << 30; bytes >= 16; bytes /= 2)
        while (count < CHUNKS && cudaMalloc(&chunks[count], bytes) == cudaSuccess) count++;
    cudaGetLastError();
    expect_error(open_plans(work, 1, 0), RA_ERR_MEMORY, "the memory of the GPU is full");
    close_plans(work);
    while (count > 0) cudaFree(chunks[--count]);
    compute_once(work);
    expect(free_memory() + tensor_bytes >= before, "nothing is left behind");
}

static void fault_kernel(struct work *work)
{
    expect(open_plans(work, 1, 0) == RA_OK && compute(work) == RA_OK, "it computes");
    work->stride = (int64_t)1 << 34; /* no memory is there */
    expect_error(compute(work), RA_OK, "a kernel that reads where no memory is");
    work->stride = 0;
    expect_error(compute(work), RA_OK, "the call after that");
    close_plans(work);
}

/* On groups whose GPU was reset. */
static void use_lost(struct work *lost)
{
    const ra_problem problem = problem_of();
    ra_stats stats = ra_stats_default();
    ra_plan *plan;
    expect_error(compute(lost), RA_ERR_SYSTEM, "after a reset of the device");
    expect_error(compute(lost), RA_OK, "the call after that");
    expect(ra_plan_stats(lost->plans[0], &stats) == RA_OK, "a plan still counts");
    expect_error(ra_plan_create(lost->groups[0], &problem, NULL, &plan), RA_ERR_SYSTEM,
                 "a new plan of the old group");
}

/* A new group in the new context, open while the lost one is closed. */
static void replace(struct work *lost, struct work *made, int ranks)
{
    expect(open_tensors(made) == RA_OK, "new tensors are allocated");
    expect(open_plans(made, ranks, 0) == RA_OK && compute(made) == RA_OK, "a new group computes");
    const size_t before = free_memory();
    close_plans(lost);
    expect(free_memory() < before + tensor_bytes, "closing the old one frees none of the new one");
    expect(compute(made) == RA_OK, "the new group still computes");
}

static void open_queue(struct work *work)
{
    cudaStream_t stream = NULL;
    expect(cudaStreamCreate(&stream) == cudaSuccess, "a new stream");
    work->queue = ra_cuda_queue(stream);
}

static void close_queue(struct work *work)
{
    expect(cudaStreamSynchronize(work->queue) == cudaSuccess, "its work is done");
    cudaStreamDestroy(work->queue);
    work->queue = NULL;
}

static void reset_once(struct work *work, int ranks, int queued)
{
    struct work made = { .ranks = 0 };
    if (queued) open_queue(work);
    expect(open_plans(work, ranks, 0) == RA_OK && compute(work) == RA_OK, "it computes");
    cudaDeviceReset();
    if (queued) open_queue(&made);
    work->queue = made.queue;
    use_lost(work);
    replace(work, &made, ranks);
    if (queued) close_queue(&made);
    close_plans(&made);
    *work = made; /* the old tensors are gone */
}

static void fault_reset(struct work *work)
{
    for (int ranks = 1; ranks <= RANKS; ranks += RANKS - 1)
        for (int queued = 0; queued < 2; queued++) reset_once(work, ranks, queued);
    expect(open_plans(work, 1, 0) == RA_OK && compute(work) == RA_OK, "it computes");
    cudaDeviceReset();
    close_plans(work); /* nothing has used the device since */
    memset(work, 0, sizeof *work);
}

static const struct fault {
    const char *name;
    void (*run)(struct work *work);
} faults[] = {
    { "leaks", fault_leaks },   { "budget", fault_budget }, { "memory", fault_memory },
    { "kernel", fault_kernel }, { "reset", fault_reset },
};

/* In a process of its own; 0: all was as it should be. */
static int run_apart(const struct fault *fault)
{
    int status;
    printf("%s\n", fault->name);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        struct work work = { .ranks = 0 };
        if (expect(open_tensors(&work) == RA_OK, "tensors are allocated")) fault->run(&work);
        close_tensors(&work);
        exit(failed); /* the emulated GPU then looks for leaks */
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status)) printf("    FAILED: it crashed, signal %d\n", WTERMSIG(status));
    return status != 0;
}

static int wanted(const char *name, int count, char **names)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return 1;
    return count == 0;
}

int main(int count, char **arguments)
{
    int passed = 0, wrong = 0;
    const int numbers = count > 1 && atoll(arguments[1]) > 0;
    char **names = arguments + 1 + numbers;
    count -= 1 + numbers;
    if (numbers) tokens = atoll(arguments[1]);
    tensor_bytes = (size_t)tokens * HEADS * DIM * 2;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (!wanted(faults[i].name, count, names)) continue;
        if (run_apart(&faults[i])) wrong++;
        else passed++;
    }
    printf("%d passed, %d failed\n", passed, wrong);
    return wrong > 0 || passed == 0;
}
