/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - for tests of CUDA kernels: a step with all its tables in device memory, built from rows
 * and runs, and the same attention in double precision on the host. */
#ifndef TESTS_CUDA_STEP_H
#define TESTS_CUDA_STEP_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <cuda_runtime_api.h>

#include "backend/cuda/kernel.h"
#include "core/philox.h"

namespace test
{

inline void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

/* ---- Numbers of a dtype, on the host ---- */

inline float bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint32_t float_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline uint16_t to_bf16(float x)
{
    const uint32_t bits = float_to_bits(x);
    if (x != x) return 0x7FC0;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
    if (exponent == 31) return bits_to_float(sign | 0x7F800000 | rest << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * ldexpf((float)rest, -24);
    return bits_to_float(sign | (exponent + 112) << 23 | rest << 13);
}
inline uint16_t to_f16(float x)
{
    const uint16_t sign = (uint16_t)(float_to_bits(x) >> 16 & 0x8000);
    if (x != x) return 0x7E00;
    const float a = fabsf(x);
    if (a >= 65520.0f) return sign | 0x7C00;
    if (a < 0x1p-14f) return sign | (uint16_t)lrintf(a * 0x1p24f);
    const uint32_t bits = float_to_bits(a);
    return sign | (uint16_t)((bits + 0xFFF + (bits >> 13 & 1) - (112u << 23)) >> 13);
}
inline float narrowed(int dtype, float x)
{
    if (dtype == RA__CUDA_F32) return x;
    if (dtype == RA__CUDA_F16) return from_f16(to_f16(x));
    return bits_to_float((uint32_t)to_bf16(x) << 16);
}

/* ---- Device memory ---- */

struct memory {
    std::vector<void *> blocks;
    ~memory()
    {
        for (void *block : blocks) cudaFree(block);
    }
    void *put(const void *from, size_t bytes)
    {
        void *to = nullptr;
        must(cudaMalloc(&to, bytes ? bytes : 16), "cudaMalloc");
        blocks.push_back(to);
        if (from && bytes) must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        return to;
    }
    template <class T> T *put(const std::vector<T> &from)
    {
        return (T *)put(from.data(), from.size() * sizeof(T));
    }
};

/* A tensor [batch][token][head][width] on both sides. `shift` moves it off its alignment, `extra`
 * numbers follow each row. */
struct tensor {
    int dtype = RA__CUDA_F32, batch = 0, heads = 0, width = 0, shift = 0, extra = 0;
    int64_t tokens = 0;
    std::vector<float> numbers;
    void *device = nullptr;

    void shape(int dtype_, int batch_, int64_t tokens_, int heads_, int width_)
    {
        dtype = dtype_, batch = batch_, tokens = tokens_, heads = heads_, width = width_;
        numbers.assign((size_t)batch * tokens * heads * (width + extra), 0.0f);
    }
    size_t index(int b, int64_t t, int h) const
    {
        return ((size_t)(b * tokens + t) * heads + h) * (width + extra);
    }
    float *row(int b, int64_t t, int h) { return &numbers[index(b, t, h)]; }
    const float *row(int b, int64_t t, int h) const { return &numbers[index(b, t, h)]; }
    size_t bytes() const { return dtype == RA__CUDA_F32 ? 4 : 2; }

    void draw(std::mt19937 &random, float size)
    {
        std::normal_distribution<float> normal(0.0f, size);
        for (float &x : numbers) x = narrowed(dtype, normal(random));
    }
    void upload(memory &m)
    {
        std::vector<unsigned char> raw((numbers.size() + shift) * bytes(), 0xFF);
        for (size_t i = 0; i < numbers.size(); i++) {
            unsigned char *to = &raw[(i + shift) * bytes()];
            const uint16_t half = dtype == RA__CUDA_BF16 ? to_bf16(numbers[i]) : to_f16(numbers[i]);
            if (dtype == RA__CUDA_F32) memcpy(to, &numbers[i], 4);
            else memcpy(to, &half, 2);
        }
        device = (unsigned char *)m.put(raw.data(), raw.size()) + shift * bytes();
    }
    void download()
    {
        std::vector<unsigned char> raw(numbers.size() * bytes());
        must(cudaMemcpy(raw.data(), device, raw.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (size_t i = 0; i < numbers.size(); i++) {
            uint16_t half;
            memcpy(&half, &raw[i * bytes()], 2);
            if (dtype == RA__CUDA_F32) memcpy(&numbers[i], &raw[i * 4], 4);
            else
                numbers[i] = dtype == RA__CUDA_F16 ? from_f16(half)
                                                   : bits_to_float((uint32_t)half << 16);
        }
    }
    ra__cuda_tensor view() const
    {
        const int64_t head = width + extra, token = head * heads;
        return ra__cuda_tensor{ device, token * tokens, token, head };
    }
};

/* ---- A case ---- */

struct terms {
    float softcap = 0.0f, drop = 0.0f;
    bool alibi = false, sinks = false, bias = false, mask = false, order = false;
};

struct row {
    ra__cuda_row row;
    std::vector<ra__cuda_run> runs;
};

struct problem {
    std::string name;
    int dtype = RA__CUDA_BF16, batch = 1, q_heads = 1, kv_heads = 1, dim = 64, value_dim = 64;
    int64_t queries = 0, keys = 0, positions = 0; /* positions: all are below this */
    float scale = 0.0f, size = 1.0f;              /* 0: 1 / sqrt(dim); size of the inputs */
    std::vector<row> rows;
    test::terms terms;
    int ranges = 1, hops = 1;
    int shift = 0, extra = 0;                   /* of q, k, v, dout and what is written */
    bool one_query = false;                     /* all tokens have the q of the first: stride 0 */
    std::vector<int64_t> bad_keys, bad_queries; /* tokens whose numbers are NaN and inf */
};

struct arrays {
    std::vector<float> alibi, sinks, bias;
    std::vector<uint8_t> mask;
    std::vector<int32_t> origin, from, to;
};

/* All tensors and tables of a problem. */
struct bench {
    const problem &p;
    memory device;
    std::mt19937 random{ 7 };
    tensor q, k, v, out, lse, m, l, acc, dout, delta, dq, dk, dv;
    arrays side;
    ra__cuda_step step = {};
    std::vector<ra__cuda_row> rows;
    std::vector<ra__cuda_run> runs;
    float scale() const { return p.scale != 0.0f ? p.scale : 1.0f / sqrtf((float)p.dim); }

    explicit bench(const problem &problem) : p(problem)
    {
        shape_tensors();
        make_terms();
        for (const row &r : p.rows) {
            rows.push_back(r.row);
            rows.back().first_run = (int)runs.size();
            rows.back().run_count = (int)r.runs.size();
            runs.insert(runs.end(), r.runs.begin(), r.runs.end());
        }
        fill_step();
    }

    void shape_tensors()
    {
        tensor *moved[] = { &q, &k, &v, &out, &dout, &dq, &dk, &dv };
        for (tensor *t : moved) t->shift = p.shift, t->extra = p.extra;
        q.shape(p.dtype, p.batch, p.queries, p.q_heads, p.dim);
        k.shape(p.dtype, p.batch, p.keys, p.kv_heads, p.dim);
        v.shape(p.dtype, p.batch, p.keys, p.kv_heads, p.value_dim);
        out.shape(p.dtype, p.batch, p.queries, p.q_heads, p.value_dim);
        dout.shape(p.dtype, p.batch, p.queries, p.q_heads, p.value_dim);
        for (tensor *t : { &lse, &m, &l, &delta })
            t->shape(RA__CUDA_F32, p.batch, p.queries, p.q_heads, 1);
        acc.shape(RA__CUDA_F32, p.batch, p.queries, p.q_heads, p.value_dim);
        dq.shape(RA__CUDA_F32, p.batch, p.queries, p.q_heads, p.dim);
        dk.shape(RA__CUDA_F32, p.batch, p.keys, p.kv_heads, p.dim);
        dv.shape(RA__CUDA_F32, p.batch, p.keys, p.kv_heads, p.value_dim);
        for (tensor *t : { &q, &k, &v, &dout }) t->draw(random, p.size);
        for (tensor *t : { &dq, &dk, &dv }) t->draw(random, 1.0f);
        for (int64_t t = 1; p.one_query && t < p.queries; t++)
            for (int b = 0; b < p.batch; b++)
                for (int h = 0; h < p.q_heads; h++)
                    std::copy_n(q.row(b, 0, h), p.dim, q.row(b, t, h));
        for (int64_t t : p.bad_keys) spoil(k, t), spoil(v, t);
        for (int64_t t : p.bad_queries) spoil(q, t), spoil(dout, t);
    }
    /* A NaN in one head, an infinity in the next. */
    static void spoil(tensor &t, int64_t token)
    {
        for (int b = 0; b < t.batch; b++)
            for (int h = 0; h < t.heads; h++)
                t.row(b, token, h)[(token + h) % t.width] = h % 2 ? INFINITY : NAN;
    }

    void make_terms()
    {
        std::normal_distribution<float> normal(0.0f, 1.0f);
        const size_t pairs = (size_t)p.batch * p.q_heads * p.queries * p.positions;
        for (int h = 0; h < p.q_heads; h++) {
            if (p.terms.alibi) side.alibi.push_back(0.02f * (float)(h + 1));
            if (p.terms.sinks) side.sinks.push_back(normal(random));
        }
        for (size_t i = 0; i < pairs && p.terms.bias; i++)
            side.bias.push_back(random() % 7 == 0 ? -INFINITY : normal(random));
        for (size_t i = 0; i < pairs && p.terms.mask; i++) side.mask.push_back(random() % 3 != 0);
        if (!p.terms.order) return;
        const int n = (int)p.positions;
        for (int i = 0; i < n; i++) side.origin.push_back((int)((int64_t)i * 7 % n));
        for (int i = 0; i < n; i++) {
            side.from.push_back(side.origin[i] / 3);
            side.to.push_back(side.origin[i] + 1);
        }
    }

    void fill_step()
    {
        for (tensor *t : { &q, &k, &v, &out, &lse, &m, &l, &acc, &dout, &delta, &dq, &dk, &dv })
            t->upload(device);
        step.dtype = p.dtype;
        step.batch = p.batch, step.q_heads = p.q_heads, step.kv_heads = p.kv_heads;
        step.dim = p.dim, step.value_dim = p.value_dim;
        step.scale = scale();
        step.rows = device.put(rows);
        step.runs = device.put(runs);
        step.sections = 3;
        step.ranges = 1;
        fill_terms();
        views();
    }
    void views()
    {
        step.q = q.view(), step.k = k.view(), step.v = v.view(), step.out = out.view();
        step.lse = lse.view(), step.m = m.view(), step.l = l.view(), step.acc = acc.view();
        step.dout = dout.view(), step.delta = delta.view();
        step.dq = dq.view(), step.dk = dk.view(), step.dv = dv.view();
        if (p.one_query) step.q.token = 0;
    }
    void fill_terms()
    {
        ra__cuda_terms &t = step.terms;
        const test::terms &has = p.terms;
        t.softcap = has.softcap;
        t.any = has.softcap != 0.0f || has.drop != 0.0f || has.alibi || has.bias || has.mask ||
                has.order;
        if (has.alibi) t.alibi = device.put(side.alibi);
        if (has.sinks) t.sinks = device.put(side.sinks);
        if (has.order) {
            t.origin = device.put(side.origin);
            t.see_from = device.put(side.from);
            t.see_to = device.put(side.to);
        }
        t.dropout = has.drop != 0.0f;
        t.kept_scale = 1.0f / (1.0f - has.drop);
        t.drop_below = ra__philox_limit(has.drop);
        t.seed = 0x123456789abcdefull;
        if (has.bias) t.bias = device.put(side.bias);
        if (has.mask) t.bias = device.put(side.mask);
        t.bias_mask = has.mask;
        t.bias_query = p.positions;
        t.bias_head = p.positions * p.queries;
        t.bias_batch = t.bias_head * p.q_heads;
    }

    /* Tiles of `tile_rows` pairs. */
    void tile_queries(int tile_rows)
    {
        std::vector<ra__cuda_slot> slots;
        step.tiles = 0;
        for (size_t i = 0; i < rows.size(); i++) {
            const ra__cuda_row &r = rows[i];
            const int64_t group = r.all_heads ? p.q_heads / p.kv_heads : 1;
            const int units = r.all_heads ? p.kv_heads : r.heads;
            const int64_t chunks = (r.q_count * group + tile_rows - 1) / tile_rows;
            slots.push_back({ step.tiles, chunks, (int32_t)i, units });
            step.tiles += chunks * r.repeat * units * p.batch;
        }
        step.slots = device.put(slots);
        step.slot_count = (int)slots.size();
    }
};

} // namespace test

#endif
