#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of the device cuda beside PyTorch's, in one process, alternating.

usage: table.py BUILD [--seconds S] [--rounds N] [--only TEXT] [--kernel NAME] [--any-order]
                [--partition NAME] [--check] [--profile] [--goals]

BUILD holds libringattn_gpu_bench.so. Every line: TFLOP/s of pairs that are seen, median of the
rounds, ours / theirs with the least and the most. --check compares results with PyTorch's in f32.
--profile adds where the time of one call of ours goes: each kernel and copy, and how long the GPU
was busy with any of them.

--goals measures what an H200 should reach: lines that have a goal say whether it holds, backward in
a fixed and in any order, rings by more rounds, FlexAttention and 1,048,576 tokens besides; about
six minutes. Exit status 1 if a goal is missed.
"""
import argparse
import ctypes
import itertools
import json
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ModuleNotFoundError:
    sys.exit(f"{__doc__}\ntable.py needs PyTorch: run it with a Python that has it")

DTYPES = {"f32": (0, torch.float32), "bf16": (1, torch.bfloat16), "f16": (2, torch.float16)}


def load(build):
    lib = ctypes.CDLL(f"{build}/libringattn_gpu_bench.so")
    p, i, n = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    lib.gpu_bench_open.argtypes = [ctypes.c_char_p] * 3 + [i, i, n, n, n, i, i, i, i,
                                                           ctypes.POINTER(p)]
    lib.gpu_bench_attend.argtypes = [p] * 7 + [i]
    lib.gpu_bench_gradient.argtypes = [p] * 11 + [i]
    lib.gpu_bench_close.argtypes = [p]
    lib.gpu_bench_kernel.argtypes = [p]
    lib.gpu_bench_kernel.restype = ctypes.c_char_p
    lib.gpu_bench_flops.argtypes = [p, i]
    lib.gpu_bench_flops.restype = ctypes.c_double
    lib.ra_last_error.restype = ctypes.c_char_p
    return lib


class Problem:
    """One shape, as ours and as PyTorch's."""

    any_order = False
    partition = "contiguous"

    def __init__(self, lib, pattern, dtype, n, heads, dim, kv_heads=0, batch=1, nk=0, ranks=1,
                 backward=True, kernel="", any_order=None):
        number, kind = DTYPES[dtype]
        self.lib, self.pattern, self.backward = lib, pattern, backward
        if any_order is None:
            any_order = self.any_order
        kv_heads, nk = kv_heads or heads, nk or n
        self.group = heads // kv_heads
        make = lambda tokens, h: torch.randn(batch, tokens, h, dim, device="cuda").to(kind)
        self.q, self.k, self.v = make(n, heads), make(nk, kv_heads), make(nk, kv_heads)
        self.dout = make(n, heads)
        self.out = torch.empty_like(self.q)
        self.lse = torch.empty(batch, n, heads, device="cuda")
        self.dq, self.dk, self.dv = map(torch.empty_like, (self.q, self.k, self.v))
        self.handle = ctypes.c_void_p()
        status = lib.gpu_bench_open(pattern.encode(), kernel.encode(),
                                    self.partition.encode(), ranks, number, batch, n, nk,
                                    heads, kv_heads, dim,
                                    2 if backward and any_order else int(backward),
                                    ctypes.byref(self.handle))
        self.must(status)
        self.kernel = lib.gpu_bench_kernel(self.handle).decode()
        self.stream = torch.cuda.current_stream().cuda_stream or 1
        self.calls = 1

    def must(self, status):
        if status:
            raise RuntimeError(self.lib.ra_last_error().decode())

    def close(self):
        self.lib.gpu_bench_close(self.handle)

    def flops(self, backward):
        return self.lib.gpu_bench_flops(self.handle, int(backward))

    def attend(self):
        d = [t.data_ptr() for t in (self.q, self.k, self.v, self.out, self.lse)]
        self.must(self.lib.gpu_bench_attend(self.handle, *d, self.stream, self.calls))

    def gradient(self):
        d = [t.data_ptr() for t in (self.q, self.k, self.v, self.out, self.lse, self.dout, self.dq,
                                    self.dk, self.dv)]
        self.must(self.lib.gpu_bench_gradient(self.handle, *d, self.stream, self.calls))

    def theirs(self):
        """PyTorch's views: [batch, head, token, dim]."""
        return [t.transpose(1, 2).detach().requires_grad_(self.backward)
                for t in (self.q, self.k, self.v)]


def rival_calls(problem, backend):
    q, k, v = problem.theirs()
    causal = problem.pattern == "causal"
    options = {"is_causal": causal, "enable_gqa": problem.group > 1}

    def forward():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    out = forward()
    dout = problem.dout.transpose(1, 2)

    def no_grad():
        with torch.no_grad():
            forward()

    def backward():
        torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return no_grad, backward


