/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.cuh - the running softmax of a consumer warpgroup in registers: scores to weights, state
 * from and to memory. Knows no rings and no barriers. */
#ifndef RA__SM90_SOFTMAX_CUH
#define RA__SM90_SOFTMAX_CUH

#include "backend/cuda/sm90/terms.cuh"

namespace sm90
{

/* The softmax of two rows, as one thread holds it: rows lane / 4 and lane / 4 + 8 of its warp's 16,
 * columns spread over four lanes. l is the sum over this lane's columns. */
template <class F> struct State {
    float s[F::KEYS / 2];    /* scores, then weights */
    uint32_t p[F::KEYS / 4]; /* weights in the type of V */
    float o[F::DIM / 2];
    uint32_t q[F::Q_REGISTERS ? F::DIM / 4 : 1];
    float m0, m1, l0, l1;
    float f0, f1; /* what o is to be multiplied with */
};

DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* 2^-n as a float, 0 <= n <= 126, and the exponent of x >= 1 up to there. */
DEVICE float power_of_half(int n) { return __int_as_float((127 - n) << 23); }
DEVICE int exponent(float x) { return min(126, max(0, (__float_as_int(x) >> 23) - 127)); }

template <class F> DEVICE void issue_scores(State<F> &x, uint64_t q, uint64_t k)
{
#pragma unroll
    for (int step = 0; step < F::DIM / 16; step++) {
        const int panel = step / 4, inside = step % 4 * 32;
        const uint64_t from_k = further(k, panel * F::KEYS * 128 + inside);
        const uint64_t from_q = further(q, panel * 64 * 128 + inside);
        if constexpr (F::Q_REGISTERS) {
            if (step == 0) wgmma<typename F::type, false, K_MAJOR>(x.s, x.q, from_k);
            else wgmma<typename F::type, true, K_MAJOR>(x.s, x.q + 4 * step, from_k);
        } else {
            if (step == 0) wgmma<typename F::type, false>(x.s, from_q, from_k);
            else wgmma<typename F::type, true>(x.s, from_q, from_k);
        }
    }
    wgmma_commit();
}

/* With FRESH, in place of what the sums are. */
template <class F, bool FRESH = false> DEVICE void issue_values(State<F> &x, uint64_t v)
{
#pragma unroll
    for (int step = 0; step < F::KEYS / 16; step++) {
        const uint64_t from_v = further(v, step * 16 * 128);
        if (FRESH && step == 0) wgmma<typename F::type, false, N_MAJOR>(x.o, x.p, from_v);
        else wgmma<typename F::type, true, N_MAJOR>(x.o, x.p + 4 * step, from_v);
    }
    wgmma_commit();
}

/* -inf where a row does not see a key; `row` is the thread's first one in the tile. A band mostly
 * ends on one side of a block only: each side is a test against one number. */
template <class F> DEVICE void hide(State<F> &x, int4 entry, int row, int flags)
{
    const int stair = stair_in(flags), column = 2 * (thread_in_group() & 3);
    const int row0 = stair_of(row, stair) - column, row1 = stair_of(row + 8, stair) - column;
    const int from0 = entry.x + row0, from1 = entry.x + row1;
    if (__any_sync(ALL_LANES, from1 > 0)) {
#pragma unroll
        for (int i = 0; i < F::KEYS / 2; i++)
            if (8 * (i / 4) + i % 2 < (i & 2 ? from1 : from0)) x.s[i] = -INFINITY;
    }
    const int limit = entry.z - 1 - column;
    const int to0 = min(entry.y + row0, limit), to1 = min(entry.y + row1, limit);
    if (__any_sync(ALL_LANES, to0 < F::KEYS - 7)) {
#pragma unroll
        for (int i = 0; i < F::KEYS / 2; i++)
            if (8 * (i / 4) + i % 2 > (i & 2 ? to1 : to0)) x.s[i] = -INFINITY;
    }
}

/* Rows and keys of a block, where a kernel has score terms. */
struct block_place {
    int batch, head;
    int q_row, q_last; /* the thread's first row in the tensor; the last one of the item */
    int k_row;         /* of column 0 */
};

/* Scores of a block with all terms, in units of log2; with SOME, -inf where a row does not see a
 * key. */
template <class F, bool SOME>
DEVICE void apply_terms(State<F> &x, const ra__sm90_terms &terms, const struct factors &by,
                        struct block_place at, int4 entry, int row, int flags)
{
    const int column = 2 * (thread_in_group() & 3), stair = stair_in(flags);
    const int64_t key0 = key_position(terms, at.k_row + column);
    int from[2];
    unsigned width[2];
    struct term_row of[2];
    float away[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int q_row = min(at.q_row + 8 * i, at.q_last), stepped = stair_of(row + 8 * i, stair);
        from[i] = entry.x + stepped - column;
        width[i] = max(0, min(entry.y + stepped, entry.z - 1) - (from[i] + column) + 1);
        of[i] = term_row_of<F::TERMS>(terms, at.batch, at.head, q_row, key0);
        away[i] = (float)(key0 - query_position(terms, q_row));
    }
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &s = x.s[4 * j + 2 * i + c], derivative;
                const bool visible = !SOME || (unsigned)(8 * j + c - from[i]) < width[i];
                const float more = addend<F::TERMS>(
                    terms, of[i], fmaf((float)terms.k_step, (float)(8 * j + c), away[i]),
                    (8 * j + c) * terms.k_step, visible);
                s = capped<F::TERMS>(by, s, &derivative) + more;
                if (!visible || ((F::TERMS & RA__SM90_BIAS) && more == -INFINITY)) s = -INFINITY;
            }
        if (j & 1) asm volatile("" ::: "memory"); /* loads of a bias are not all moved to the top */
    }
}

