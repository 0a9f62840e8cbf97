/* SPDX-License-Identifier: Apache-2.0 */
/* test_mma.cc - the kernels "mma" against attention in double precision, on a GPU or emulated. An
 * argument selects the cases whose name holds it. */
#include "backend/cuda/mma/mma.h"

#include "runs.h"

using namespace test;

/* Rounding of weights and of the output; sums are f32. */
static double rounding(const problem &p) { return p.dtype == RA__CUDA_BF16 ? 0x1p-7 : 0x1p-10; }

static void expect_gradients(const problem &p, const bench &b, const answer &right)
{
    const double of = rounding(p);
    expect(p, "dq", difference(b.dq, right.dq, size_of(right.dq)), 2 * of);
    expect(p, "dk", difference(b.dk, right.dk, size_of(right.dk)), 2 * of);
    expect(p, "dv", difference(b.dv, right.dv, size_of(right.dv)), 2 * of);
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
    forward(*kernel, b);
    expect(p, "out", difference(b.out, right.out, p.size * (p.terms.drop ? 3 : 1)), 2 * of);
    expect(p, "lse", difference(b.lse, right.lse, 1.0), 2e-3);
    if (!with_backward || p.ranges > 1 || p.hops > 1) return;
    b.lse = lse;
    b.lse.upload(b.device);
    const tensor dq = b.dq, dk = b.dk, dv = b.dv;
    b.views();
    backward(*kernel, b, tiling);
    expect_gradients(p, b, right);
    b.dq = dq, b.dk = dk, b.dv = dv;
    for (tensor *t : { &b.dq, &b.dk, &b.dv }) t->upload(b.device);
    b.views();
    backward_any_order(*kernel, b, tiling);
    expect_gradients(p, b, right);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    const bool with_backward = !getenv("TEST_FORWARD");
    setenv("RINGATTN_EMULATED_SM", "90", 0); /* has the shared memory that the kernels ask for */
    for (const problem &p : all_cases())
        if (p.name.find(only) != std::string::npos) check(p, with_backward);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
