/* SPDX-License-Identifier: Apache-2.0 */
/* test_mma.cc - the kernels "mma" and "tf32x3" against attention in double precision, on a GPU or
 * emulated. An argument selects the cases whose name holds it. */
#include "backend/cuda/mma/mma.h"

#include <map>
#include <set>

#include "runs.h"

using namespace test;

/* Rounding of weights and of the output; sums are f32. */
static double rounding(const problem &p)
{
    if (p.dtype == RA__CUDA_F32) return p.size > 1.0f ? 1e-3 : 1.5e-5;
    return p.dtype == RA__CUDA_BF16 ? 0x1p-7 : 0x1p-10;
}
static const struct ra__kernel *kernel_of(const problem &p)
{
    return p.dtype == RA__CUDA_F32 ? &ra__cuda_kernel_tf32x3 : &ra__cuda_kernel_mma;
}
/* Devices with the most and the least shared memory that a kernel is for. It decides how large tiles
 * are, by dtype and dims: on the latter the first six problems of each run. */
static bool is_tested_on(const problem &p, const char *sm)
{
    static std::map<std::string, std::set<std::string>> before;
    if (!strcmp(sm, "90")) return true;
    if (strcmp(sm, p.dtype == RA__CUDA_F32 ? "80" : "86")) return false;
    std::set<std::string> &names = before[std::to_string(p.dtype) + " " + std::to_string(p.dim) +
                                          " " + std::to_string(p.value_dim)];
    if (names.size() < 6) names.insert(p.name);
    return names.count(p.name) > 0;
}

/* A launch of backward on a device of a compute capability, which decides how much shared memory an
 * emulated one has. */
struct backward_run {
    const char *sm;
    bool any_order;
    const char *dq, *dk, *dv;
};
static const backward_run backward_runs[] = {
    { "90", false, "dq", "dk", "dv" },
    { "80", false, "dq of sm_80", "dk of sm_80", "dv of sm_80" },
    { "86", false, "dq of sm_86", "dk of sm_86", "dv of sm_86" },
    { "90", true, "dq in any order", "dk in any order", "dv in any order" },
    { "80", true, "dq in any order, sm_80", "dk in any order, sm_80", "dv in any order, sm_80" },
    { "86", true, "dq in any order, sm_86", "dk in any order, sm_86", "dv in any order, sm_86" },
};

static void check_backward(const problem &p, bench &b, const answer &right, const backward_run &run)
{
    const struct ra__kernel *kernel = kernel_of(p);
    const struct ra__cuda_tiling tiling = kernel->tiling(p.dtype, p.dim, p.value_dim);
    const tensor dq = b.dq, dk = b.dk, dv = b.dv;
    const double of = rounding(p);
    setenv("RINGATTN_EMULATED_SM", run.sm, 1);
    for (tensor *t : { &b.dq, &b.dk, &b.dv }) t->upload(b.device);
    b.views();
    if (run.any_order) backward_any_order(*kernel, b, tiling);
    else backward(*kernel, b, tiling);
    expect(p, run.dq, difference(b.dq, right.dq, size_of(right.dq)), 2 * of);
    expect(p, run.dk, difference(b.dk, right.dk, size_of(right.dk)), 2 * of);
    expect(p, run.dv, difference(b.dv, right.dv, size_of(right.dv)), 2 * of);
    b.dq = dq, b.dk = dk, b.dv = dv;
}

