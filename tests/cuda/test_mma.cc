/* SPDX-License-Identifier: Apache-2.0 */
/* test_mma.cc - the kernels "mma" against attention in double precision, on a GPU or emulated. An
 * argument selects the cases whose name holds it. */
#include "backend/cuda/mma/mma.h"

#include "runs.h"

using namespace test;

/* Rounding of weights and of the output; sums are f32. */
static double rounding(const problem &p) { return p.dtype == RA__CUDA_BF16 ? 0x1p-7 : 0x1p-10; }

/* A launch of backward on a device of a compute capability, which decides how much shared memory an
 * emulated one has. */
struct backward_run {
    const char *sm;
    bool any_order;
    const char *dq, *dk, *dv;
};
static const backward_run backward_runs[] = {
    { "90", false, "dq", "dk", "dv" },
    { "86", false, "dq of sm_86", "dk of sm_86", "dv of sm_86" },
    { "90", true, "dq in any order", "dk in any order", "dv in any order" },
    { "80", true, "dq in any order, sm_80", "dk in any order, sm_80", "dv in any order, sm_80" },
    { "86", true, "dq in any order, sm_86", "dk in any order, sm_86", "dv in any order, sm_86" },
};

static void check_backward(const problem &p, bench &b, const answer &right, const backward_run &run)
{
    const struct ra__kernel *kernel = &ra__cuda_kernel_mma;
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
    const struct ra__kernel *kernel = &ra__cuda_kernel_mma;
    if (!kernel->takes(p.dtype, p.dim, p.value_dim, 0)) {
        expect(p, "not taken", 1.0, 0.0);
        return;
    }
    bench b(p);
    const answer right = reference(b);
    const double of = rounding(p);
    b.tile_queries(kernel->tiling(p.dtype, p.dim, p.value_dim).tile_rows);
    tensor lse = b.lse;
    for (const char *sm : { "86", "90" }) {
        setenv("RINGATTN_EMULATED_SM", sm, 1);
        forward(*kernel, b);
        expect(p, "out", difference(b.out, right.out, p.size * (p.terms.drop ? 3 : 1)), 2 * of);
        expect(p, "lse", difference(b.lse, right.lse, 1.0), 2e-3);
    }
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    b.lse.upload(b.device);
    for (const backward_run &run : backward_runs)
        if (!run.any_order || (!b.step.terms.any && b.step.scale > 0.0f))
            check_backward(p, b, right, run);
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
