/* SPDX-License-Identifier: Apache-2.0 */
/* launches.cu - every kernel of forward.list and backward.list, called as the project calls them,
 * on small problems with all score terms that it has, against float64 on the host; deterministic
 * ones twice, for the same bits. Needs no Python, so that it can run under compute-sanitizer, and
 * on an emulated GPU (tests/cuda): buffers have exactly the size that the interface asks for.
 *
 *   bench/lab/build.sh --table OUT && compute-sanitizer OUT/launches
 *
 * usage: launches [few] [DIM]      few: bf16 alone, and smaller problems */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "backend/cuda/sm90/sm90.h"
extern "C" {
#include "harness/base/philox.h"
}

static int failures, checks;

/* What a row of a list can do. */
static struct ra__sm90_needs forward_row(int rows, int dim, int, int, int, int, bool, bool,
                                         int terms = 0, int views = 1, bool = false)
{
    struct ra__sm90_needs needs = {};
    needs.dim = dim, needs.rows = rows, needs.terms = terms, needs.views = views > 1;
    return needs;
}

static struct ra__sm90_needs backward_row(int dim, int, bool, bool ordered, int, int terms = 0,
                                          int views = 1, int = 1)
{
    struct ra__sm90_needs needs = {};
    needs.dim = dim, needs.deterministic = ordered, needs.terms = terms, needs.views = views > 1;
    return needs;
}

static const struct ra__sm90_needs forward_rows[] = {
#define ENTRY(...) forward_row(__VA_ARGS__),
#include "backend/cuda/sm90/forward.list"
#undef ENTRY
}, backward_rows[] = {
#define ENTRY(...) backward_row(__VA_ARGS__),
#include "backend/cuda/sm90/backward.list"
#undef ENTRY
};

