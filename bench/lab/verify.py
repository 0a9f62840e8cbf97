# SPDX-License-Identifier: Apache-2.0
"""Verifies variants: verify.py FOLDER NAME... prints a line per variant and writes FOLDER/passed.

Every output is poisoned with NaN first and compared, all rows of it, with attention in float64 on
the GPU. A variant that hangs or crashes has failed; the others are still verified."""
import subprocess
import sys

import torch

from lab import FAR, FIRST, LAST, Kernel, Pattern, finish

torch.backends.cuda.matmul.allow_tf32 = False


def reference(q, k, v, mask):
    """Rows that see nothing: out = 0, lse = -inf."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    s = q.double() @ k.transpose(2, 3) * q.shape[3] ** -0.5
    s.masked_fill_(~mask.to(s.device), float("-inf"))
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None])
    p.masked_fill_(~mask.to(s.device), 0)
    return p @ v, lse


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


def check(kernel, pattern, q, k, v, wide=1.0, **options):
    out, lse = poisoned(q)
    kernel.forward(kernel.schedule(pattern, q, k, **options), q, k, v, out, lse)
    finish(f"{kernel.name}: {kernel.doing}")
    want, want_lse = reference(q, k, v, pattern.mask(q.shape[2], k.shape[2]))
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
    """Few tiles with many keys: workers share them."""
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
    """A NaN in a key reaches the rows that see it, and no others."""
    q, k, v = some(kernel)
    k[:, :, 600, 3] = float("nan")
    out, lse = poisoned(q)
    kernel.forward(kernel.schedule(Pattern.band(1000, 1000, hi=0), q, k), q, k, v, out, lse)
    finish(f"{kernel.name}: {kernel.doing}")
    rows = out.isnan().any(-1)
    good = bool(rows[:, :, 600:].all()) and not bool(rows[:, :, :600].any())
    return "" if good else f"{int(rows[:, :, :600].sum())} rows too many"


def gradients(kernel, pattern, q, k, v, wide=1.0, **options):
    """Backward of a pattern against float64; out and lse are the reference's."""
    mask = pattern.mask(q.shape[2], k.shape[2])
    out, lse = reference(q, k, v, mask)
    dout = torch.randn_like(q)
    o, g = out.to(q.dtype), dout.double()
    group = q.shape[1] // k.shape[1]
    kk, vv = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scale = q.shape[3] ** -0.5
    s = q.double() @ kk.transpose(2, 3) * scale
    p = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None])
    p.masked_fill_(~mask.to(p.device), 0)
    delta = (o.double() * g).sum(-1, keepdim=True)
    ds = p * (g @ vv.transpose(2, 3) - delta) * scale
    per_group = lambda x: x.unflatten(1, (-1, group)).sum(2)
    want = (ds @ kk, per_group(ds.transpose(2, 3) @ q.double()), per_group(p.transpose(2, 3) @ g))
    got = tuple(torch.full_like(x, float("nan")) for x in (q, k, v))
    schedule = kernel.schedule(pattern, q, k, padded=kernel.padded(q.shape[2]), **options)
    kernel.backward(schedule, q, k, v, o, dout, lse.float(), *got)
    finish(f"{kernel.name}: {kernel.doing}")
    most = 1e-3 if kernel.dtype == torch.float16 else 6e-3
    said = []
    for name, x, y in zip(("dq", "dk", "dv"), got, want):
        error = float((x.double() - y).norm() / y.norm().clamp_min(1e-30))
        if not error < most * wide:
            said.append(f"{name} {error:.1e}, {int(x.isnan().any(-1).sum())} rows of NaN")
    return ", ".join(said)


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
    """Few keys with many queries: workers share them."""
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
                  backward_same_bits]
CASES = [full, causal, causal_later, window, blocks, documents, runs, shared_out, not_shared_out,
         strided, wide_scores, jumps, large_values, hops, nan_stays]


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
          f"{kernel.workers} workers of {shape.threads} threads, {shape.shared_bytes} bytes)",
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