def rate(call, seconds):
    """Calls per second: as many as fill the time, twice at least."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    count, elapsed = 0, 0.0
    while elapsed < seconds or count < 2:
        for _ in range(2):
            call()
        torch.cuda.synchronize()
        count += 2
        elapsed = time.perf_counter() - start
    return count / elapsed


def short(kernel):
    """The name of a kernel without its template arguments and namespaces."""
    name = kernel.replace("(anonymous namespace)::", "").replace("void ", "")
    return name.split("<")[0].split("(")[0].split("::")[-1][:40]


def profile(call):
    """Where the time of one call goes, in microseconds."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    spans = sorted((e.time_range.start, e.time_range.end, short(e.name)) for e in seen.events()
                   if e.device_type == torch.autograd.DeviceType.CUDA)
    busy, until, sums = 0.0, 0.0, {}
    for start, end, name in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
        count, total = sums.get(name, (0, 0.0))
        sums[name] = (count + 1, total + end - start)
    if not spans:
        return
    print(f"    {until - spans[0][0]:9.0f} us from first to last, busy {busy:.0f}")
    for name, (count, total) in sorted(sums.items(), key=lambda item: -item[1][1]):
        print(f"    {total:9.0f} us in {count:4} x {name}", flush=True)


missed = []  # lines below their goal
judged = []  # lines that have one


def judge(name, ratio, goal, args):
    """What a line says of its goal."""
    if goal is None or not args.goals:
        return ""
    judged.append(name)
    if not ratio >= goal:  # NaN is no success
        missed.append(name)
    return f"  goal {goal}: {'holds' if ratio >= goal else 'MISSED'}"


def compare(name, ours, theirs, flops, args, goal=None, rounds=0, dense=0.0):
    """Rates in turns, printed; ours is returned. In every second round theirs is first: a GPU at
    its power limit slows down during a round. `dense`: a rate that the goal is a share of."""
    a, b = [], []
    for i in range(rounds or args.rounds):
        sides = [(a, ours), (b, theirs)]
        for rates, call in sides if i % 2 == 0 else reversed(sides):
            rates.append(rate(call, args.seconds) if call else float("nan"))
    ratios = [x / y for x, y in zip(a, b)]
    show = lambda rates: flops * statistics.median(rates) / 1e12
    ratio = show(a) / dense if dense else statistics.median(ratios)
    spread = "of dense" if dense else f"({min(ratios):.3f} to {max(ratios):.3f})"
    print(f"{name:58} {show(a):8.1f} {show(b):8.1f}   {ratio:6.3f} {spread}"
          f"{judge(name, ratio, goal, args)}", flush=True)
    if args.profile:
        profile(ours)
    return show(a)


def check(problem):
    """Relative error of all results against PyTorch's plain attention in f32, same numbers."""
    q, k, v = [t.float().detach().requires_grad_() for t in problem.theirs()]
    kk, vv = (t.repeat_interleave(problem.group, 1) for t in (k, v))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(
            q, kk, vv, is_causal=problem.pattern == "causal")
    ref = [out] + list(torch.autograd.grad(out, (q, k, v), problem.dout.transpose(1, 2).float()))
    problem.attend()
    if problem.backward:
        problem.gradient()
    torch.cuda.synchronize()
    got = (problem.out, problem.dq, problem.dk, problem.dv)
    for text, x, y in zip(("out", "dq", "dk", "dv")[:4 if problem.backward else 1], got, ref):
        x = x.transpose(1, 2).float()
        print(f"    {text:4} error {((x - y).norm() / y.norm()).item():.2e}", flush=True)


FLASH, CUDNN, EFFICIENT = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                           SDPBackend.EFFICIENT_ATTENTION)


# Kernel, dtype, rival; for each dim the goals of forward, backward and backward in any order.
DENSE = (
    ("mma", "bf16", FLASH, {64: (0.9, None, 0.9), 128: (0.9, None, 0.9)}),
    ("", "bf16", CUDNN, {64: (1.15, 1.0, 1.15), 128: (1.15, 1.0, 1.05), 256: (0.9, None, None)}),
    ("", "f32", EFFICIENT, {64: (1.0, 1.0, None), 128: (1.0, 1.0, None)}),
)


def dense_cases():
    for kernel, dtype, backend, goals in DENSE:
        for dim, pattern in itertools.product(goals, ("full", "causal")):
            for n in (8192, 16384) if dtype == "f32" else (16384,):
                yield kernel, dtype, backend, dim, pattern, n, goals[dim]


