/* SPDX-License-Identifier: Apache-2.0 */
/* test_mma.cc - the kernels "mma" against attention in double precision, on a GPU or emulated. An
 * argument selects the cases whose name holds it. */
#include "backend/cuda/mma/mma.h"

#include "cases.h"
#include "reference.h"

using namespace test;

static int failed, passed;

static void expect(const problem &p, const char *what, double error, double limit)
{
    if (error <= limit) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED %s: dtype %d, batch %d, heads %d / %d, dims %d / %d: %s off by %g, limit %g\n",
           p.name.c_str(), p.dtype, p.batch, p.q_heads, p.kv_heads, p.dim, p.value_dim, what, error,
           limit);
}

static void launched(int error)
{
    must((cudaError_t)error, "launch");
    must(cudaDeviceSynchronize(), "kernel");
}

/* Rounding of weights and of the output; sums are f32. */
static double rounding(const problem &p) { return p.dtype == RA__CUDA_BF16 ? 0x1p-7 : 0x1p-10; }

/* States of ranges, merged on the host into out and lse. */
static void merge(bench &b, const std::vector<float> &states)
{
    const problem &p = b.p;
    const int64_t rows = b.step.split_rows;
    for_rows(b, [&](const ra__cuda_row &, int64_t, int64_t, int batch, int head, int64_t token) {
        const int64_t row = (batch * p.queries + token) * p.q_heads + head;
        double most = -INFINITY, sum = 0.0;
        std::vector<double> o(p.value_dim, 0.0);
        for (int pass = 0; pass < 2; pass++)
            for (int range = 0; range < p.ranges; range++) {
                const int64_t at = range * rows + row, all = p.ranges * rows;
                const double m = states[at];
                if (pass == 0) most = m > most ? m : most;
                if (pass == 0 || m == -INFINITY) continue;
                const double factor = exp2(m - most);
                sum += factor * states[all + at];
                for (int d = 0; d < p.value_dim; d++)
                    o[d] += factor * states[2 * all + at * p.value_dim + d];
            }
        for (int d = 0; d < p.value_dim; d++)
            b.out.row(batch, token, head)[d] = (float)(sum > 0.0 ? o[d] / sum : 0.0);
        *b.lse.row(batch, token, head) = (float)((most + log2(sum)) * 0.69314718055994530942);
    });
}

/* Keys in the order of the hops: each takes some runs' share. */
static void forward_hop(bench &b, int hop)
{
    std::vector<ra__cuda_row> rows = b.rows;
    std::vector<ra__cuda_run> runs = b.runs;
    for (ra__cuda_row &row : rows) {
        row.first = hop == 0;
        row.last = hop == b.p.hops - 1;
    }
    for (ra__cuda_run &run : runs) {
        const int64_t lo = run.count * hop / b.p.hops, hi = run.count * (hop + 1) / b.p.hops;
        run.token += lo * run.token_step;
        run.pos += lo * run.pos_step;
        run.count = hi - lo;
    }
    ra__cuda_step step = b.step;
    step.rows = b.device.put(rows);
    step.runs = b.device.put(runs);
    launched(ra__cuda_kernel_mma.forward(&step, nullptr));
}

static void forward(bench &b)
{
    const problem &p = b.p;
    if (p.ranges == 1) {
        for (int hop = 0; hop < p.hops; hop++) forward_hop(b, hop);
        b.out.download();
        b.lse.download();
        return;
    }
    ra__cuda_step step = b.step;
    step.ranges = p.ranges;
    step.range_keys = (p.positions + p.ranges - 1) / p.ranges;
    step.split_queries = p.queries;
    b.step.split_rows = step.split_rows = p.batch * p.queries * p.q_heads;
    std::vector<float> states((size_t)p.ranges * step.split_rows * (2 + p.value_dim), NAN);
    step.split_states = b.device.put(states);
    launched(ra__cuda_kernel_mma.forward(&step, nullptr));
    must(cudaMemcpy(states.data(), step.split_states, states.size() * sizeof(float),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    merge(b, states);
}

static void backward(bench &b, const struct ra__cuda_tiling &tiling)
{
    b.tile_queries(tiling.gradient_rows);
    launched(ra__cuda_kernel_mma.gradient_q(&b.step, nullptr));
    const key_waves keys = tile_keys(b, tiling.tile_keys);
    b.step.parts = b.device.put(keys.parts);
    for (const auto &wave : keys.waves) {
        b.step.key_tiles = b.device.put(wave);
        b.step.key_tile_count = (int)wave.size();
        launched(ra__cuda_kernel_mma.gradient_kv(&b.step, nullptr));
    }
    b.dq.download();
    b.dk.download();
    b.dv.download();
}

static void check(const problem &p, bool with_backward)
{
    const struct ra__kernel *kernel = &ra__cuda_kernel_mma;
    if (!kernel->takes(p.dtype, p.dim, p.value_dim, 0)) {
        expect(p, "not taken", 1.0, 0.0);
        return;
    }
    const struct ra__cuda_tiling tiling = kernel->tiling(p.dtype, p.dim, p.value_dim);
    bench b(p);
    const answer right = reference(b);
    const double of = rounding(p);
    b.tile_queries(tiling.tile_rows);
    tensor lse = b.lse;
    forward(b);
    expect(p, "out", difference(b.out, right.out, p.size * (p.terms.drop ? 3 : 1)), 2 * of);
    expect(p, "lse", difference(b.lse, right.lse, 1.0), 2e-3);
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    b.lse.upload(b.device);
    b.views();
    backward(b, tiling);
    expect(p, "dq", difference(b.dq, right.dq, size_of(right.dq)), 2 * of);
    expect(p, "dk", difference(b.dk, right.dk, size_of(right.dk)), 2 * of);
    expect(p, "dv", difference(b.dv, right.dv, size_of(right.dv)), 2 * of);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    const bool with_backward = !getenv("TEST_FORWARD");
    for (const problem &p : all_cases())
        if (p.name.find(only) != std::string::npos) check(p, with_backward);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