static void check(const problem &p, bool with_backward)
{
    const struct ra__kernel *kernel = kernel_of(p);
    if (!kernel->takes(p.dtype, p.dim, p.value_dim, 0)) {
        expect(p, "not taken", 1.0, 0.0);
        return;
    }
    bench b(p);
    const answer right = reference(b);
    const double of = rounding(p);
    b.tile_queries(kernel->tiling(p.dtype, p.dim, p.value_dim).tile_rows);
    tensor lse = b.lse;
    for (const char *sm : { "90", "86", "80" }) {
        if (!is_tested_on(p, sm)) continue;
        setenv("RINGATTN_EMULATED_SM", sm, 1);
        forward(*kernel, b);
        expect(p, "out", difference(b.out, right.out, p.size * (p.terms.drop ? 3 : 1)), 2 * of);
        expect(p, "lse", difference(b.lse, right.lse, fmax(size_of(right.lse), 1.0)),
               p.dtype == RA__CUDA_F32 ? 2e-6 : 2e-3);
    }
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    b.lse.upload(b.device);
    for (const backward_run &run : backward_runs) {
        const bool any_order = kernel->gradient_any_order && !b.step.terms.any &&
                               b.step.scale > 0.0f;
        if (run.any_order ? any_order : is_tested_on(p, run.sm)) check_backward(p, b, right, run);
    }
}

/* Everything that a kernel computes of a problem. */
static answer results(bench &b, answer &right)
{
    const struct ra__kernel *kernel = kernel_of(b.p);
    const struct ra__cuda_tiling tiling = kernel->tiling(b.p.dtype, b.p.dim, b.p.value_dim);
    right = reference(b);
    const tensor lse = b.lse;
    b.tile_queries(tiling.tile_rows);
    forward(*kernel, b);
    answer is;
    is.out = b.out;
    b.lse = lse;
    b.lse.upload(b.device);
    b.views();
    backward(*kernel, b, tiling);
    is.dq = b.dq, is.dk = b.dk, is.dv = b.dv;
    return is;
}

/* Numbers that do not depend on bad keys and queries, which the reference knows, have the bits that
 * they have without them. */
static bool is_same(const tensor &a, const tensor &b, size_t i)
{
    return float_to_bits(a.numbers[i]) == float_to_bits(b.numbers[i]);
}
static int other_bits(tensor answer::*of, const answer (&is)[2], const answer (&right)[2])
{
    int count = 0;
    for (size_t i = 0; i < (is[0].*of).numbers.size(); i++)
        count += is_same(right[0].*of, right[1].*of, i) && !is_same(is[0].*of, is[1].*of, i);
    return count;
}
static void check_bits(const problem &p)
{
    problem good = p;
    good.bad_keys.clear(), good.bad_queries.clear();
    bench bad_one(p), good_one(good);
    answer right[2];
    const answer is[2] = { results(bad_one, right[0]), results(good_one, right[1]) };
    expect(p, "other bits in out", other_bits(&answer::out, is, right), 0);
    expect(p, "other bits in dq", other_bits(&answer::dq, is, right), 0);
    expect(p, "other bits in dk", other_bits(&answer::dk, is, right), 0);
    expect(p, "other bits in dv", other_bits(&answer::dv, is, right), 0);
}

/* Cases for f32 as well: each once, and none of those where the dtype changes nothing but products
 * that others have, since emulated kernels are slow. */
static bool is_for_f32(const problem &p)
{
    static std::set<std::string> before;
    if (p.dim > 128 || p.value_dim > 128) return false;
    for (const char *name : { " softcap", " dropout", " bias", "causal mask", " order", " grouped",
                              "two sided", "window", "few queries", "one head", " heads" })
        if (p.name.find(name) != std::string::npos) return false;
    const std::string dims = " " + std::to_string(p.dim) + " " + std::to_string(p.value_dim);
    return before.insert(p.name + dims).second;
}

/* TSan takes many times as long, and one problem has the same threads as another: every fifth is
 * enough there. */
#if defined(__SANITIZE_THREAD__)
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    const bool with_backward = !getenv("TEST_FORWARD");
    int number = 0;
    for (const problem &p : all_cases()) {
        if (p.name.find(only) == std::string::npos) continue;
        if (number++ % EVERY) continue;
        check(p, with_backward);
        if (!is_for_f32(p)) continue;
        check(in_f32(p), with_backward);
        const bool bad = !p.bad_keys.empty() || !p.bad_queries.empty();
        if (bad && with_backward) {
            check_bits(p);
            check_bits(in_f32(p));
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