def run_dense(lib, args):
    for kernel, dtype, backend, dim, pattern, n, goals in dense_cases():
        name = f"{kernel or 'auto'} {dtype} {pattern} n={n} d={dim} / {backend.name.lower()}"
        if args.only and args.only not in name:
            continue
        if args.kernel and kernel:
            kernel = args.kernel
        shape = dict(lib=lib, pattern=pattern, dtype=dtype, n=n, heads=2048 // dim, dim=dim,
                     kernel=kernel)
        try:
            problem = Problem(**shape)
            if args.check:
                check(problem)
            forward, backward = rival_calls(problem, backend)
            problem.attend()
            compare(f"{name} forward [{problem.kernel}]", problem.attend, forward,
                    problem.flops(False), args, goals[0])
            goal = goals[2] if args.any_order else goals[1]
            compare(f"{name} backward", problem.gradient, backward, problem.flops(True), args, goal)
            problem.close()
            if args.goals and goals[2] and not args.any_order:
                problem = Problem(**shape, any_order=True)
                problem.attend()
                compare(f"{name} backward, any order", problem.gradient, backward,
                        problem.flops(True), args, goals[2])
                problem.close()
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            missed.append(name)


def documents(n, length):
    return "full;docs=" + ",".join(str(i) for i in range(0, n + 1, length))


# Of the dense rate: forward and backward.
SPARSE = {"full": None, "window:4096": 0.7, "documents": 0.7, "blocks:64;local=8": 0.7,
          "dilated:2048/1,4096/2,8192/4": 0.75}


def run_sparse(lib, args):
    """Rates per useful FLOP, beside our own dense rate."""
    n = 131072
    for dim in (64, 128):
        dense = {}
        for pattern, goal in SPARSE.items():
            text = documents(n, 2048) if pattern == "documents" else pattern
            name = f"sparse bf16 {pattern} n={n} d={dim}"
            if args.only and args.only not in name:
                continue
            try:
                length = 16384 if pattern == "full" else n
                problem = Problem(lib, text, "bf16", length, 1024 // dim, dim, kernel=args.kernel)
                problem.attend()
                for way, call in (("forward", problem.attend), ("backward", problem.gradient)):
                    rate_of = compare(f"{name} {way} [{problem.kernel}]", call, None,
                                      problem.flops(way == "backward"), args,
                                      goal if way in dense else None, dense=dense.get(way, 0.0))
                    if pattern == "full":
                        dense[way] = rate_of
                problem.close()
            except RuntimeError as error:
                print(f"{name}: {error}", flush=True)
                missed.append(name)


# FlexAttention takes masks; the library patterns.
PATTERNS = {
    "full": lambda n: "full",
    "causal": lambda n: "causal",
    "window": lambda n: "window:4095",
    "blocks": lambda n: "blocks:64;local=8",
    "documents": lambda n: documents(n, 2048),
    "dilated": lambda n: "dilated:2048/1,4096/2,8192/4",
}

MASKS = {
    "full": None,
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k < 4096),
    "blocks": lambda b, h, q, k: (q // 64 - k // 64).abs() <= 8,
    "documents": lambda b, h, q, k: q // 2048 == k // 2048,
}


def flex_attention(case, n):
    """FlexAttention, compiled, with the mask of the case."""
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention as attention
    torch._functorch.config.donated_buffer = False  # the graph of a backward pass is used again
    mask = MASKS[case]
    blocks = mask and create_block_mask(mask, None, None, n, n, device="cuda")
    compiled = torch.compile(attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks)


def run_flex(lib, args):
    n = 16384
    for case in ("window", "documents", "blocks"):
        name = f"flex bf16 {case} n={n} d=64"
        if args.only and args.only not in name:
            continue
        try:
            problem = Problem(lib, PATTERNS[case](n), "bf16", n, 32, 64)
            attend = flex_attention(case, n)
            inputs = [x.detach().contiguous().requires_grad_() for x in problem.theirs()]
            dout = problem.dout.transpose(1, 2).contiguous()
            out = attend(*inputs)
            plain = [x.detach() for x in inputs]
            problem.attend()
            compare(f"{name} forward", problem.attend, lambda: attend(*plain),
                    problem.flops(False), args, 1.5, 7 if args.goals else 0)  # spreads by 5%
            compare(f"{name} backward", problem.gradient,
                    lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True),
                    problem.flops(True), args, 1.3)
            problem.close()
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            missed.append(name)


def ring_and_one(lib, args, pattern, n, dim, calls, backward):
    """The same tokens on four ranks and on one, `calls` in a row."""
    one, four = (Problem(lib, pattern, "bf16", n, 8, dim, ranks=ranks, backward=backward,
                         kernel=args.kernel) for ranks in (1, 4))
    one.stream = four.stream = None
    one.calls = four.calls = calls
    one.attend()
    four.attend()
    return one, four