static void must(int error, const char *what)
{
    if (!error) return;
    printf("%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    exit(2);
}

template <class T> T *on_device(const std::vector<T> &x)
{
    void *to = NULL;
    must(cudaMalloc(&to, x.size() * sizeof(T) + 1), "cudaMalloc");
    must(cudaMemcpy(to, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return (T *)to;
}

template <class T> std::vector<T> on_device_array(const T *x, int64_t count)
{
    return std::vector<T>(x, x + count);
}

static float normal(void)
{
    static uint32_t state = 1;
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        state = 1664525 * state + 1013904223;
        sum += (float)(state >> 8) * 0x1p-24f;
    }
    return sum;
}

/* Numbers of one dtype: as they are, and as the GPU has them. */
struct matrix {
    int dtype, heads, rows, dim;
    std::vector<uint16_t> bits;
    std::vector<double> value;
    struct ra__sm90_tensor tensor;

    /* Random numbers of this size; 0: NaN, to be written. */
    matrix(int dtype, int heads, int rows, int dim, float size)
        : dtype(dtype), heads(heads), rows(rows), dim(dim),
          bits((size_t)heads * rows * dim, 0x7FFF), value(bits.size())
    {
        for (size_t i = 0; size > 0 && i < bits.size(); i++) set(i, size * normal());
        tensor = {
            on_device(bits), rows, heads, 1, dim, (int64_t)rows * dim, (int64_t)heads * rows * dim
        };
    }
    void set(size_t i, float x)
    {
        if (dtype == RA__SM90_BF16) {
            const __nv_bfloat16 y = __float2bfloat16(x);
            memcpy(&bits[i], &y, 2);
            value[i] = __bfloat162float(y);
        } else {
            const __half y = __float2half(x);
            memcpy(&bits[i], &y, 2);
            value[i] = __half2float(y);
        }
    }
    void fetch(void)
    {
        must(cudaMemcpy(bits.data(), tensor.data, 2 * bits.size(), cudaMemcpyDeviceToHost), "copy");
        for (size_t i = 0; i < bits.size(); i++) {
            __nv_bfloat16 b;
            __half h;
            memcpy(&b, &bits[i], 2);
            memcpy(&h, &bits[i], 2);
            value[i] = dtype == RA__SM90_BF16 ? __bfloat162float(b) : __half2float(h);
        }
    }
    double &at(int h, int r, int c) { return value[((size_t)h * rows + r) * dim + c]; }
    void release(void) { cudaFree(tensor.data); }
};

static const float slopes[2] = { 0.05f, 0.4f }, sinks[2] = { 1, -2 };
enum { SOFTCAP = 4, SEED = 5, DROP_BELOW = 1 << 30 /* a quarter of all weights */ };

/* One problem: 2 query heads that read one KV head; query i sees key j if j <= hi + i. It has all
 * terms that `needs` names. */
struct problem {
    struct ra__sm90_needs needs;
    int rows, keys, hi;
    matrix q, k, v, dout;
    std::vector<float> bias;                  /* [2 rows, keys] */
    std::vector<double> out, lse, dq, dk, dv; /* wanted */

    /* `size`: of scores; large ones leave the range of weights, so that items are replayed. */
    problem(struct ra__sm90_needs needs, int rows, int keys, int hi, float size = 1)
        : needs(needs), rows(rows), keys(keys), hi(hi), q(needs.dtype, 2, rows, needs.dim, size),
          k(needs.dtype, 1, keys, needs.dim, 1), v(needs.dtype, 1, keys, needs.dim, 1),
          dout(needs.dtype, 2, rows, needs.dim, 1), bias((size_t)2 * rows * keys)
    {
        const int dim = needs.dim;
        for (float &x : bias) x = normal();
        out.assign((size_t)2 * rows * dim, 0);
        lse.assign((size_t)2 * rows, -INFINITY);
        dq = out;
        dk.assign((size_t)keys * dim, 0);
        dv = dk;
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < rows; i++) attend(h, i);
    }

    bool has(int term) const { return needs.terms & term; }

    /* A score out of scale q.k, and its derivative by that. */
    double score(int h, int i, int j, double x, double *derivative) const
    {
        *derivative = 1;
        if (has(RA__SM90_SOFTCAP)) {
            const double t = tanh(x / SOFTCAP);
            x = SOFTCAP * t;
            *derivative = 1 - t * t;
        }
        if (has(RA__SM90_BIAS)) x += bias[((size_t)h * rows + i) * keys + j];
        if (has(RA__SM90_SLOPES)) x -= slopes[h] * abs(i - j);
        return x;
    }

    /* What dropout multiplies a weight by. */
    double kept(int h, int i, int j) const
    {
        if (!has(RA__SM90_DROPOUT)) return 1;
        const uint32_t counter[4] = { (uint32_t)j / 4, (uint32_t)i, (uint32_t)h, 0 };
        return philox_word(SEED, counter, j % 4) < DROP_BELOW ? 0 : 1 / 0.75;
    }

    void attend(int h, int i)
    {
        const int dim = needs.dim;
        const int64_t last = (int64_t)hi + i < keys - 1 ? (int64_t)hi + i : keys - 1;
        const bool sink = has(RA__SM90_SINKS);
        std::vector<double> x(keys), by(keys);
        double top = sink ? sinks[h] : -INFINITY, sum = 0, delta = 0;
        double *o = &out[((size_t)h * rows + i) * dim];
        for (int j = 0; j <= last; j++) {
            for (int c = 0; c < dim; c++) x[j] += q.at(h, i, c) * k.at(0, j, c);
            x[j] = score(h, i, j, x[j] / sqrt(dim), &by[j]);
            top = fmax(top, x[j]);
        }
        if (last < 0) return;
        if (sink) sum = exp(sinks[h] - top);
        for (int j = 0; j <= last; j++) sum += exp(x[j] - top);
        lse[(size_t)h * rows + i] = top + log(sum);
        std::vector<double> dp(keys);
        for (int j = 0; j <= last; j++) {
            const double keep = kept(h, i, j);
            x[j] = exp(x[j] - top) / sum;
            for (int c = 0; c < dim; c++) o[c] += keep * x[j] * v.at(0, j, c);
            for (int c = 0; c < dim; c++) dp[j] += keep * dout.at(h, i, c) * v.at(0, j, c);
            for (int c = 0; c < dim; c++)
                dv[(size_t)j * dim + c] += keep * x[j] * dout.at(h, i, c);
            delta += x[j] * dp[j];
        }
        for (int j = 0; j <= last; j++) {
            const double ds = x[j] * (dp[j] - delta) * by[j] / sqrt(dim);
            for (int c = 0; c < dim; c++) {
                dq[((size_t)h * rows + i) * dim + c] += ds * k.at(0, j, c);
                dk[(size_t)j * dim + c] += ds * q.at(h, i, c);
            }
        }
    }

    struct ra__sm90_terms terms(void) const
    {
        struct ra__sm90_terms terms = {};
        terms.q_step = terms.k_step = 1;
        if (has(RA__SM90_SOFTCAP)) terms.softcap = SOFTCAP;
        if (has(RA__SM90_SLOPES)) terms.slopes = on_device(on_device_array(slopes, 2));
        if (has(RA__SM90_SINKS)) terms.sinks = on_device(on_device_array(sinks, 2));
        if (has(RA__SM90_DROPOUT)) {
            terms.drop_below = DROP_BELOW;
            terms.seed = SEED;
            terms.kept_scale = 1 / 0.75f;
        }
        if (has(RA__SM90_BIAS)) {
            terms.bias = on_device(bias);
            terms.bias_bytes = 4;
            terms.bias_row_stride = keys;
            terms.bias_head_stride = (int64_t)rows * keys;
        }
        return terms;
    }

    void expect(const char *what, const std::vector<double> &got, const std::vector<double> &want)
    {
        double off = 0, all = 0;
        for (size_t i = 0; i < want.size(); i++) {
            if (isinf(want[i]) && got[i] == want[i]) continue;
            off += (got[i] - want[i]) * (got[i] - want[i]);
            all += want[i] * want[i];
        }
        const double error = sqrt(off / all);
        checks++;
        if (!(error < (needs.dtype == RA__SM90_BF16 ? 6e-3 : 1e-3))) fail(what, error);
    }
    void expect_same(const std::vector<uint32_t> &before, const std::vector<uint32_t> &after)
    {
        size_t others = 0;
        for (size_t i = 0; i < before.size(); i++) others += before[i] != after[i];
        checks++;
        if (others)
            fail("share of the sums of dq that differ when run again",
                 (double)others / (double)before.size());
    }
    void fail(const char *what, double error)
    {
        printf("dim %d dtype %d terms %d views %d ordered %d, %d x %d: %s: %.1e\n", needs.dim,
               needs.dtype, needs.terms, needs.views, needs.deterministic, rows, keys, what, error);
        failures++;
    }
    void release(void) { q.release(), k.release(), v.release(), dout.release(); }
};

static void release(const struct ra__sm90_terms &terms)
{
    cudaFree((void *)terms.slopes), cudaFree((void *)terms.sinks), cudaFree((void *)terms.bias);
}

/* A schedule, on the device. */
struct planned {
    struct ra__sm90_schedule made;
    struct ra__sm90_item *items;
    struct ra__sm90_run *runs;
    struct ra__sm90_merge *merges;
    int32_t *queues;
    float *parts;

    planned(const std::vector<ra__sm90_rows> &rows, const std::vector<ra__sm90_run> &given,
            const struct ra__sm90_shape &shape, int clusters)
    {
        struct ra__sm90_schedule_input in = {};
        in.rows = rows.data();
        in.runs = given.data();
        in.row_count = (int)rows.size();
        in.tile_rows = shape.tile_rows;
        in.block_keys = shape.block_keys;
        in.clusters = clusters;
        in.section_heads = 4;
        in.item_cost = 2;
        in.split = 1;
        must(ra__sm90_schedule(&in, &made), "schedule");
        items = on_device(on_device_array(made.items, made.item_count));
        runs = on_device(on_device_array(made.runs, made.run_count));
        merges = on_device(on_device_array(made.merges, made.merge_count));
        queues = on_device(on_device_array(made.queues, made.clusters + 1));
        parts = on_device(std::vector<float>((size_t)made.part_count * shape.part_floats, NAN));
    }
    ~planned()
    {
        cudaFree(items), cudaFree(runs), cudaFree(merges), cudaFree(queues), cudaFree(parts);
        ra__sm90_schedule_clear(&made);
    }
};

static std::vector<double> fetched(const float *from, size_t count)
{
    std::vector<float> x(count);
    must(cudaMemcpy(x.data(), from, 4 * count, cudaMemcpyDeviceToHost), "copy");
    return std::vector<double>(x.begin(), x.end());
}

static std::vector<uint32_t> fetched_bits(const float *from, size_t count)
{
    std::vector<uint32_t> bits(count);
    must(cudaMemcpy(bits.data(), from, 4 * count, cudaMemcpyDeviceToHost), "copy");
    return bits;
}

static void run_forward(problem &p)
{
    struct ra__sm90_shape shape;
    int clusters;
    must(ra__sm90_forward_shape(&p.needs, &shape, &clusters), "forward_shape");
    std::vector<ra__sm90_rows> rows;
    const int flags = RA__SM90_FIRST | RA__SM90_LAST;
    for (int h = 0; h < 2; h++) rows.push_back({ 0, (uint16_t)h, 0, 0, p.rows, 0, 1, flags });
    const std::vector<ra__sm90_run> runs = { { 0, p.keys, -RA__SM90_FAR, p.hi } };
    planned plan(rows, runs, shape, clusters);
    matrix out(p.needs.dtype, 2, p.rows, p.needs.dim, 0);
    float *lse = on_device(std::vector<float>((size_t)2 * p.rows, NAN));
    struct ra__sm90_forward args = {};
    args.q = p.q.tensor, args.k = p.k.tensor, args.v = p.v.tensor, args.out = out.tensor;
    args.lse = { lse, 1, p.rows, 2 * p.rows };
    args.scale = (float)(1 / sqrt(p.needs.dim));
    args.items = plan.items, args.runs = plan.runs, args.merges = plan.merges;
    args.queues = plan.queues, args.parts = plan.parts;
    args.clusters = clusters, args.merge_count = plan.made.merge_count;
    args.hides = plan.made.hides || p.has(RA__SM90_BIAS);
    args.failed = on_device(std::vector<uint8_t>((size_t)plan.made.item_count * shape.warps, 7));
    for (struct ra__sm90_view &view : args.views) view = { 0, 1 };
    args.terms = p.terms();
    must(ra__sm90_forward_launch(&args, &p.needs, NULL), "forward_launch");
    must(cudaDeviceSynchronize(), "forward");
    out.fetch();
    p.expect("out", out.value, p.out);
    p.expect("lse", fetched(lse, p.lse.size()), p.lse);
    cudaFree(lse), cudaFree(args.failed), out.release(), release(args.terms);
}

static void run_backward(problem &p)
{
    struct ra__sm90_shape shape;
    int clusters;
    must(ra__sm90_backward_shape(&p.needs, &shape, &clusters), "backward_shape");
    const int padded = (p.rows + shape.block_keys - 1) / shape.block_keys * shape.block_keys;
    const int flags = RA__SM90_FIRST | RA__SM90_LAST, dim = p.needs.dim;
    const int lo = p.hi >= RA__SM90_FAR ? -RA__SM90_FAR : -p.hi;
    const std::vector<ra__sm90_rows> rows = { { 0, 0, 0, 0, p.keys, 0, 2, flags } };
    const std::vector<ra__sm90_run> runs = { { 0, p.rows, lo, RA__SM90_FAR },
                                             { padded, p.rows, lo, RA__SM90_FAR } };
    planned plan(rows, runs, shape, clusters);
    matrix out(p.needs.dtype, 2, p.rows, dim, 0), dq = out, dk(p.needs.dtype, 1, p.keys, dim, 0);
    for (size_t i = 0; i < p.out.size(); i++) out.set(i, (float)p.out[i]);
    out.tensor.data = on_device(out.bits);
    matrix dv(p.needs.dtype, 1, p.keys, dim, 0);
    struct ra__sm90_backward args = {};
    args.q = p.q.tensor, args.k = p.k.tensor, args.v = p.v.tensor, args.dout = p.dout.tensor;
    args.out = out.tensor, args.dq = dq.tensor, args.dk = dk.tensor, args.dv = dv.tensor;
    args.lse = { on_device(std::vector<float>(p.lse.begin(), p.lse.end())), 1, p.rows, 2 * p.rows };
    args.scale = (float)(1 / sqrt(dim));
    args.items = plan.items, args.runs = plan.runs, args.merges = plan.merges;
    args.queues = plan.queues, args.parts = plan.parts;
    args.clusters = clusters, args.merge_count = plan.made.merge_count;
    args.padded_rows = padded, args.flags = flags;
    args.lse2 = on_device(std::vector<float>((size_t)2 * padded, NAN));
    args.delta = on_device(std::vector<float>((size_t)2 * padded, NAN));
    args.dq_sum = on_device(std::vector<float>((size_t)2 * padded * dim, NAN));
    args.terms = p.terms();
    args.views[0] = { 0, 1 };
    struct ra__sm90_order order = {};
    if (p.needs.deterministic) {
        const struct ra__sm90_order_input in = { &plan.made,       1, 2,          padded,
                                                 shape.block_keys, 2, shape.walks };
        must(ra__sm90_order(&in, &order), "order");
        args.ranks = on_device(on_device_array(order.ranks, order.starts[clusters]));
        args.rank_starts = on_device(on_device_array(order.starts, clusters + 1));
        args.turns = on_device(std::vector<int32_t>((size_t)4 * padded / shape.block_keys, -1));
        args.fresh = order.complete && shape.walks == 1;
    }
    must(ra__sm90_backward_launch(&args, &p.needs, NULL), "backward_launch");
    must(cudaDeviceSynchronize(), "backward");
    dq.fetch(), dk.fetch(), dv.fetch();
    p.expect("dq", dq.value, p.dq);
    p.expect("dk", dk.value, p.dk);
    p.expect("dv", dv.value, p.dv);
    if (p.needs.deterministic) {
        const size_t sums = (size_t)2 * padded * dim;
        const std::vector<uint32_t> before = fetched_bits(args.dq_sum, sums);
        must(ra__sm90_backward_launch(&args, &p.needs, NULL), "backward_launch");
        must(cudaDeviceSynchronize(), "backward again");
        p.expect_same(before, fetched_bits(args.dq_sum, sums));
    }
    for (void *x :
         { out.tensor.data, dq.tensor.data, dk.tensor.data, dv.tensor.data, (void *)args.lse.data,
           (void *)args.lse2, (void *)args.delta, (void *)args.dq_sum, (void *)args.ranks,
           (void *)args.rank_starts, (void *)args.turns })
        cudaFree(x);
    release(args.terms);
    ra__sm90_order_clear(&order);
}

int main(int count, char **args)
{
    const bool few = count > 1 && args[1][0] == 'f'; /* racecheck and emulation are slow */
    const int only = count > 1 + few ? atoi(args[1 + few]) : 0;
    const int some = few ? 260 : 300, many = few ? 450 : 2000;
    for (int dtype = 0; dtype < (few ? 1 : 2); dtype++) {
        for (struct ra__sm90_needs needs : forward_rows) {
            if (only && needs.dim != only) continue;
            needs.dtype = dtype;
            problem square(needs, some, some, 0), wide(needs, 100, many, RA__SM90_FAR);
            problem steep(needs, 100, some, RA__SM90_FAR, 300);
            for (problem *p : { &square, &wide, &steep }) run_forward(*p), p->release();
        }
        for (struct ra__sm90_needs needs : backward_rows) {
            if (only && needs.dim != only) continue;
            needs.dtype = dtype;
            problem square(needs, some, some, 0), tall(needs, many, 130, RA__SM90_FAR);
            problem wide(needs, 130, many, RA__SM90_FAR); /* many adds to each block of dq */
            for (problem *p : { &square, &tall, &wide }) run_backward(*p), p->release();
        }
    }
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
