/* SPDX-License-Identifier: Apache-2.0 */
/* test_simt.cc - the kernels "simt" against attention in double precision, on a GPU or emulated. An
 * argument selects the cases whose name holds it. TEST_FORWARD: no backward. */
#include "backend/cuda/simt/simt.h"

#include "cases.h"
#include "reference.h"

using namespace test;

static const struct ra__kernel *const kernel = &ra__cuda_kernel_simt;
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

/* ---- Forward ---- */

/* States of ranges, merged on the host into out and lse: all m, then all l, then all acc. */
static void merge(bench &b, const std::vector<float> &states)
{
    const problem &p = b.p;
    const int64_t rows = b.step.split_rows, all = p.ranges * rows;
    for_rows(b, [&](const ra__cuda_row &, int64_t, int64_t, int batch, int head, int64_t token) {
        const int64_t row = (batch * p.queries + token) * p.q_heads + head;
        double most = -INFINITY, sum = 0.0;
        std::vector<double> o(p.value_dim, 0.0);
        for (int range = 0; range < p.ranges; range++)
            most = fmax(most, states[range * rows + row]);
        for (int range = 0; range < p.ranges; range++) {
            const int64_t at = range * rows + row;
            const double factor = states[at] == -INFINITY ? 0.0 : exp2(states[at] - most);
            sum += factor * states[all + at];
            for (int d = 0; d < p.value_dim; d++)
                o[d] += factor * states[2 * all + at * p.value_dim + d];
        }
        for (int d = 0; d < p.value_dim; d++)
            b.out.row(batch, token, head)[d] = (float)(sum > 0.0 ? o[d] / sum : 0.0);
        *b.lse.row(batch, token, head) = (float)((most + log2(sum)) * 0.69314718055994530942);
    });
}

/* Keys in the order of the hops: each takes a part of each run. */
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
    launched(kernel->forward(&step, nullptr));
}