def run_rings(lib, args):
    """A ring of 4 ranks on one GPU beside one rank, same tokens in all; time of one over time of
    four. Ranks are threads that make one call after the other, as the layers of a model do; a call
    returns when its rank is done, so both sides do here."""
    n, calls = 65536, 8
    for dim, pattern in itertools.product((64, 128), ("full", "causal")):
        name = f"ring of 4 bf16 {pattern} n={n} d={dim}"
        if args.only and args.only not in name:
            continue
        try:
            one, four = ring_and_one(lib, args, pattern, n, dim, calls, True)
            rounds = (25, 7) if args.goals else (0, 0)  # they spread by 4 to 10%, 1 to 4%
            compare(f"{name} forward / one rank [{four.kernel}]", four.attend, one.attend,
                    calls * one.flops(False), args, 0.952, rounds[0])
            compare(f"{name} backward / one rank", four.gradient, one.gradient,
                    calls * one.flops(True), args, 0.952, rounds[1])
            one.close()
            four.close()
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            missed.append(name)


def streamed(build):
    """Seconds of the command on as many tokens through 8 GB."""
    flags = "--device cuda --tokens 1048576 --heads 8 --dim 128 --dtype bf16 --pattern causal " \
            "--strategy stream --memory 8G --warmup 1 --json --quiet"
    done = subprocess.run([f"{build}/ringattn", "run", *flags.split()], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)["seconds"]


def run_long(lib, args):
    """1,048,576 tokens, causal, dim 128: beside cuDNN, as a ring of 4, and as a stream."""
    n = 1 << 20
    name = f"long bf16 causal n={n} d=128"
    if args.only and args.only not in name:
        return
    try:
        one, four = ring_and_one(lib, args, "causal", n, 128, 1, False)
        forward, _ = rival_calls(one, CUDNN)
        flops = one.flops(False)
        ours = compare(f"{name} / cudnn [{one.kernel}]", one.attend, forward, flops, args, 1.1, 1)
        compare(f"{name} ring of 4 / one rank", four.attend, one.attend, flops, args, 0.97, 2)
        one.close()
        four.close()
        rate_of = flops / streamed(args.build) / 1e12
        line = f"{name} stream, 8 GB / in memory"
        print(f"{line:58} {rate_of:8.1f} {ours:8.1f}   {rate_of / ours:6.3f}"
              f"{judge(line, rate_of / ours, 0.909, args)}", flush=True)
    except RuntimeError as error:
        print(f"{name}: {error}", flush=True)
        missed.append(name)


def copy_rate(args):
    """Bytes per second that a copy within the GPU reads and writes."""
    x = torch.empty(1 << 32, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() * statistics.median(rate(lambda: y.copy_(x), args.seconds)
                                             for _ in range(args.rounds))


def run_decode(lib, args):
    name = "decode b=8 h=32 d=128 nk=131072"
    if args.only and args.only not in name:
        return
    copied = copy_rate(args)
    for kv_heads, goal in ((32, 0.85), (4, None)):
        try:
            problem = Problem(lib, "causal", "bf16", 1, 32, 128, kv_heads=kv_heads, batch=8,
                              nk=131072, backward=False, kernel=args.kernel)
            bytes_read = 2 * problem.k.numel() * 2
            rates = [rate(problem.attend, args.seconds) for _ in range(args.rounds)]
            read = bytes_read * statistics.median(rates)
            line = f"{name}/{kv_heads} [{problem.kernel}]"
            print(f"{line} {read / 1e12:.2f} TB/s, a copy {copied / 1e12:.2f}"
                  f"{judge(line, read / copied, goal, args)}", flush=True)
            problem.close()
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            missed.append(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of lines, such as "
                        "\"auto bf16\", sparse, \"ring of 4\", decode, flex, long")
    parser.add_argument("--kernel", default="")
    parser.add_argument("--any-order", action="store_true", help="of the sums of dq")
    parser.add_argument("--partition", default="contiguous", help="of rings")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--goals", action="store_true")
    args = parser.parse_args()
    Problem.any_order, Problem.partition = args.any_order, args.partition
    lib = load(args.build)
    print(f"{'':58} {'ours':>8} {'theirs':>8}   ratio", flush=True)
    run_dense(lib, args)
    run_sparse(lib, args)
    run_rings(lib, args)
    run_decode(lib, args)
    if not args.goals:
        return
    run_flex(lib, args)
    run_long(lib, args)
    if not judged:
        sys.exit(f"no line that has a goal has \"{args.only}\" in its name")
    for name in missed:
        print(f"MISSED, or not measured: {name}")
    print(f"goals: {len(missed)} missed or not measured")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