/* Which weights of a block dropout keeps: 4 bits for every 8 columns, in the order of registers. */
template <class F> DEVICE uint64_t kept_bits(const ra__sm90_terms &terms, struct block_place at)
{
    uint64_t bits = 0;
    const int lane = thread_in_group() & 3, odd = lane & 1;
    const int64_t first = key_position(terms, at.k_row), key = first + 2 * lane * terms.k_step;
    if (first % 4 == 0 && terms.k_step == 1) {
        /* Two lanes share four keys: each draws for one of their two rows. */
        const int64_t query = query_position(terms, at.q_row + 8 * odd);
#pragma unroll 1
        for (int j = 0; j < F::KEYS / 8; j++) {
            const unsigned mine = kept_four(terms, at.batch, at.head, query, key + 8 * j);
            const unsigned other = __shfl_xor_sync(ALL_LANES, mine, 1);
            const unsigned row0 = (odd ? other : mine) >> 2 * odd & 3;
            const unsigned row1 = (odd ? mine : other) >> 2 * odd & 3;
            bits |= (uint64_t)(row0 | row1 << 2) << 4 * j;
        }
        return bits;
    }
#pragma unroll 1
    for (int j = 0; j < F::KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t query = query_position(terms, at.q_row + 8 * i);
            const int64_t from = key + 8 * j * terms.k_step;
            const unsigned two = kept_one(terms, at.batch, at.head, query, from) |
                                 kept_one(terms, at.batch, at.head, query, from + terms.k_step)
                                     << 1;
            bits |= (uint64_t)two << (4 * j + 2 * i);
        }
    return bits;
}

template <class F> DEVICE void drop_weights(State<F> &x, uint64_t kept, float scale)
{
#pragma unroll
    for (int i = 0; i < F::KEYS / 2; i++) x.s[i] = kept >> i & 1 ? x.s[i] * scale : 0;
}

/* A sink: one more key of this logit, in units of log2, and of value 0. */
DEVICE void fold_sink(float sink, float &m, float &l, float &f)
{
    const float top = fmaxf(m, sink);
    f = top == -INFINITY ? 1.f : exp2_fast(m - top);
    l = l * f + (top == -INFINITY ? 0.f : exp2_fast(sink - top));
    m = top;
}

/* s = exp2(s to_log2 - m), and the sums of both rows over this lane. */
template <class F> DEVICE float2 weigh(State<F> &x, float to_log2, float m0, float m1)
{
    float sum0[2], sum1[2];
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            x.s[4 * j + c] = exp2_fast(fmaf(x.s[4 * j + c], to_log2, -m0));
            x.s[4 * j + 2 + c] = exp2_fast(fmaf(x.s[4 * j + 2 + c], to_log2, -m1));
            sum0[c] = j ? sum0[c] + x.s[4 * j + c] : x.s[c];
            sum1[c] = j ? sum1[c] + x.s[4 * j + 2 + c] : x.s[2 + c];
        }
    }
    return make_float2(sum0[0] + sum0[1], sum1[0] + sum1[1]);
}

