#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A decode loop with a growing cache: seconds of `ringattn.Cache.step`, beside the same calls of the C
library by ctypes, and, where PyTorch is there, beside its scaled_dot_product_attention. The loops
alternate; medians of all rounds.

usage: decode.py [--tokens N] [--heads N] [--kv-heads N] [--dim N] [--dtype NAME] [--threads N]
                 [--rounds N]          with ringattn installed, or RINGATTN_LIBRARY and PYTHONPATH set
"""
import argparse
import statistics
import time
from ctypes import byref

import numpy
import ringattn
from ringattn import _library as c
from ringattn._arrays import address, readable
from ringattn._decoder import cache_sequences


def tensors(args):
    random = numpy.random.default_rng(0)
    kind = args.dtype
    if kind == "bfloat16":
        kind = __import__("ml_dtypes").bfloat16
    return [random.standard_normal((args.tokens, 1, 1, heads, args.dim)).astype(kind)
            for heads in (args.heads, args.kv_heads, args.kv_heads)]


def package(args, q, k, v):
    """The loop that people write."""
    with ringattn.Cache(args.tokens, args.heads, args.dim, kv_heads=args.kv_heads,
                        dtype=args.dtype, threads=args.threads) as cache:
        cache.step(q[0], k[0], v[0])
        held = c.lib.ra_allocated_bytes()
        cache.truncate(0)
        start = time.perf_counter()
        for t in range(args.tokens):
            out = cache.step(q[t], k[t], v[t])
        seconds = time.perf_counter() - start
        if c.lib.ra_allocated_bytes() != held:
            raise SystemExit("the library allocated after the first token")
    return seconds, out


def bare(args, q, k, v):
    """The same calls of the C library, with everything else done before."""
    cache = ringattn.Cache(args.tokens, args.heads, args.dim, kv_heads=args.kv_heads,
                           dtype=args.dtype, threads=args.threads)
    keys, values = cache._k, cache._v
    cache.step(q[0], k[0], v[0])
    state = cache._decoder._states[1].value
    out, lse = numpy.empty(q[0].shape, q.dtype), numpy.empty(args.heads, numpy.float32)
    to, (kt, vt) = c.Tensor(address(out), 0, 0, 0), cache._tensors
    queries = [readable(x)[1] for x in q]
    sequences = [cache_sequences(1, [1], args.tokens, [t + 1]) for t in range(args.tokens)]
    lib = c.lib
    start = time.perf_counter()
    for t in range(args.tokens):
        keys[0, t] = k[t, 0, 0]
        values[0, t] = v[t, 0, 0]
        lib.ra_state_init(state)
        lib.ra_state_set_sequences(state, address(sequences[t]))
        lib.ra_state_fold(state, byref(queries[t]), byref(kt), byref(vt), 0, args.tokens)
        lib.ra_state_finish(state, byref(to), address(lse))
    seconds = time.perf_counter() - start
    cache.close()
    return seconds, out


def pytorch(args, q, k, v):
    import torch
    torch.set_num_threads(args.threads)
    kind = {"float32": torch.float32, "float16": torch.float16,
            "bfloat16": torch.bfloat16}[args.dtype]
    q, k, v = (torch.from_numpy(x.astype("float32")).to(kind).transpose(2, 3) for x in (q, k, v))
    keys, values = (torch.zeros(1, args.kv_heads, args.tokens, args.dim, dtype=kind)
                    for _ in range(2))
    gqa = args.heads != args.kv_heads
    with torch.no_grad():
        start = time.perf_counter()
        for t in range(args.tokens):
            keys[:, :, t:t + 1], values[:, :, t:t + 1] = k[t], v[t]
            out = torch.nn.functional.scaled_dot_product_attention(
                q[t], keys[:, :, :t + 1], values[:, :, :t + 1], enable_gqa=gqa)
        seconds = time.perf_counter() - start
    return seconds, out.transpose(1, 2).float().numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("tokens", 4096), ("heads", 32), ("kv-heads", 8), ("dim", 128),
                        ("threads", 0), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    args.threads = args.threads or len(__import__("os").sched_getaffinity(0))
    loops = {"ringattn.Cache": package, "the C calls": bare}
    try:
        __import__("torch")
        loops["PyTorch's sdpa"] = pytorch
    except ImportError:
        pass
    data = tensors(args)
    seconds, outs = {name: [] for name in loops}, {}
    for _ in range(args.rounds):
        for name, loop in loops.items():
            taken, outs[name] = loop(args, *data)
            seconds[name].append(taken)
    want = outs["the C calls"].astype(float)
    base = statistics.median(seconds["the C calls"])
    print(f"{args.tokens} tokens, {args.heads}/{args.kv_heads} heads, dim {args.dim}, {args.dtype}, "
          f"{args.threads} threads, {args.rounds} rounds")
    for name, all_seconds in seconds.items():
        middle = statistics.median(all_seconds)
        off = numpy.abs(outs[name].astype(float) - want).max()
        print(f"{name:15} {1e6 * middle / args.tokens:8.1f} us per token ({min(all_seconds):.2f} to "
              f"{max(all_seconds):.2f} s), {middle / base:.3f} of the C calls, off by {off:.1e}")


main()
