/* SPDX-License-Identifier: Apache-2.0 */
/* test_simt.cc - the kernels "simt" against attention in double precision, on a GPU or emulated. An
 * argument selects the cases whose name holds it. TEST_FORWARD: no backward. */
#include "backend/cuda/simt/simt.h"

#include "runs.h"

using namespace test;

static const struct ra__kernel *const kernel = &ra__cuda_kernel_simt;
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
    forward(*kernel, b);
    const double size = size_of(right.out);
    expect(p, "out", difference(b.out, right.out, size), sums + (coarse ? rounding : 0.0));
    expect(p, "lse", difference(b.lse, right.lse, fmax(size_of(right.lse), 1.0)), 2e-6);
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    make_silent(b, silent, b.lse, -3e6f);
    backward(*kernel, b, tiling);
    expect(p, "dq", difference(b.dq, right.dq, size_of(right.dq)), sums);
    expect(p, "dk", difference(b.dk, right.dk, size_of(right.dk)), sums);
    expect(p, "dv", difference(b.dv, right.dv, size_of(right.dv)), sums);
}

/* ---- Cases ---- */

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
