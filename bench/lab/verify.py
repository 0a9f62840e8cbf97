# SPDX-License-Identifier: Apache-2.0
"""Verifies variants: verify.py FOLDER NAME... prints a line per variant and writes FOLDER/passed.

Every output is poisoned with NaN first and compared, all rows of it, with attention in float64 on
the GPU. A variant that hangs or crashes has failed; the others are still verified."""
import subprocess
import sys

import numpy as np
import torch

from lab import FAR, FIRST, LAST, Dilated, Kernel, Pattern, Terms, finish

torch.backends.cuda.matmul.allow_tf32 = False


def philox(seed, c0, c1, c2, c3):
    """Philox4x32-10 of broadcast counters, as four words: src/core/philox.h."""
    c = [np.asarray(x, dtype=np.uint64) for x in np.broadcast_arrays(c0, c1, c2, c3)]
    low = np.uint64(0xFFFFFFFF)
    for n in range(10):
        k0 = np.uint64((seed + n * 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64(((seed >> 32) + n * 0xBB67AE85) & 0xFFFFFFFF)
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ k0, b & low, (a >> np.uint64(32)) ^ c[3] ^ k1, a & low]
    return c


class Scores:
    """Scores of all pairs in float64 with their terms, as core/terms.h defines them. mask: which
    pairs there are, or how often each counts."""

    def __init__(self, q, k, mask, terms=None):
        group = q.shape[1] // k.shape[1]
        self.k = k.double().repeat_interleave(group, 1)
        x = q.double() @ self.k.transpose(2, 3) * q.shape[3] ** -0.5
        self.derivative, self.kept, self.sinks = 1, 1, None
        if terms:
            x = self.apply(x, terms)
        times = mask.to(x.device)
        self.x = torch.where(times > 0, x + torch.log(times.double()), float("-inf"))
        sums = self.x if self.sinks is None else torch.cat(
            [self.x, self.sinks[None, :, None, None].expand(*x.shape[:3], 1)], -1)
        self.lse = torch.logsumexp(sums, -1)
        self.p = torch.exp(self.x - torch.where(self.lse.isinf(), 0, self.lse)[..., None])

    def apply(self, x, terms):
        slopes, sinks, bias = terms.kept
        batch, heads, rows, keys = x.shape
        query = terms.q_pos + np.arange(rows) * terms.q_step
        key = terms.k_pos + np.arange(keys) * terms.k_step
        if terms.softcap:
            t = torch.tanh(x / terms.softcap)
            self.derivative, x = 1 - t * t, terms.softcap * t
        if slopes is not None:
            away = torch.from_numpy(np.abs(query[:, None] - key[None])).to(x.device)
            x = x - slopes.double()[None, :, None, None] * away
        if bias is not None:
            of = bias[..., torch.from_numpy(key).to(bias.device)]
            x = x + (of.double() if of.dtype != torch.uint8 else
                     torch.where(of > 0, 0.0, float("-inf")).double())
        if terms.drop_below:
            words = philox(terms.seed, key[None, None, None] // 4, query[None, None, :, None],
                           np.arange(heads)[None, :, None, None],
                           np.arange(batch)[:, None, None, None])
            word = np.choose(np.broadcast_to(key % 4, x.shape), words)
            self.kept = torch.from_numpy((word >= terms.drop_below) * float(terms.kept_scale)).to(x)
        self.sinks = None if sinks is None else sinks.double()
        return x


def reference(q, k, v, mask, terms=None):
    """Rows that see nothing: out = 0, lse = -inf."""
    scores = Scores(q, k, mask, terms)
    v = v.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    return (scores.p * scores.kept) @ v, scores.lse


def random(kernel, batch, heads, rows):
    return torch.randn(batch, heads, rows, kernel.shape.dim, device="cuda").to(kernel.dtype)


def poisoned(q):
    return (torch.full_like(q, float("nan")),
            torch.full(q.shape[:3], float("nan"), device=q.device))


def compare(kernel, out, lse, want, want_lse, wide=1.0):
    """Nothing where they agree, or what differs. wide: how far the scores reach."""
    if bool(out.isnan().any()) or bool(lse.isnan().any()):
        return f"{int(out.isnan().any(-1).sum())} rows of NaN, {int(lse.isnan().sum())} of LSE"
    empty = want_lse.isinf()
    if bool((lse.isinf() != empty).any()) or bool((out[empty] != 0).any()):
        return "rows without keys"
    error = float((out.double() - want).norm() / want.norm().clamp_min(1e-30))
    worst = float((out.double() - want).abs().max() / want.abs().max().clamp_min(1e-30))
    off = float((lse.double() - want_lse)[~empty].abs().max()) if bool((~empty).any()) else 0
    most = (1e-3, 8e-3) if kernel.dtype == torch.float16 else (4e-3, 3e-2)
    if error < most[0] and worst < most[1] and off < 2e-5 * max(1, wide):
        return ""
    return f"error {error:.1e}, worst {worst:.1e}, lse {off:.1e}"


def check(kernel, pattern, q, k, v, wide=1.0, terms=None, mask=None, **options):
    out, lse = poisoned(q)
    kernel.forward(kernel.schedule(pattern, q, k, **options), q, k, v, out, lse, terms=terms)
    finish(f"{kernel.name}: {kernel.doing}")
    mask = pattern.mask(q.shape[2], k.shape[2]) if mask is None else mask
    want, want_lse = reference(q, k, v, mask, terms)
    return compare(kernel, out, lse, want, want_lse, wide)


def some(kernel, rows=1000, keys=1000, batch=2, heads=4, kv_heads=2):
    return (random(kernel, batch, heads, rows), random(kernel, batch, kv_heads, keys),
            random(kernel, batch, kv_heads, keys))


def full(kernel):
    return check(kernel, Pattern.band(1000, 1000), *some(kernel))


def causal(kernel):
    return check(kernel, Pattern.band(1537, 1537, hi=0), *some(kernel, 1537, 1537))


def causal_later(kernel):
    """Queries that start 500 keys later, and some that see no key at all."""
    return (check(kernel, Pattern.band(700, 1200, hi=500), *some(kernel, 700, 1200)) or
            check(kernel, Pattern.band(1200, 700, hi=-500), *some(kernel, 1200, 700)))


def window(kernel):
    return (check(kernel, Pattern.band(1500, 1500, lo=-300, hi=0), *some(kernel, 1500, 1500)) or
            check(kernel, Pattern.band(1500, 1500, lo=-17, hi=40), *some(kernel, 1500, 1500)) or
            check(kernel, Pattern([(0, 1500, [(0, 1500, -17, 40), (1500, 1500, -9, 3)])]),
                  *some(kernel, 1500, 3000)))


def blocks(kernel):
    """Blocks of 64 queries; then of 16, with a band that is not aligned to them."""
    return (check(kernel, Pattern.blocks(1500, 3), *some(kernel, 1500, 1500)) or
            check(kernel, Pattern([(0, 1500, [(0, 1500, -100, 33)])], stair=4),
                  *some(kernel, 1500, 1500)))


def documents(kernel):
    lengths = [1, 7, 100, 63, 64, 65, 700, 385, 3]
    n = sum(lengths)
    return (check(kernel, Pattern.documents(lengths), *some(kernel, n, n)) or
            check(kernel, Pattern.documents(lengths, causal=True), *some(kernel, n, n)))


def runs(kernel):
    """Several runs per row, with gaps, short ones, and rows that see nothing."""
    rows = [(0, 128, [(0, 128, -FAR, 0), (300, 5, -FAR, FAR), (512, 300, -FAR, FAR)]),
            (128, 300, []), (428, 200, [(900, 1, -FAR, FAR), (0, 900, 50, 400)]),
            (628, 372, [(64 * i, 32, -FAR, FAR) for i in range(15)])]
    return check(kernel, Pattern(rows), *some(kernel))


def shared_out(kernel):
    """Few tiles with many keys: clusters share them."""
    return (check(kernel, Pattern.band(400, 9000), *some(kernel, 400, 9000, 1, 2, 1)) or
            check(kernel, Pattern.band(3000, 3000, hi=0), *some(kernel, 3000, 3000, 1, 2, 2)))


def not_shared_out(kernel):
    return check(kernel, Pattern.band(700, 2000), *some(kernel, 700, 2000), split=False)


def strided(kernel):
    """[batch, rows, heads, dim] in memory."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in some(kernel))
    return check(kernel, Pattern.band(1000, 1000, hi=0), q, k, v)


def wide_scores(kernel):
    """Scores of about +-200, growing against the order in which keys are folded."""
    q, k, v = some(kernel, 1000, 2000)
    grow = torch.linspace(1, 0.02, 2000, device="cuda")[:, None]
    scale = 200 / 4.5
    return (check(kernel, Pattern.band(1000, 2000), q * scale, k, v, wide=300) or
            check(kernel, Pattern.band(1000, 2000), q * scale, (k * grow).to(k.dtype), v, wide=300))


def jumps(kernel):
    """One block 2^20 to 2^2000 above all others, folded last, first or between."""
    for factor in (1, 4, 40):
        for at in (0, 900, 1900):
            q, k, v = some(kernel, 1000, 2000)
            k[:, :, at:at + 64] = q[:, ::2, 500:564] * factor
            bad = check(kernel, Pattern.band(1000, 2000), q, k, v, wide=100 * factor)
            if bad:
                return f"factor {factor} at {at}: {bad}"
    return ""


def large_values(kernel):
    """Values near the end of the range: a weight above 1 would overflow the sums."""
    if kernel.dtype == torch.float16:
        return ""
    q, k, v = some(kernel, 500, 1000)
    k[:, :, :64] *= 6
    return check(kernel, Pattern.band(500, 1000), q * 4, k, v * 1e36, wide=30)


def hops(kernel):
    """State carried over 5 hops of 400 keys against one pass; the last rows first see hop 3."""
    q, k, v = some(kernel, 1100, 2000)
    lo = -300
    out, lse = poisoned(q)
    state = (*(torch.full(q.shape[:3], float("nan"), device="cuda") for _ in range(2)),
             torch.full(q.shape, float("nan"), device="cuda"))
    for hop in range(5):
        flags = (FIRST if hop == 0 else 0) | (LAST if hop == 4 else 0)
        part = slice(400 * hop, 400 * hop + 400)
        pattern = Pattern.band(1100, 400, lo=lo - 400 * hop, hi=900 - 400 * hop, flags=flags)
        kk, vv = k[:, :, part].contiguous(), v[:, :, part].contiguous()
        kernel.forward(kernel.schedule(pattern, q, kk), q, kk, vv, out, lse, state)
    finish(f"{kernel.name}: {kernel.doing}")
    return compare(kernel, out, lse, *reference(q, k, v, Pattern.band(1100, 2000, lo=lo, hi=900)
                                                .mask(1100, 2000)))


def nan_stays(kernel):
    """A NaN in a key or an infinity in a value reaches the rows that see it, and no others."""
    patterns = ((Pattern.band(1000, 1000, hi=0), range(600, 1000)),
                (Pattern.band(1000, 1000, lo=-50, hi=7), range(593, 651)),
                (Pattern.documents([590, 50, 360]), range(590, 640)))
    for value in (float("nan"), float("inf")):
        for pattern, seen in patterns:
            for kind in ("key", "value", "value, over hops"):
                q, k, v = some(kernel)
                (k if kind == "key" else v)[:, :, 600, 3] = value
                if kind == "key" and value == float("inf"):
                    continue
                clean = v.clone()
                clean[:, :, 600, 3] = 0
                said = spoilt_rows(kernel, pattern, q, k, v, clean, seen, kind)
                if said:
                    return f"{value} in a {kind}, rows {seen}: {said}"
    return ""


def spoilt_rows(kernel, pattern, q, k, v, clean, seen, kind):
    out, lse = poisoned(q)
    if "hops" in kind:  # the state that the keys are folded into is that of the same keys, once
        state = (*(torch.full(q.shape[:3], float("nan"), device="cuda") for _ in range(2)),
                 torch.full(q.shape, float("nan"), device="cuda"))
        for flags, values in ((FIRST, clean), (LAST, v)):
            hop = Pattern(pattern.rows, flags=flags)
            kernel.forward(kernel.schedule(hop, q, k), q, k, values, out, lse, state)
    else:
        kernel.forward(kernel.schedule(pattern, q, k), q, k, v, out, lse)
    finish(f"{kernel.name}: {kernel.doing}", 20)
    want = reference(q, k, clean, pattern.mask(1000, 1000))[0]
    rows = torch.zeros(1000, dtype=torch.bool, device="cuda")
    rows[list(seen)] = True
    bad = ~out.isfinite().all(-1)
    if not bool(bad[:, :, rows].all()) or bool(bad[:, :, ~rows].any()):
        return f"{int(bad[:, :, ~rows].sum())} too many, {int((~bad[:, :, rows]).sum())} too few"
    error = float((out - want)[:, :, ~rows].norm() / want[:, :, ~rows].norm())
    return "" if error < 4e-3 else f"error {error:.1e}"


def some_terms(kernel, q, keys):
    """Each term that the kernel can do alone, and all of them together."""
    heads, rows = q.shape[1], q.shape[2]
    slopes = 2.0 ** -torch.arange(2, heads + 2, device="cuda").float()
    sinks = torch.randn(heads, device="cuda") + 4
    bias = torch.randn(q.shape[0], heads, rows, keys + 40, device="cuda")
    bias[..., ::7] = float("-inf")
    shown = (torch.rand(1, heads, rows, keys + 40, device="cuda") > 0.3).byte()
    every = {"softcap": dict(softcap=1.5), "slopes": dict(slopes=slopes, q_pos=37),
             "bias": dict(bias=bias, k_pos=7),
             "mask": dict(bias=shown.expand(q.shape[0], -1, -1, -1)),
             "dropout": dict(drop=0.3, seed=0x123456789ABC, q_pos=5, k_pos=1),
             "dropout by 2": dict(drop=0.3, seed=7, q_pos=9, q_step=2, k_pos=3, k_step=2),
             "dropout by 4": dict(drop=0.1, seed=7, k_pos=4),
             "sinks": dict(sinks=sinks)}
    every["all"] = dict(softcap=3.0, slopes=slopes, bias=bias, drop=0.2, seed=99, sinks=sinks)
    can = kernel.terms | (16 if kernel.backward_kernel else 0)
    made = {name: Terms.of(**x) for name, x in every.items()}
    return {name: x for name, x in made.items() if not x.bits() & ~can}


def with_terms(kernel):
    """Every term, on careful and clean blocks, with parts, and over rows without keys."""
    for rows, keys, hi in ((500, 500, 0), (300, 1000, FAR), (200, 150, -30)):
        q, k, v = some(kernel, rows, keys)
        for name, terms in some_terms(kernel, q, keys).items():
            bad = check(kernel, Pattern.band(rows, keys, hi=hi), q, k, v, wide=8, terms=terms)
            if bad:
                return f"{name}, {rows} x {keys}: {bad}"
    return ""


def steep_slopes(kernel):
    """Scores that grow by far more than the range of f32 over the keys of a row."""
    if not kernel.terms & 2:
        return ""
    q, k, v = some(kernel, 1000, 1000)
    terms = Terms.of(slopes=torch.tensor([3.0, 0.5, 20.0, 0.01], device="cuda"))
    return check(kernel, Pattern.band(1000, 1000), q, k, v, wide=8, terms=terms)


def dilated(kernel):
    """Residues as views; keys that several branches see count as often."""
    if not kernel.views:
        return ""
    for n, branches in ((1024, [(256, 1), (512, 2), (1024, 4)]), (768, [(256, 2), (768, 4)])):
        q, k, v = some(kernel, n, n, 2, 4, 4)
        pattern = Dilated(n, branches)
        bad = check(kernel, pattern, q, k, v, mask=pattern.counts(4)[None])
        if bad:
            return f"{branches}: {bad}"
    return ""


def gradients(kernel, pattern, q, k, v, wide=1.0, terms=None, hops=1, **options):
    """Backward of a pattern against float64; out and lse are the reference's. hops: a ring, keys in
    so many parts; dk and dv of each part go through f32."""
    mask = pattern.mask(q.shape[2], k.shape[2])
    group = q.shape[1] // k.shape[1]
    scores = Scores(q, k, mask, terms)
    vv = v.double().repeat_interleave(group, 1)
    weights = scores.p * scores.kept
    o, lse = (weights @ vv).to(q.dtype), scores.lse
    dout = torch.randn_like(q)
    g = dout.double()
    delta = (o.double() * g).sum(-1, keepdim=True)
    ds = scores.p * (scores.kept * (g @ vv.transpose(2, 3)) - delta) * scores.derivative
    ds = ds * q.shape[3] ** -0.5
    per_group = lambda x: x.unflatten(1, (-1, group)).sum(2)
    want = (ds @ scores.k, per_group(ds.transpose(2, 3) @ q.double()),
            per_group(weights.transpose(2, 3) @ g))
    got = tuple(torch.full_like(x, float("nan")) for x in (q, k, v))
    if hops == 1:
        schedule = kernel.schedule(pattern, q, k, padded=kernel.padded(q.shape[2]), **options)
        kernel.backward(schedule, q, k, v, o, dout, lse.float(), *got, terms=terms)
    else:
        ring_gradients(kernel, hops, q, k, v, o, dout, lse.float(), got, options)
    finish(f"{kernel.name}: {kernel.doing}")
    most = 1e-3 if kernel.dtype == torch.float16 else 6e-3
    said = []
    for name, x, y in zip(("dq", "dk", "dv"), got, want):
        error = float((x.double() - y).norm() / y.norm().clamp_min(1e-30))
        if not error < most * wide:
            said.append(f"{name} {error:.1e}, {int(x.isnan().any(-1).sum())} rows of NaN")
    return ", ".join(said)


def ring_gradients(kernel, hops, q, k, v, out, dout, lse, got, options):
    """Full attention: two ranks' queries, one after the other, over the keys of every hop; what the
    first adds to dk and dv goes on to the second in f32."""
    n, rows = k.shape[2] // hops, q.shape[2] // 2
    sums = [torch.full(x.shape, float("nan"), device="cuda") for x in (k, v)]
    for rank in range(2):
        mine = [x[:, :, rank * rows:(rank + 1) * rows] for x in (q, out, dout, got[0])]
        share = None
        for hop in range(hops):
            keys = [x[:, :, hop * n:(hop + 1) * n] for x in (k, v, got[1], got[2], *sums)]
            pattern = Pattern.band(rows, n, flags=FIRST if rank == 0 else LAST)
            schedule = kernel.schedule(pattern, mine[0], keys[0], padded=kernel.padded(rows),
                                       **options)
            flags = (FIRST if hop == 0 else 0) | (LAST if hop == hops - 1 else 0)
            kernel.backward(schedule, mine[0], keys[0], keys[1], mine[1], mine[2],
                            lse[:, :, rank * rows:(rank + 1) * rows], mine[3], keys[2], keys[3],
                            flags=flags, sums=keys[4:], workspace=share)
            share = schedule.sums
            finish("hop")


def backward_ring(kernel):
    return (gradients(kernel, Pattern.band(800, 1200), *some(kernel, 800, 1200), hops=3) or
            gradients(kernel, Pattern.band(6000, 300), *some(kernel, 6000, 300, 1, 2, 1), hops=2))


def backward_terms(kernel):
    for rows, keys, hi in ((500, 500, 0), (300, 600, FAR), (200, 150, -30)):
        q, k, v = some(kernel, rows, keys)
        for name, terms in some_terms(kernel, q, keys).items():
            bad = gradients(kernel, Pattern.band(rows, keys, hi=hi), q, k, v, terms=terms, wide=1.5)
            if bad:
                return f"{name}, {rows} x {keys}: {bad}"
    return ""


def backward_blocks(kernel):
    return (gradients(kernel, Pattern.blocks(1500, 3), *some(kernel, 1500, 1500)) or
            gradients(kernel, Pattern([(0, 1500, [(0, 1500, -100, 33)])], stair=4),
                      *some(kernel, 1500, 1500)))


def backward_full(kernel):
    return (gradients(kernel, Pattern.band(1000, 1000), *some(kernel)) or
            gradients(kernel, Pattern.band(1000, 1000), *some(kernel), rotate=True))


def backward_causal(kernel):
    return (gradients(kernel, Pattern.band(1537, 1537, hi=0), *some(kernel, 1537, 1537)) or
            gradients(kernel, Pattern.band(700, 1200, hi=500), *some(kernel, 700, 1200), spread=4))


def backward_window(kernel):
    return (gradients(kernel, Pattern.band(1500, 1500, lo=-300, hi=0), *some(kernel, 1500, 1500)) or
            gradients(kernel, Pattern.band(1500, 1500, lo=-17, hi=40), *some(kernel, 1500, 1500)))


def backward_documents(kernel):
    lengths = [1, 7, 100, 63, 64, 65, 700, 385, 3]
    n = sum(lengths)
    return (gradients(kernel, Pattern.documents(lengths), *some(kernel, n, n)) or
            gradients(kernel, Pattern.documents(lengths, causal=True), *some(kernel, n, n)))


def backward_shared_out(kernel):
    """Few keys with many queries: clusters share them."""
    return (gradients(kernel, Pattern.band(9000, 300), *some(kernel, 9000, 300, 1, 2, 1)) or
            gradients(kernel, Pattern.band(2000, 2000), *some(kernel, 2000, 2000), split=False))


def backward_strided(kernel):
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in some(kernel))
    return gradients(kernel, Pattern.band(1000, 1000, hi=0), q, k, v)


def backward_wide_scores(kernel):
    q, k, v = some(kernel, 1000, 1000)
    return gradients(kernel, Pattern.band(1000, 1000, hi=0), q * 40, k, v, wide=3)


def backward_same_bits(kernel):
    """Kernels that add in order give the same bits every time."""
    if "-o" not in kernel.name:
        return ""
    q, k, v = some(kernel, 3000, 3000)
    dout = torch.randn_like(q)
    out, lse = torch.randn_like(q), torch.full(q.shape[:3], 8.0, device="cuda")
    for pattern, rotate in ((Pattern.band(3000, 3000), False), (Pattern.band(3000, 3000), True),
                            (Pattern.band(3000, 3000, hi=0), False)):
        schedule = kernel.schedule(pattern, q, k, padded=kernel.padded(3000), rotate=rotate)
        before = None
        for _ in range(6):
            got = tuple(torch.empty_like(x) for x in (q, k, v))
            kernel.backward(schedule, q, k, v, out, dout, lse, *got)
            finish(f"{kernel.name}: {kernel.doing}")
            if before and not all(torch.equal(x, y) for x, y in zip(before, got)):
                return "other bits"
            before = got
    return ""


BACKWARD_CASES = [backward_full, backward_causal, backward_window, backward_documents,
                  backward_shared_out, backward_strided, backward_wide_scores,
                  backward_same_bits, backward_blocks, backward_ring, backward_terms]
CASES = [full, causal, causal_later, window, blocks, documents, runs, shared_out, not_shared_out,
         strided, wide_scores, jumps, large_values, hops, nan_stays, with_terms,
         steep_slopes, dilated]


def verify(folder, name):
    kernel = Kernel(folder, name)
    bad = []
    cases = BACKWARD_CASES if kernel.backward_kernel else CASES
    for case in cases:
        torch.manual_seed(len(bad) + 11)
        kernel.doing = case.__name__
        said = case(kernel)
        if said:
            bad.append(f"{case.__name__}: {said}")
    shape = kernel.shape
    print(f"{name}: {'FAILED ' + '; '.join(bad) if bad else 'ok'} ({len(cases)} cases, "
          f"{kernel.clusters} clusters of {shape.threads} threads, {shape.shared_bytes} bytes)",
          flush=True)
    return not bad


def main():
    folder, names = sys.argv[1], sys.argv[2:]
    if len(names) == 1 or "--inside" in names:
        names = [x for x in names if x != "--inside"]
        for name in names:
            with open(f"{folder}/started", "a") as file:
                file.write(name + "\n")
            if verify(folder, name):
                with open(f"{folder}/passed", "a") as file:
                    file.write(name + "\n")
        return
    for file in ("started", "passed"):
        open(f"{folder}/{file}", "w").close()
    while names:
        subprocess.run([sys.executable, __file__, folder, "--inside", *names])
        started = open(f"{folder}/started").read().split()
        if names[0] not in started:
            break
        if started[-1] != names[-1]:
            print(f"{started[-1]}: FAILED: hung or crashed", flush=True)
        names = names[names.index(started[-1]) + 1:]


if __name__ == "__main__":
    main()
