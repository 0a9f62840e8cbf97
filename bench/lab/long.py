# SPDX-License-Identifier: Apache-2.0
"""Two single measurements: long.py FOLDER [--decode] NAME... (forward variants, dim 128, bf16).

Causal attention over 1,048,576 tokens, 8 heads, once after cuDNN in the same process, sampled rows
compared with float64. And decoding: one query per head against 131,072 keys, batch 8, 32 heads, as
bytes of K and V read per second, with and without groups of 8 query heads per KV head."""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lab import FAR, FIRST, LAST, Kernel, Pattern, finish


def once(function):
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    function()
    end.record()
    finish("long", 60)
    return begin.elapsed_time(end) / 1000


def sampled_error(q, k, v, out, rows):
    worst = 0
    for h in (0, q.shape[1] - 1):
        for row in rows:
            s = (k[0, h, :row + 1].double() @ q[0, h, row].double()) * q.shape[3] ** -0.5
            want = torch.softmax(s, 0) @ v[0, h, :row + 1].double()
            worst = max(worst, float((out[0, h, row].double() - want).norm() / want.norm()))
    return worst


def ring_of(kernel, q, k, v, out, lse, ranks):
    """All ranks of a ring on this GPU, one after the other: rank r folds the keys of rank r, then
    of r - 1 and so on down to 0 (causal), a launch per hop, state in f32 in between."""
    n = q.shape[2] // ranks
    part = lambda x, r: x[:, :, r * n:(r + 1) * n]
    state = (*(torch.empty(*q.shape[:2], n, device="cuda") for _ in range(2)),
             torch.empty(*q.shape[:2], n, q.shape[3], device="cuda"))
    hops = []
    for rank in range(ranks):
        for hop in range(rank + 1):
            flags = (FIRST if hop == 0 else 0) | (LAST if hop == rank else 0)
            pattern = Pattern.band(n, n, hi=0 if hop == 0 else FAR, flags=flags)
            source = rank - hop
            hops.append((kernel.schedule(pattern, part(q, rank), part(k, source), section=1),
                         part(q, rank), part(k, source), part(v, source), part(out, rank),
                         part(lse, rank), state))
    return lambda: [kernel.forward(*x) for x in hops], out


def million(kernel, n=1 << 20, heads=8):
    q, k, v = (torch.randn(1, heads, n, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out, lse = torch.full_like(q, float("nan")), torch.empty(1, heads, n, device="cuda")
    start = time.time()
    schedule = kernel.schedule(Pattern.band(n, n, hi=0), q, k, section=1)
    planned = time.time() - start
    rival = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    ours = lambda: kernel.forward(schedule, q, k, v, out, lse)
    times = [(once(rival), once(ours)) for _ in range(2)]
    error = sampled_error(q, k, v, out, [0, 1, n // 3, n - 2, n - 1])
    ring, tell = ring_of(kernel, q, k, v, torch.full_like(q, float("nan")), lse, 4)
    ringed = [(once(ours), once(ring)) for _ in range(2)]
    same = sampled_error(q, k, v, tell, [0, 1, n // 3, n - 2, n - 1])
    print(f"ring of 4 ranks, n {n}: {ringed[1][1]:.3f} s, one launch {ringed[1][0]:.3f} s, "
          f"{ringed[1][1] / ringed[1][0]:.4f} (the first time {ringed[0][1] / ringed[0][0]:.4f}), "
          f"error {same:.1e}, NaN {bool(tell.isnan().any())}", flush=True)
    print(f"causal n {n} {heads} heads d 128: cudnn {times[1][0]:.3f} s, {kernel.name} "
          f"{times[1][1]:.3f} s, {times[1][0] / times[1][1]:.3f} ({times[0][0] / times[0][1]:.3f} "
          f"the first time), error {error:.1e}, NaN {bool(out.isnan().any())}, "
          f"schedule {planned:.2f} s", flush=True)


def decode(kernel, heads, kv_heads, batch=8, keys=131072):
    q = torch.randn(batch, heads, 1, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, keys, 128, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    # The heads of a group are rows of one tile: they see the same keys.
    rows = q.view(batch, kv_heads, heads // kv_heads, 128)
    out, lse = torch.empty_like(rows), torch.empty(rows.shape[:3], device="cuda")
    schedule = kernel.schedule(Pattern.band(rows.shape[2], keys), rows, k)
    bytes_read = 2 * k.numel() * 2
    ours = lambda: [kernel.forward(schedule, rows, k, v, out, lse) for _ in range(10)]
    rival = lambda: [F.scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)
                     for _ in range(10)]
    rates = []
    for function in (rival, ours, rival, ours):
        try:
            rates.append(10 * bytes_read / once(function) / 1e12)
        except RuntimeError as error:
            rates.append(float("nan"))
            print(str(error)[:100])
    print(f"decode batch {batch} heads {heads}/{kv_heads} keys {keys}: cudnn {rates[2]:.2f} TB/s, "
          f"{kernel.name} {rates[3]:.2f} TB/s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for name in [x for x in sys.argv[2:] if x != "--decode"]:
            decode(Kernel(sys.argv[1], name), 32, 32)
            decode(Kernel(sys.argv[1], name), 32, 4)
        if "--decode" not in sys.argv:
            million(Kernel(sys.argv[1], sys.argv[2]))
