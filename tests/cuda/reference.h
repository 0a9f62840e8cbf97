/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - for tests of CUDA kernels: attention of a test::bench in double precision, pair by
 * pair, and tiles of keys as the backend makes them. */
#ifndef TESTS_CUDA_REFERENCE_H
#define TESTS_CUDA_REFERENCE_H

#include "step.h"

namespace test
{

/* A pair of a query and a key that the bands let it see. */
struct pair {
    int batch, head, kv_head;
    int64_t q_token, q_pos, k_token, k_pos;
};

struct scored {
    double x, slope, kept; /* x in natural units */
    bool hidden;
};

inline scored score(const bench &b, const pair &at)
{
    const problem &p = b.p;
    const arrays &side = b.side;
    const bool order = p.terms.order;
    const int64_t query = order ? side.origin[at.q_pos] : at.q_pos;
    const int64_t key = order ? side.origin[at.k_pos] : at.k_pos;
    scored s = { 0.0, 1.0, 1.0, false };
    if (order && (key < side.from[at.q_pos] || key >= side.to[at.q_pos])) s.hidden = true;
    const size_t index = ((size_t)(at.batch * p.q_heads + at.head) * p.queries + at.q_token) *
                             p.positions +
                         key;
    double added = 0.0;
    if (p.terms.mask && !side.mask[index]) s.hidden = true;
    if (p.terms.bias) added = side.bias[index];
    if (added == -INFINITY) s.hidden = true;
    if (s.hidden) return s;
    if (p.terms.alibi) added -= (double)side.alibi[at.head] * (double)llabs(query - key);
    if (p.terms.drop != 0.0f) {
        const struct ra__philox words = ra__philox(b.step.terms.seed, (uint32_t)(key / 4),
                                                   (uint32_t)query, (uint32_t)at.head,
                                                   (uint32_t)at.batch);
        s.kept = words.word[key % 4] >= b.step.terms.drop_below ? b.step.terms.kept_scale : 0.0;
    }
    const float *q = b.q.row(at.batch, at.q_token, at.head);
    const float *k = b.k.row(at.batch, at.k_token, at.kv_head);
    double t = 0.0;
    for (int d = 0; d < p.dim; d++) t += (double)q[d] * k[d];
    t *= b.scale();
    if (p.terms.softcap != 0.0f) {
        const double u = tanh(t / p.terms.softcap);
        s.slope = 1.0 - u * u;
        t = p.terms.softcap * u;
    }
    s.x = t + added;
    return s;
}

template <class Visit>
void for_pairs(const bench &b, const ra__cuda_row &row, int64_t repeat, int64_t i, int batch,
               int head, const Visit &visit)
{
    pair at = { batch, head, head / (b.p.q_heads / b.p.kv_heads), 0, 0, 0, 0 };
    at.q_token = row.q_token + repeat * row.q_token_advance + i * row.q_token_step;
    at.q_pos = row.q_pos + repeat * row.q_pos_advance + i * row.q_pos_step;
    for (int n = row.first_run; n < row.first_run + row.run_count; n++) {
        const ra__cuda_run &run = b.runs[n];
        for (int64_t j = 0; j < run.count; j++) {
            at.k_token = run.token + repeat * run.token_advance + j * run.token_step;
            at.k_pos = run.pos + repeat * run.pos_advance + j * run.pos_step;
            const int64_t away = at.k_pos - at.q_pos;
            if (away >= -run.left && away <= run.right) visit(at);
        }
    }
}

/* Calls visit(row, repeat, i, batch, head, q_token) for every query row. */
template <class Visit> void for_rows(const bench &b, const Visit &visit)
{
    for (const ra__cuda_row &row : b.rows)
        for (int64_t repeat = 0; repeat < row.repeat; repeat++)
            for (int64_t i = 0; i < row.q_count; i++)
                for (int batch = 0; batch < b.p.batch; batch++)
                    for (int h = 0; h < row.heads; h++)
                        visit(row, repeat, i, batch, row.head + h * row.head_step,
                              row.q_token + repeat * row.q_token_advance + i * row.q_token_step);
}

struct answer {
    tensor out, lse, delta, dq, dk, dv;
};

/* Forward and backward. dq, dk and dv are added to what the bench holds. delta is that of the
 * reference's output, and lse and delta go to the bench for the kernels to read. */
inline answer reference(bench &b)
{
    const problem &p = b.p;
    answer a = { b.out, b.lse, b.delta, b.dq, b.dk, b.dv };
    for_rows(b, [&](const ra__cuda_row &row, int64_t repeat, int64_t i, int batch, int head,
                    int64_t token) {
        std::vector<std::pair<pair, scored>> pairs;
        double most = -INFINITY, sum = 0.0;
        for_pairs(b, row, repeat, i, batch, head, [&](const pair &at) {
            const scored s = score(b, at);
            if (s.hidden) return;
            pairs.push_back({ at, s });
            if (s.x > most) most = s.x;
        });
        const double sink = p.terms.sinks ? (double)b.side.sinks[head] : -INFINITY;
        if (sink > most) most = sink;
        if (most == -INFINITY) most = 0.0; /* scores of -inf have weights of 0 */
        std::vector<double> o(p.value_dim, 0.0);
        for (const auto &one : pairs) {
            const double weight = exp(one.second.x - most);
            sum += weight;
            const float *v = b.v.row(batch, one.first.k_token, one.first.kv_head);
            for (int d = 0; d < p.value_dim; d++) o[d] += weight * one.second.kept * v[d];
        }
        if (sink != -INFINITY) sum += exp(sink - most);
        const double lse = sum == 0.0 ? -INFINITY : most + log(sum);
        const float *dout = b.dout.row(batch, token, head);
        double delta = 0.0;
        for (int d = 0; d < p.value_dim; d++) {
            o[d] = sum == 0.0 ? 0.0 : o[d] / sum;
            a.out.row(batch, token, head)[d] = (float)o[d];
            delta += o[d] * dout[d];
        }
        *a.lse.row(batch, token, head) = *b.lse.row(batch, token, head) = (float)lse;
        *b.delta.row(batch, token, head) = (float)delta;
        if (lse == -INFINITY) return;
        const float *q = b.q.row(batch, token, head);
        float *dq = a.dq.row(batch, token, head);
        for (const auto &one : pairs) {
            const pair &at = one.first;
            const float *k = b.k.row(batch, at.k_token, at.kv_head);
            const float *v = b.v.row(batch, at.k_token, at.kv_head);
            double dp = 0.0;
            for (int d = 0; d < p.value_dim; d++) dp += (double)dout[d] * v[d];
            const double weight = exp(one.second.x - lse);
            const double ds = one.second.slope * weight * (one.second.kept * dp - delta);
            float *dk = a.dk.row(batch, at.k_token, at.kv_head);
            float *dv = a.dv.row(batch, at.k_token, at.kv_head);
            for (int d = 0; d < p.dim; d++) {
                dq[d] += (float)(b.scale() * ds * k[d]);
                dk[d] += (float)(b.scale() * ds * q[d]);
            }
            for (int d = 0; d < p.value_dim; d++)
                dv[d] += (float)(weight * one.second.kept * dout[d]);
        }
    });
    b.lse.upload(b.device);
    b.delta.upload(b.device);
    b.views();
    return a;
}

/* ---- Tiles of keys: one wave for each token_step ---- */

struct key_waves {
    std::vector<std::vector<ra__cuda_key_tile>> waves;
    std::vector<ra__cuda_part> parts;
};

inline key_waves tile_keys(const bench &b, int size)
{
    const int per_kv = b.p.q_heads / b.p.kv_heads;
    bool by_head = false;
    for (const ra__cuda_row &row : b.rows) by_head = by_head || !row.all_heads;
    /* token_step, kv head, lane, tile */
    std::map<std::tuple<int64_t, int, int64_t, int64_t>, std::vector<ra__cuda_part>> tiles;
    for (size_t r = 0; r < b.rows.size(); r++) {
        const ra__cuda_row &row = b.rows[r];
        for (int64_t repeat = 0; repeat < row.repeat; repeat++)
            for (int n = row.first_run; n < row.first_run + row.run_count; n++) {
                const ra__cuda_run &run = b.runs[n];
                const int64_t token = run.token + repeat * run.token_advance;
                const int64_t lane = token % run.token_step, start = token / run.token_step;
                for (int64_t tile = start / size; tile * size < start + run.count; tile++) {
                    const int64_t shift = tile * size - start;
                    ra__cuda_part part = { repeat,
                                           0,
                                           row.q_count,
                                           shift,
                                           (int32_t)r,
                                           n,
                                           (int32_t)(shift < 0 ? -shift : 0),
                                           (int32_t)(run.count - shift < size ? run.count - shift
                                                                              : size) };
                    if (!by_head) tiles[{ run.token_step, -1, lane, tile }].push_back(part);
                    for (int kv = 0; by_head && kv < b.p.kv_heads; kv++) {
                        bool reads = false;
                        for (int h = 0; h < row.heads; h++)
                            reads = reads || (row.head + h * row.head_step) / per_kv == kv;
                        if (reads) tiles[{ run.token_step, kv, lane, tile }].push_back(part);
                    }
                }
            }
    }
    key_waves all;
    int64_t last = -1;
    for (const auto &one : tiles) {
        const int64_t step = std::get<0>(one.first);
        if (step != last) all.waves.emplace_back();
        last = step;
        ra__cuda_key_tile tile = { std::get<2>(one.first) + std::get<3>(one.first) * size * step,
                                   step,
                                   0,
                                   std::get<1>(one.first),
                                   (int32_t)all.parts.size(),
                                   (int32_t)one.second.size() };
        for (const ra__cuda_part &part : one.second)
            if (part.hi > tile.count) tile.count = part.hi;
        all.parts.insert(all.parts.end(), one.second.begin(), one.second.end());
        all.waves.back().push_back(tile);
    }
    return all;
}

/* ---- Comparison ---- */

/* The largest difference, relative to `size`; non-finite numbers must be so in both. */
inline double difference(const tensor &is, const tensor &wanted, double size)
{
    double most = 0.0;
    for (size_t i = 0; i < is.numbers.size(); i++) {
        const float x = is.numbers[i], y = wanted.numbers[i];
        if (isfinite(x) != isfinite(y)) return INFINITY;
        if (isfinite(x) && fabs((double)x - y) > most) most = fabs((double)x - y);
    }
    return most / size;
}
inline double size_of(const tensor &t)
{
    double most = 1e-30;
    for (float x : t.numbers)
        if (isfinite(x) && fabsf(x) > most) most = fabsf(x);
    return most;
}

} // namespace test

#endif
