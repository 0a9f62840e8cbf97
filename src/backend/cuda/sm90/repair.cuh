/* SPDX-License-Identifier: Apache-2.0 */
/* repair.cuh - rows that a value hidden from them has spoilt: 0 times NaN or infinity is NaN.
 *
 * The forward kernel multiplies weights of 0 with values that a row does not see. Rows that are not
 * finite after their second pass are marked. When the queue of a cluster is done, the warp that had
 * such a row looks whether a value that is hidden from it, but was in one of its blocks, is not
 * finite, and then computes the row anew, key by key. Items that start from state are not written
 * by the second pass: their marked rows are all computed anew. */
#ifndef RA__SM90_REPAIR_CUH
#define RA__SM90_REPAIR_CUH

#include "backend/cuda/sm90/forward_shape.cuh"
#include "backend/cuda/sm90/softmax.cuh"

namespace sm90
{

enum { MARK_SPOILT = 2 }; /* in `failed` */

template <class F> struct Repair {
    enum { PER_LANE = F::DIM / 32 };
    typedef typename F::type T;
    const ra__sm90_forward &args;
    const struct factors &by;
    int4 who, what; /* the item */
    int row;        /* in the item */
    float m, l, acc[PER_LANE];

    DEVICE int head(void) const { return who.y & 0xFFFF; }
    DEVICE int q_row(void) const
    {
        const struct ra__sm90_view view = view_in<F>(args, what.w);
        return view.first + (who.z + row) * view.step;
    }

    /* Key j of a run: its row in the tensor, and where that row of K or V is. */
    DEVICE int key_row(int4 run, int j) const
    {
        if constexpr (F::VIEWS == 1) return run.x + j;
        const struct ra__sm90_view view = args.views[view_of<F>(run.x)];
        return view.first + (row_of<F>(run.x) + j) * view.step;
    }
    DEVICE const T *at(const ra__sm90_tensor &x, int key) const
    {
        return (const T *)x.data + who.x * x.batch_stride +
               (int)((uint32_t)who.y >> 16) * x.head_stride + key * x.row_stride;
    }

    /* The keys [x, y) of a run that the row sees. */
    DEVICE int2 seen(int4 run) const
    {
        const int stepped = stair_of(row, stair_in(what.w));
        return make_int2(max(0, run.z + stepped), min(run.y, run.w + stepped + 1));
    }

    DEVICE bool finite_value(int key) const
    {
        float zero = 0;
#pragma unroll 2
        for (int c = 0; c < F::DIM; c++) zero = fmaf((float)at(args.v, key)[c], 0, zero);
        return zero == 0;
    }

    /* Does a bias hide the key? */
    DEVICE bool biased_away(int key) const
    {
        if constexpr (F::TERMS & RA__SM90_BIAS) {
            const int64_t pos = key_position(args.terms, key);
            const struct term_row of = term_row_of<F::TERMS>(args.terms, who.x, head(), q_row(),
                                                             pos);
            return addend<F::TERMS>(args.terms, of,
                                    (float)(pos - query_position(args.terms, q_row())), 0,
                                    true) == -INFINITY;
        }
        return false;
    }

    /* Is a value not finite that is hidden from the row, but in one of its blocks? */
    DEVICE bool spoilt(void) const
    {
        bool bad = false;
        for (int r = what.x; r < what.x + what.y; r++) {
            const int4 run = __ldg((const int4 *)args.runs + r);
            const int2 see = seen(run);
            const int end = (run.y + F::KEYS - 1) / F::KEYS * F::KEYS;
            for (int j = lane_of(); j < end; j += 32) {
                const int key = key_row(run, j);
                if (key >= args.v.rows) continue;
                if (j < see.x || j >= see.y || biased_away(key)) bad |= !finite_value(key);
            }
        }
        return __any_sync(ALL_LANES, bad);
    }

    DEVICE const T *query(void) const
    {
        const ra__sm90_tensor &q = args.q;
        return (const T *)q.data + who.x * q.batch_stride + head() * q.head_stride +
               q_row() * q.row_stride;
    }

    /* The score of a key and what dropout makes of its weight. */
    DEVICE float score(int key, float *kept) const
    {
        const T *q = query(), *k = at(args.k, key);
        float qk = 0, derivative, more = 0;
#pragma unroll 2
        for (int c = 0; c < F::DIM; c++) qk = fmaf((float)q[c], (float)k[c], qk);
        *kept = 1;
        if constexpr (F::PAIR_TERMS) {
            const ra__sm90_terms &terms = args.terms;
            const int64_t query_pos = query_position(terms, q_row());
            const int64_t key_pos = key_position(terms, key);
            const struct term_row of = term_row_of<F::TERMS>(terms, who.x, head(), q_row(),
                                                             key_pos);
            more = addend<F::TERMS>(terms, of, (float)(key_pos - query_pos), 0, true);
            if ((F::TERMS & RA__SM90_DROPOUT) && terms.drop_below)
                *kept = kept_one(terms, who.x, head(), query_pos, key_pos) ? terms.kept_scale : 0;
        }
        return more == -INFINITY ? more : capped<F::TERMS>(by, qk, &derivative) + more;
    }

    /* 32 keys of a run, one per lane. */
    DEVICE void fold(int4 run, int from, int to)
    {
        const int mine = from + lane_of();
        float kept = 0, x = -INFINITY;
        if (mine < to) x = score(key_row(run, mine), &kept);
        float top = x;
        for (int i = 16; i; i >>= 1) top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, i));
        const float reference = fmaxf(m, top), safe = reference == -INFINITY ? 0 : reference;
        const float scale = exp2_fast(m - safe), weight = exp2_fast(x - safe);
        m = reference;
        l *= scale;
        for (int c = 0; c < PER_LANE; c++) acc[c] *= scale;
        for (int i = 0; i < 32 && from + i < to; i++) {
            const float p = __shfl_sync(ALL_LANES, weight, i);
            const float f = __shfl_sync(ALL_LANES, kept, i);
            const bool hidden = __shfl_sync(ALL_LANES, x, i) == -INFINITY;
            if (hidden) continue;
            const T *v = at(args.v, key_row(run, from + i)) + PER_LANE * lane_of();
            l += p;
            for (int c = 0; c < PER_LANE; c++) acc[c] = fmaf(p * f, (float)v[c], acc[c]);
        }
    }

    /* Columns of this lane are PER_LANE side by side; in state they are elsewhere. */
    DEVICE int stored_at(int c) const
    {
        const int column = PER_LANE * lane_of() + c;
        return (column & ~15) + (column >> 1 & 3) * 4 + (column >> 3 & 1) * 2 + (column & 1);
    }

    DEVICE void start(void)
    {
        m = -INFINITY;
        l = 0;
        for (int c = 0; c < PER_LANE; c++) acc[c] = 0;
        if (what.w & RA__SM90_FIRST) return;
        const struct place state = state_place<F>(args, what.w, who.x, head(), who.z + row);
        m = *state.m;
        l = *state.l;
        for (int c = 0; c < PER_LANE; c++) acc[c] = state.acc[stored_at(c)];
    }

    DEVICE void end(void)
    {
        __syncwarp();
        if (what.z >= 0 || !(what.w & RA__SM90_LAST)) {
            const struct place to = what.z >= 0
                                        ? part_place<F>(args, what.z, row)
                                        : state_place<F>(args, what.w, who.x, head(), who.z + row);
            for (int c = 0; c < PER_LANE; c++) to.acc[stored_at(c)] = acc[c];
            if (lane_of() == 0) *to.m = m, *to.l = l;
            return;
        }
        float f = 1;
        if constexpr (F::TERMS & RA__SM90_SINKS)
            if (args.terms.sinks) fold_sink(args.terms.sinks[head()] * LOG2_E, m, l, f);
        f = l > 0 ? f / l : l;
        const ra__sm90_tensor &out = args.out;
        T *to = (T *)out.data + who.x * out.batch_stride + head() * out.head_stride +
                q_row() * out.row_stride + PER_LANE * lane_of();
        for (int c = 0; c < PER_LANE; c += 2)
            *(uint32_t *)(to + c) = pack<T>(acc[c] * f, acc[c + 1] * f);
        if (lane_of() == 0) store_lse(args.lse, who.x, head(), q_row(), m, l);
    }

    DEVICE void run(void)
    {
        if ((what.w & RA__SM90_FIRST) && !spoilt()) return;
        start();
        for (int r = what.x; r < what.x + what.y; r++) {
            const int4 run = __ldg((const int4 *)args.runs + r);
            const int2 see = seen(run);
            for (int j = see.x; j < see.y; j += 32) fold(run, j, see.y);
        }
        end();
    }
};

/* The rows of this warp, of all items of its cluster. */
template <class F>
DEVICE void repair(const ra__sm90_forward &args, const struct factors &by, int warp)
{
    const int cluster = blockIdx.x / F::CLUSTER;
    for (int i = args.queues[cluster]; i < args.queues[cluster + 1]; i++) {
        if (uniform(__ldcg(args.failed + (size_t)i * F::WARPS + warp)) != MARK_SPOILT) continue;
        const int4 *item = (const int4 *)args.items + 2 * i;
        for (int j = 16 * warp; j < 16 * warp + 16; j++) {
            Repair<F> row = { args, by, item[0], item[1], j };
            if (j < row.who.w) row.run();
        }
    }
}

} // namespace sm90
#endif
