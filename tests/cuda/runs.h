/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h - runs a step by a kernel, forward over hops or ranges of keys, and backward; and counts
 * what was expected. For the tests of all kernels. */
#ifndef TESTS_CUDA_RUNS_H
#define TESTS_CUDA_RUNS_H

#include "cases.h"
#include "reference.h"

namespace test
{

inline int failed, passed;

inline void expect(const problem &p, const char *what, double error, double limit)
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

inline void launched(int error)
{
    must((cudaError_t)error, "launch");
    must(cudaDeviceSynchronize(), "kernel");
}

/* ---- Forward ---- */

/* States of ranges, merged on the host into out and lse: all m, then all l, then all acc. */
inline void merge(bench &b, const std::vector<float> &states)
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
            b.out.row(batch, token, head)[d] = (float)(sum == 0.0 ? 0.0 : o[d] / sum);
        *b.lse.row(batch, token, head) = (float)((most + log2(sum)) * 0.69314718055994530942);
    });
}

/* Keys in the order of the hops: each takes a part of each run. */
inline void forward_hop(const ra__kernel &kernel, bench &b, int hop)
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
    launched(kernel.forward(&step, nullptr));
}

inline void forward_split(const ra__kernel &kernel, bench &b)
{
    const problem &p = b.p;
    ra__cuda_step step = b.step;
    step.ranges = p.ranges;
    step.range_keys = (p.positions + p.ranges - 1) / p.ranges;
    step.split_queries = p.queries;
    b.step.split_rows = step.split_rows = p.batch * p.queries * p.q_heads;
    std::vector<float> states((size_t)p.ranges * step.split_rows * (2 + p.value_dim), NAN);
    step.split_states = b.device.put(states);
    launched(kernel.forward(&step, nullptr));
    must(cudaMemcpy(states.data(), step.split_states, states.size() * sizeof(float),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    merge(b, states);
}

inline void forward(const ra__kernel &kernel, bench &b)
{
    if (b.p.ranges > 1) {
        forward_split(kernel, b);
        return;
    }
    for (int hop = 0; hop < b.p.hops; hop++) forward_hop(kernel, b, hop);
    b.out.download();
    b.lse.download();
}

/* ---- Backward ---- */

/* A launch for each wave of tiles of keys. */
inline void backward_waves(int (*launch)(const ra__cuda_step *, void *), bench &b, int size)
{
    const key_waves keys = tile_keys(b, size);
    b.step.parts = b.device.put(keys.parts);
    for (const auto &wave : keys.waves) {
        b.step.key_tiles = b.device.put(wave);
        b.step.key_tile_count = (int)wave.size();
        launched(launch(&b.step, nullptr));
    }
}
inline void download_gradients(bench &b)
{
    b.dq.download();
    b.dk.download();
    b.dv.download();
}

inline void backward(const ra__kernel &kernel, bench &b, const ra__cuda_tiling &tiling)
{
    b.tile_queries(tiling.gradient_rows);
    launched(kernel.gradient_q(&b.step, nullptr));
    backward_waves(kernel.gradient_kv, b, tiling.tile_keys);
    download_gradients(b);
}
inline void backward_any_order(const ra__kernel &kernel, bench &b, const ra__cuda_tiling &tiling)
{
    backward_waves(kernel.gradient_any_order, b, tiling.tile_keys);
    download_gradients(b);
}

} // namespace test

#endif