/* The largest scores of both rows. */
template <class F> DEVICE float2 largest(const State<F> &x, float to_log2)
{
    float top0 = fmaxf(x.s[0], x.s[1]), top1 = fmaxf(x.s[2], x.s[3]);
#pragma unroll
    for (int j = 1; j < F::KEYS / 8; j++) {
        top0 = fmaxf(top0, fmaxf(x.s[4 * j], x.s[4 * j + 1]));
        top1 = fmaxf(top1, fmaxf(x.s[4 * j + 2], x.s[4 * j + 3]));
    }
    return make_float2(quad_max(top0) * to_log2, quad_max(top1) * to_log2);
}

/* The first block of rows that have seen nothing. */
template <class F> DEVICE void fold_first(State<F> &x, float to_log2)
{
    const float2 top = largest<F>(x, to_log2);
    x.m0 = top.x;
    x.m1 = top.y;
    const float2 sums = weigh<F>(x, to_log2, x.m0 == -INFINITY ? 0.f : x.m0,
                                 x.m1 == -INFINITY ? 0.f : x.m1);
    x.l0 = sums.x;
    x.l1 = sums.y;
}

/* With maxima: the reference follows the largest score. Says whether o is to be scaled. */
template <class F> DEVICE bool fold_careful(State<F> &x, float to_log2)
{
    const float2 top = largest<F>(x, to_log2);
    const bool rescale = __any_sync(ALL_LANES, top.x > x.m0 || top.y > x.m1);
    if (rescale) {
        const float m0 = fmaxf(x.m0, top.x), m1 = fmaxf(x.m1, top.y);
        x.f0 = exp2_fast(x.m0 - (m0 == -INFINITY ? 0.f : m0));
        x.f1 = exp2_fast(x.m1 - (m1 == -INFINITY ? 0.f : m1));
        x.m0 = m0;
        x.m1 = m1;
        x.l0 *= x.f0;
        x.l1 *= x.f1;
    }
    const float2 sums = weigh<F>(x, to_log2, x.m0 == -INFINITY ? 0.f : x.m0,
                                 x.m1 == -INFINITY ? 0.f : x.m1);
    x.l0 += sums.x;
    x.l1 += sums.y;
    return rescale;
}

/* While some row of the warp has seen no key yet, the next block must give it a reference. */
template <class F> DEVICE int wary(const State<F> &x, int next)
{
    const bool settled = __all_sync(ALL_LANES, x.m0 > -INFINITY && x.m1 > -INFINITY);
    const bool clean = next >= CODE_CLEAN && !is_careful(next);
    return clean && !settled ? next + CODE_CAREFUL - CODE_CLEAN : next;
}

/* Without maxima. The vote also keeps ptxas from moving the wait for P V above the exponentials. */
template <class F> DEVICE bool fold_free(State<F> &x, float to_log2)
{
    const float2 sums = weigh<F>(x, to_log2, x.m0, x.m1);
    x.l0 += sums.x;
    x.l1 += sums.y;
    if (!__any_sync(ALL_LANES, !(sums.x + sums.y <= F::LIMIT))) return false;
    const int e0 = exponent(quad_max(sums.x)), e1 = exponent(quad_max(sums.y));
    x.f0 = power_of_half(e0);
    x.f1 = power_of_half(e1);
    x.m0 += (float)e0;
    x.m1 += (float)e1;
    x.l0 *= x.f0;
    x.l1 *= x.f1;
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
        x.s[4 * j] *= x.f0;
        x.s[4 * j + 1] *= x.f0;
        x.s[4 * j + 2] *= x.f1;
        x.s[4 * j + 3] *= x.f1;
    }
    return true;
}

template <class F> DEVICE void scale_sums(State<F> &x)
{
#pragma unroll
    for (int j = 0; j < F::DIM / 8; j++) {
        x.o[4 * j] *= x.f0;
        x.o[4 * j + 1] *= x.f0;
        x.o[4 * j + 2] *= x.f1;
        x.o[4 * j + 3] *= x.f1;
    }
}

