/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h - for tests of CUDA kernels: the problems that every kernel must solve. */
#ifndef TESTS_CUDA_CASES_H
#define TESTS_CUDA_CASES_H

#include "step.h"

namespace test
{

constexpr int64_t ANY = RA__CUDA_UNBOUNDED;

inline ra__cuda_run run(int64_t token, int64_t pos, int64_t count, int64_t left, int64_t right)
{
    return ra__cuda_run{ token, 1, pos, 1, count, left, right, 0, 0 };
}
inline ra__cuda_row queries(int64_t token, int64_t pos, int64_t count, int heads)
{
    ra__cuda_row r = {};
    r.q_token = token, r.q_token_step = 1, r.q_count = count;
    r.q_pos = pos, r.q_pos_step = 1, r.repeat = 1;
    r.head_step = 1, r.heads = heads;
    r.first = r.last = r.all_heads = 1;
    return r;
}

/* `queries` queries at positions offset .. and `keys` keys from position 0 on, in one band. */
inline problem band(const char *name, int64_t queries_, int64_t keys, int64_t offset, int64_t left,
                    int64_t right)
{
    problem p;
    p.name = name;
    p.queries = queries_, p.keys = keys;
    p.positions = keys > offset + queries_ ? keys : offset + queries_;
    p.rows.push_back({ queries(0, offset, queries_, p.q_heads), { run(0, 0, keys, left, right) } });
    return p;
}

inline problem heads(problem p, int batch, int q_heads, int kv_heads)
{
    p.batch = batch, p.q_heads = q_heads, p.kv_heads = kv_heads;
    for (row &r : p.rows) r.row.heads = q_heads;
    return p;
}
inline problem dims(problem p, int dtype, int dim, int value_dim)
{
    p.dtype = dtype, p.dim = dim, p.value_dim = value_dim;
    return p;
}

inline problem several_runs(void)
{
    problem p = band("several runs", 150, 400, 300, 0, 0);
    p.rows[0].runs = { run(0, 5, 70, ANY, ANY), run(70, 101, 200, 300, 0),
                       run(130, 290, 270, 64, 3), run(3, 700, 1, ANY, ANY) };
    p.positions = 800;
    return p;
}
/* Every third query and key. */
inline problem dilated(void)
{
    problem p = band("dilated", 200, 330, 0, 0, 0);
    p.rows.clear();
    p.positions = 330;
    for (int lane = 0; lane < 3; lane++) {
        row r = { queries(lane, 130 + lane, lane < 2 ? 67 : 66, 1), {} };
        r.row.q_token_step = r.row.q_pos_step = 3;
        r.runs.push_back({ (130 + lane) % 3, 3, (130 + lane) % 3, 3, 110, 150, 0, 0, 0 });
        p.rows.push_back(r);
    }
    return p;
}
/* Blocks of 20 queries: each sees its own 20 keys, those before, and a few all. */
inline problem family(void)
{
    problem p = band("family", 200, 240, 40, 0, 0);
    ra__cuda_row r = queries(0, 40, 20, 1);
    r.repeat = 10, r.q_token_advance = r.q_pos_advance = 20;
    ra__cuda_run own = run(20, 20, 40, ANY, 0), all = run(0, 0, 7, ANY, ANY);
    own.token_advance = own.pos_advance = 20;
    p.rows = { { r, { own, all } } };
    return p;
}
/* Three queries and many runs, some shorter than a block, one of which only the last query sees. */
inline problem few_of_runs(void)
{
    problem p = heads(band("few of runs", 3, 700, 690, 0, 0), 1, 4, 2);
    p.rows[0].runs = { run(2, 2, 3, ANY, ANY),      run(20, 20, 200, ANY, ANY),
                       run(230, 230, 1, ANY, ANY),  run(300, 300, 70, ANY, ANY),
                       run(400, 400, 64, ANY, ANY), run(500, 500, 192, ANY, 0) };
    return p;
}
/* Rows with some heads each. */
inline problem by_head(void)
{
    problem p = heads(band("by head", 100, 130, 30, ANY, 0), 2, 6, 3);
    row even = p.rows[0], odd = p.rows[0];
    even.row.all_heads = odd.row.all_heads = 0;
    even.row.head_step = odd.row.head_step = 2, even.row.heads = odd.row.heads = 3;
    odd.row.head = 1;
    odd.runs[0].left = 20;
    p.rows = { even, odd };
    return p;
}

inline std::vector<problem> all_cases(void)
{
    std::vector<problem> list;
    const problem causal = band("causal", 200, 200, 0, ANY, 0);
    const auto add = [&](problem p, const char *more) {
        p.name += more;
        list.push_back(p);
    };
    for (int dtype : { RA__CUDA_BF16, RA__CUDA_F16 })
        for (int dim : { 64, 128, 256 }) {
            add(dims(band("full", 70, 150, 0, ANY, ANY), dtype, dim, dim), "");
            add(dims(causal, dtype, dim, dim), "");
        }
    add(dims(heads(causal, 2, 4, 2), RA__CUDA_BF16, 40, 72), " ragged chunks");
    add(dims(heads(causal, 1, 2, 1), RA__CUDA_BF16, 33, 51), " ragged");
    add(dims(causal, RA__CUDA_BF16, 192, 128), " unequal");
    add(dims(causal, RA__CUDA_F16, 8, 16), " small");
    problem moved = causal;
    moved.shift = 3, moved.extra = 1;
    add(moved, " unaligned");
    add(band("window", 300, 300, 0, 50, 0), "");
    add(band("window far", 50, 300, 400, 120, 0), " mostly blind");
    add(band("two sided", 130, 260, 60, 17, 40), "");
    add(several_runs(), "");
    add(dims(several_runs(), RA__CUDA_F16, 128, 128), " f16");
    add(dilated(), "");
    add(family(), "");
    add(heads(family(), 2, 6, 2), " heads");
    add(by_head(), "");
    add(heads(causal, 2, 8, 2), " grouped");
    add(heads(band("decode", 1, 500, 499, ANY, 0), 2, 16, 2), "");
    add(heads(band("one head of many", 3, 100, 97, ANY, 0), 1, 130, 1), "");
    problem hops = causal;
    hops.hops = 2;
    add(hops, " in hops");
    problem split = heads(band("split", 3, 600, 597, ANY, 0), 2, 8, 2);
    split.ranges = 3;
    add(split, "");
    split = several_runs(), split.ranges = 4;
    add(split, " split");
    for (int dtype : { RA__CUDA_BF16, RA__CUDA_F16 })
        for (int dim : { 64, 128, 256 }) {
            problem p = heads(band("few queries split", 2, 1500, 1498, 900, 0), 2, 12, 2);
            p.ranges = 3;
            add(dims(p, dtype, dim, dim), "");
            p = few_of_runs();
            p.ranges = 4;
            add(dims(p, dtype, dim, dim), " split");
            p.bad_keys = { 5, 130, 301, 599 };
            add(dims(p, dtype, dim, dim), " split, bad keys");
        }
    split = dims(few_of_runs(), RA__CUDA_BF16, 33, 51), split.ranges = 2;
    add(split, " split, ragged");
    problem large = causal;
    large.size = 4.0f, large.scale = 1.0f;
    add(large, " large scores");
    large.scale = -0.125f, large.size = 1.0f;
    add(large, " negative scale");
    for (int dim : { 64, 128 }) {
        problem p = dims(heads(causal, 2, 4, 2), RA__CUDA_BF16, dim, dim);
        p.terms.softcap = 2.0f;
        add(p, " softcap");
        p.terms = {}, p.terms.alibi = p.terms.sinks = true;
        add(p, " slopes and sinks");
        p.terms = {}, p.terms.drop = 0.3f;
        add(p, " dropout");
        p.terms = {}, p.terms.bias = true;
        add(p, " bias");
        p.terms = {}, p.terms.mask = true;
        add(p, " mask");
        p.terms = {}, p.terms.order = true;
        add(p, " order");
        p.terms.softcap = 5.0f, p.terms.drop = 0.1f, p.terms.alibi = p.terms.bias = true;
        add(p, " all terms");
    }
    problem one = heads(band("one query", 150, 200, 0, ANY, ANY), 1, 2, 2);
    one.one_query = true;
    add(one, "");
    problem bad = heads(causal, 1, 2, 2);
    bad.bad_keys = { 3, 70, 150, 199 };
    add(bad, " bad keys");
    bad.bad_queries = { 0, 80 };
    bad.bad_keys = { 190 };
    add(bad, " bad queries");
    add(dims(bad, RA__CUDA_F16, 128, 128), " bad f16");
    add(dims(bad, RA__CUDA_BF16, 256, 256), " bad 256");
    bad.terms.mask = true;
    add(bad, " bad mask");
    problem blind = band("blind bad rows", 150, 100, 0, 20, -60);
    blind.bad_queries = { 10, 30 };
    blind.bad_keys = { 0, 99 };
    add(blind, "");
    return list;
}

/* An infinite query whose only scores are -inf has no weights: that is not what the reference says,
 * so bad queries see enough keys for a score of +inf. */
inline problem in_f32(problem p)
{
    p.dtype = RA__CUDA_F32;
    for (int64_t &token : p.bad_queries) token = token < 40 ? token + 40 : token;
    return p;
}

} // namespace test

#endif