static void forward_split(bench &b)
{
    const problem &p = b.p;
    ra__cuda_step step = b.step;
    step.ranges = p.ranges;
    step.range_keys = (p.positions + p.ranges - 1) / p.ranges;
    step.split_queries = p.queries;
    b.step.split_rows = step.split_rows = p.batch * p.queries * p.q_heads;
    std::vector<float> states((size_t)p.ranges * step.split_rows * (2 + p.value_dim), NAN);
    step.split_states = b.device.put(states);
    launched(kernel->forward(&step, nullptr));
    must(cudaMemcpy(states.data(), step.split_states, states.size() * sizeof(float),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    merge(b, states);
}

static void forward(bench &b)
{
    if (b.p.ranges > 1) {
        forward_split(b);
        return;
    }
    for (int hop = 0; hop < b.p.hops; hop++) forward_hop(b, hop);
    b.out.download();
    b.lse.download();
}

/* ---- Backward ---- */

static void backward(bench &b, const struct ra__cuda_tiling &tiling)
{
    b.tile_queries(tiling.gradient_rows);
    launched(kernel->gradient_q(&b.step, nullptr));
    const key_waves keys = tile_keys(b, tiling.tile_keys);
    b.step.parts = b.device.put(keys.parts);
    for (const auto &wave : keys.waves) {
        b.step.key_tiles = b.device.put(wave);
        b.step.key_tile_count = (int)wave.size();
        launched(kernel->gradient_kv(&b.step, nullptr));
    }
    b.dq.download();
    b.dk.download();
    b.dv.download();
}

/* Queries without a gradient whose LSE is too coarse: weights must not be recomputed from it, they
 * would be infinite. */
static void make_silent(bench &b, const std::vector<int64_t> &tokens, tensor &t, float value)
{
    for (int64_t token : tokens)
        for (int batch = 0; batch < b.p.batch; batch++)
            for (int head = 0; head < b.p.q_heads; head++)
                for (int d = 0; d < t.width; d++) t.row(batch, token, head)[d] = value;
    t.upload(b.device);
    b.views();
}

static void check(const problem &p, const std::vector<int64_t> &silent, bool with_backward)
{
    const struct ra__cuda_tiling tiling = kernel->tiling(p.dtype, p.dim, p.value_dim);
    const bool coarse = p.dtype != RA__CUDA_F32, large = p.size > 1.0f;
    const double sums = large ? 2e-3 : 3e-5;
    const double rounding = p.dtype == RA__CUDA_BF16 ? 0x1p-8 : 0x1p-11;
    bench b(p);
    if (!silent.empty()) make_silent(b, silent, b.dout, 0.0f);
    const answer right = reference(b);
    const tensor lse = b.lse;
    b.tile_queries(tiling.tile_rows);
    forward(b);
    const double size = size_of(right.out);
    expect(p, "out", difference(b.out, right.out, size), sums + (coarse ? rounding : 0.0));
    expect(p, "lse", difference(b.lse, right.lse, fmax(size_of(right.lse), 1.0)), 2e-6);
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    make_silent(b, silent, b.lse, -3e6f);
    backward(b, tiling);
    expect(p, "dq", difference(b.dq, right.dq, size_of(right.dq)), sums);
    expect(p, "dk", difference(b.dk, right.dk, size_of(right.dk)), sums);
    expect(p, "dv", difference(b.dv, right.dv, size_of(right.dv)), sums);
}

/* ---- Cases ---- */

/* An infinite query whose only scores are -inf has no weights: that is not what the reference says,
 * so bad queries see enough keys for a score of +inf. */
static problem in_f32(problem p)
{
    p.dtype = RA__CUDA_F32;
    for (int64_t &token : p.bad_queries) token = token < 40 ? token + 40 : token;
    return p;
}

/* Every dim with every dtype, key and value dim apart from one another too. */
static std::vector<problem> dim_cases(void)
{
    const int list[][2] = { { 1, 1 },     { 5, 5 },     { 32, 32 },   { 40, 40 },   { 64, 64 },
                            { 80, 80 },   { 128, 128 }, { 192, 192 }, { 256, 256 }, { 576, 576 },
                            { 576, 512 }, { 192, 128 }, { 3, 130 },   { 260, 7 } };
    const int dtypes[] = { RA__CUDA_F32, RA__CUDA_BF16, RA__CUDA_F16 };
    std::vector<problem> all;
    int n = 0;
    for (const auto &dim : list) {
        const bool large = dim[0] > 128 || dim[1] > 128;
        problem p = large ? band("dims", 40, 70, 30, ANY, 0) : band("dims", 70, 130, 30, ANY, 0);
        all.push_back(dims(p, RA__CUDA_F32, dim[0], dim[1]));
        p.shift = p.extra = 1;
        p.name = "dims unaligned";
        all.push_back(dims(p, dtypes[++n % 3], dim[0], dim[1]));
    }
    return all;
}

static std::vector<problem> more_cases(void)
{
    std::vector<problem> all;
    problem hops = several_runs();
    hops.hops = 3;
    hops.name = "three hops";
    all.push_back(dims(hops, RA__CUDA_F32, 64, 64));
    hops = heads(family(), 1, 4, 2), hops.hops = 3;
    hops.name = "three hops of a family";
    all.push_back(dims(hops, RA__CUDA_F32, 40, 300));
    problem empty = band("no runs", 10, 10, 0, ANY, ANY);
    empty.rows[0].runs.clear();
    empty.terms.sinks = true;
    all.push_back(in_f32(empty));
    problem jumps = band("jumps", 20, 400, 380, ANY, 0);
    jumps.size = 5.0f, jumps.scale = 1.0f;
    all.push_back(dims(jumps, RA__CUDA_F32, 64, 64));
    problem split = several_runs();
    split.ranges = 4;
    split.name = "split, two passes";
    all.push_back(dims(split, RA__CUDA_F32, 16, 300));
    problem bad = heads(band("bad keys, two passes", 130, 130, 0, ANY, 0), 1, 2, 1);
    bad.bad_keys = { 3, 129 };
    bad.bad_queries = { 50, 80 };
    all.push_back(dims(bad, RA__CUDA_F32, 300, 270));
    return all;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    const bool with_backward = !getenv("TEST_FORWARD");
    std::vector<problem> all = dim_cases();
    for (const problem &p : more_cases()) all.push_back(p);
    for (const problem &p : all_cases()) all.push_back(in_f32(p));
    for (const problem &p : all)
        if (p.name.find(only) != std::string::npos) check(p, {}, with_backward);
    problem silent = dims(band("silent", 100, 120, 20, ANY, 0), RA__CUDA_F32, 64, 64);
    if (silent.name.find(only) != std::string::npos) check(silent, { 5, 99 }, with_backward);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