template <class F> DEVICE void pack_weights(State<F> &x)
{
#pragma unroll
    for (int i = 0; i < F::KEYS / 4; i++)
        x.p[i] = pack<typename F::type>(x.s[2 * i], x.s[2 * i + 1]);
}

/* Queries as the register operand A. */
template <class F> DEVICE void load_queries(State<F> &x, uint32_t from)
{
    const int thread = thread_in_group(), lane = thread & 31, matrix = lane >> 3;
    const int row = 16 * (thread >> 5) + (lane & 7) + 8 * (matrix & 1);
#pragma unroll
    for (int step = 0; step < F::DIM / 16; step++) {
        const int chunk = 2 * step + (matrix >> 1); /* of 8 columns */
        load_matrices(x.q + 4 * step, from + (chunk >> 3) * (64 * 128) + row * 128 +
                                          (((chunk & 7) ^ (row & 7)) << 4));
    }
}

/* Numbers of acc are stored in the order in which lanes have them, 16 at a time: 4 of each lane of
 * a quad. The column of the pair of numbers at place `at`, which is even. */
DEVICE int column_at(int at) { return (at & ~15) + (at >> 1 & 1) * 8 + (at >> 2 & 3) * 2; }

/* m, l and acc of a thread's first row; its second is 8 further on. */
struct place {
    float *m, *l, *acc;
    int64_t m_stride, l_stride, acc_stride;
};

/* Rows of a view in rows of the tensor: that of row 0, and how far apart they are. */
template <class F> DEVICE struct ra__sm90_view view_in(const ra__sm90_forward &args, int flags)
{
    if constexpr (F::VIEWS == 1) return { 0, 1 };
    else return args.views[(unsigned)flags >> RA__SM90_VIEW_SHIFT];
}

template <class F>
DEVICE struct place state_place(const ra__sm90_forward &args, int flags, int batch, int head,
                                int row)
{
    const struct ra__sm90_view view = view_in<F>(args, flags);
    const ra__sm90_column &m = args.m, &l = args.l, &acc = args.acc;
    const int at = view.first + row * view.step;
    return { m.data + batch * m.batch_stride + head * m.head_stride + at * m.row_stride,
             l.data + batch * l.batch_stride + head * l.head_stride + at * l.row_stride,
             acc.data + batch * acc.batch_stride + head * acc.head_stride + at * acc.row_stride,
             m.row_stride * view.step,
             l.row_stride * view.step,
             acc.row_stride * view.step };
}

template <class F> DEVICE struct place part_place(const ra__sm90_forward &args, int part, int row)
{
    float *acc = args.parts + (size_t)part * F::PART_FLOATS,
          *m = acc + F::ROWS * F::CLUSTER * F::DIM;
    return { m + row, m + F::ROWS * F::CLUSTER + row, acc + row * F::DIM, 1, 1, F::DIM };
}

template <class F> DEVICE void clear_sums(State<F> &x)
{
#pragma unroll
    for (int i = 0; i < F::DIM / 2; i++) x.o[i] = 0;
}

template <class F> DEVICE void clear_state(State<F> &x)
{
    clear_sums<F>(x);
    x.m0 = x.m1 = -INFINITY;
    x.l0 = x.l1 = 0;
}

/* As two pairs where registers are too short for four in a row. */
template <class F> DEVICE float4 load_four(const float *from)
{
    if constexpr (F::DIM < 256) return __ldcg((const float4 *)from);
    const float2 a = __ldcg((const float2 *)from), b = __ldcg((const float2 *)(from + 2));
    return make_float4(a.x, a.y, b.x, b.y);
}

/* Rows that do not exist stay empty. */
template <class F> DEVICE void load_state(State<F> &x, struct place from, int rows_left)
{
    const int lane = thread_in_group() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (8 * i >= rows_left) break;
        (i ? x.m1 : x.m0) = __ldcg(from.m + 8 * i * from.m_stride);
        if (lane == 0) (i ? x.l1 : x.l0) = __ldcg(from.l + 8 * i * from.l_stride);
        const float *acc = from.acc + 8 * i * from.acc_stride + 4 * lane;
#pragma unroll
        for (int j = 0; j < F::DIM / 8; j += 2) {
            const float4 four = load_four<F>(acc + 8 * j);
            x.o[4 * j + 2 * i] = four.x;
            x.o[4 * j + 2 * i + 1] = four.y;
            x.o[4 * j + 4 + 2 * i] = four.z;
            x.o[4 * j + 4 + 2 * i + 1] = four.w;
        }
    }
}

