#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures calls in a CUDA graph, replays it on other numbers, and compares bits with plain calls.

usage: graph.py BUILD
"""
import sys

import torch

from table import Problem, load


def check(lib, pattern, dtype, dim, kernel):
    problem = Problem(lib, pattern, dtype, 1000, 4, dim, kv_heads=2, kernel=kernel)
    problem.attend()
    problem.gradient()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        problem.stream = torch.cuda.current_stream().cuda_stream
        problem.attend()
        problem.gradient()
    for tensor in (problem.q, problem.k, problem.v, problem.dout):
        tensor.copy_(torch.randn_like(tensor, dtype=torch.float32))
    results = (problem.out, problem.lse, problem.dq, problem.dk, problem.dv)
    graph.replay()
    torch.cuda.synchronize()
    replayed = [t.clone() for t in results]
    for tensor in results:
        tensor.fill_(7)
    problem.stream = torch.cuda.current_stream().cuda_stream or 1
    problem.attend()
    problem.gradient()
    torch.cuda.synchronize()
    same = all(torch.equal(a, b) for a, b in zip(replayed, results))
    print(f"{'passed' if same else 'FAILED'}  graph of {pattern} {dtype} d={dim} "
          f"[{problem.kernel}]", flush=True)
    problem.close()
    return same


def main():
    lib = load(sys.argv[1])
    cases = [("causal", "bf16", 128, ""), ("window:100", "bf16", 64, ""), ("full", "f16", 64, "mma"),
             ("causal", "f32", 64, "simt"), ("dilated:128/1,256/2", "bf16", 64, "")]
    passed = [check(lib, *case) for case in cases]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


main()