/* l is the whole row's by now. */
template <class F> DEVICE void store_state(const State<F> &x, struct place to, int rows_left)
{
    const int lane = thread_in_group() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (8 * i >= rows_left) break;
        const float l = i ? x.l1 : x.l0;
        const int e = (__float_as_int(l) >> 23) - 127; /* l >= 1 where it is not 0 */
        const float f = l > 0 ? power_of_half(max(0, min(126, e))) : 1.f;
        if (lane == 0) {
            __stcg(to.m + 8 * i * to.m_stride, (i ? x.m1 : x.m0) - __log2f(f));
            __stcg(to.l + 8 * i * to.l_stride, l * f);
        }
        float *acc = to.acc + 8 * i * to.acc_stride + 4 * lane;
#pragma unroll
        for (int j = 0; j < F::DIM / 8; j += 2)
            __stcg((float4 *)(acc + 8 * j),
                   make_float4(x.o[4 * j + 2 * i] * f, x.o[4 * j + 2 * i + 1] * f,
                               x.o[4 * j + 4 + 2 * i] * f, x.o[4 * j + 4 + 2 * i + 1] * f));
    }
}

DEVICE void store_lse(const ra__sm90_column &lse, int batch, int head, int row, float m, float l)
{
    const float natural = 0.6931471805599453f * (m + __log2f(l));
    if (lse.data)
        lse.data[batch * lse.batch_stride + head * lse.head_stride + row * lse.row_stride] =
            natural;
}

/* out = o / l, and lse. `staging`: of the warp, where items join. */
template <class F>
DEVICE void store_out(const State<F> &x, const ra__sm90_forward &args, int flags, int batch,
                      int head, int row, int rows_left, uint32_t staging)
{
    const float f0 = x.l0 > 0 ? reciprocal_fast(x.l0) : x.l0;
    const float f1 = x.l1 > 0 ? reciprocal_fast(x.l1) : x.l1;
    typedef typename F::type T;
    const struct ra__sm90_view view = view_in<F>(args, flags);
    const int at = view.first + row * view.step;
    ra__sm90_tensor out = args.out;
    if constexpr (F::JOINS) {
        const int lane = lane_of(), down = (lane >> 2) - (lane >> 3); /* rows to the staged one */
        T *to = (T *)out.data + batch * out.batch_stride + head * out.head_stride +
                (at - down * view.step) * out.row_stride + 8 * (lane & 7);
        store_rows_staged<T>(x.o, f0, f1, to, opaque(4 * view.step * out.row_stride),
                             rows_left + (lane >> 2), staging);
    } else {
        out.data = (T *)out.data + at * out.row_stride;
        out.row_stride *= view.step;
        store_rows<T>(x.o, f0, f1, out, batch, head, 0, rows_left);
    }
    const int lane = thread_in_group() & 3; /* the first two have a row each */
    if (8 * lane < min(rows_left, 16))
        store_lse(args.lse, batch, head, at + 8 * lane * view.step, lane ? x.m1 : x.m0,
                  lane ? x.l1 : x.l0);
}

/* Rows whose weights left the range of f32. Zero times a finite number is zero. */
template <class F> DEVICE bool overflowed(const State<F> &x, int rows_left)
{
    float zero0 = x.l0 * 0, zero1 = x.l1 * 0;
#pragma unroll
    for (int j = 0; j < F::DIM / 8; j++) {
        zero0 = fmaf(x.o[4 * j], 0, fmaf(x.o[4 * j + 1], 0, zero0));
        zero1 = fmaf(x.o[4 * j + 2], 0, fmaf(x.o[4 * j + 3], 0, zero1));
    }
    return __any_sync(ALL_LANES, (rows_left > 0 && zero0 != 0) || (rows_left > 8 && zero1 != 0));
}

} // namespace sm90
#endif
