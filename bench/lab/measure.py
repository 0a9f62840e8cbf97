# SPDX-License-Identifier: Apache-2.0
"""Times variants against PyTorch's cuDNN, alternating in one process.

  usage: measure.py FOLDER [--seconds S] [--rounds R] [--cases full,causal,...] [--n N] NAME...
         --hops P: full attention as P launches over a P-th of the keys each, with state in and out
         --jump:   scores jump by 2^1000 at the last block of every row, so that all is replayed
         --flex:   FlexAttention takes cuDNN's place, with the mask of the case
         --terms:  score terms for variants that have some
         --library BUILD: forward, also the library's call, by BUILD/libringattn_gpu_bench.so

In a round cuDNN and every variant run for S seconds each, one after the other, on the same N(0,1)
data, forward or backward. Every second round takes the variants in reverse: at the power limit the
one after the rival is up to 2% faster for its place alone. A ratio is cuDNN's time over the
variant's in the same round; printed are the rate over all rounds, the mean ratio with its smallest
and largest value, SM clock and power. Flops are 4 pairs dim, backward 2.5 times that. cuDNN has no
window, document or block masks; there the ratio is to its full (no mask) rate per useful flop,
marked with a star."""
import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lab import FIRST, LAST, Dilated, Kernel, Pattern, Sensors, Terms, finish

sys.path.append(str(pathlib.Path(__file__).parents[1] / "gpu"))
import table  # the library's calls

CASES = {
    "full": lambda n: Pattern.band(n, n),
    "causal": lambda n: Pattern.band(n, n, hi=0),
    "window": lambda n: Pattern.band(n, n, lo=-4095, hi=0),
    "blocks": lambda n: Pattern.blocks(n, 8),
    "documents": lambda n: Pattern.documents([2048] * (n // 2048)),
    "dilated": lambda n: Dilated(n, [(2048, 1), (4096, 2), (8192, 4)]),
}


def timed(function, seconds, sensors):
    """Milliseconds per call, clock, power."""
    for _ in range(2):
        function()
    finish("warming up")
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    function()
    end.record()
    end.synchronize()
    count = max(3, int(seconds * 1000 / begin.elapsed_time(end)) + 1)
    start = time.time()
    begin.record()
    for _ in range(count):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count, *sensors.mean(start, time.time())


class Race:
    """One case at one size: cuDNN and variants of one dim and dtype."""

    def __init__(self, case, n, batch, kernels, options, hops=1, jump=False):
        dim, dtype = kernels[0].shape.dim, kernels[0].dtype
        heads = 2048 // dim
        self.pattern = CASES[case](n)
        self.q, self.k, self.v = (torch.randn(batch, heads, n, dim, device="cuda", dtype=dtype)
                                  for _ in range(3))
        if jump:
            self.q[..., 0] = 64
            self.k[:, :, :16] = 0
            self.k[:, :, :16, 0] = 10 * dim ** 0.5
        self.out = torch.empty_like(self.q)
        self.lse = torch.empty(self.q.shape[:3], device="cuda")
        self.case, self.heads = case, heads
        self.flops = 4 * batch * heads * dim * self.pattern.pairs()
        self.cudnn_flops = (self.flops if case in ("full", "causal")
                            else 4 * batch * heads * dim * n * n)
        self.flex = options.pop("flex")
        self.terms = options.pop("terms")
        if self.flex:
            self.cudnn_flops = self.flops
        if kernels[0].backward_kernel:
            self.prepare_backward()
        elif self.flex:
            attend = table.flex_attention(self.case, n)
            self.cudnn = lambda: attend(self.q, self.k, self.v)
        self.runners = {}
        for kernel in kernels:
            make = self.runner if hops == 1 else self.hopper
            self.runners[kernel.name] = make(kernel, options, hops)

    def add_library(self, library):
        """On memory of its own: [batch, position, head, dim]."""
        batch, heads, n, dim = self.q.shape
        dtype = "f16" if self.q.dtype == torch.float16 else "bf16"
        self.problem = table.Problem(library, table.PATTERNS[self.case](n), dtype, n, heads, dim,
                                     batch=batch, backward=False)
        assert abs(self.problem.flops(False) / self.flops - 1) < 1e-6
        self.runners["library"] = self.problem.attend

    def hopper(self, kernel, options, hops):
        n = self.k.shape[2] // hops
        state = (*(torch.empty(self.q.shape[:3], device="cuda") for _ in range(2)),
                 torch.empty(self.q.shape, device="cuda"))
        parts = []
        for i in range(hops):
            flags = (FIRST if i == 0 else 0) | (LAST if i == hops - 1 else 0)
            k, v = (x[:, :, i * n:(i + 1) * n].contiguous() for x in (self.k, self.v))
            pattern = Pattern.band(self.q.shape[2], n, flags=flags)
            parts.append((kernel.schedule(pattern, self.q, k, **options), k, v))

        def run():
            for schedule, k, v in parts:
                kernel.forward(schedule, self.q, k, v, self.out, self.lse, state)
        return run

    def runner(self, kernel, options, _):
        if kernel.backward_kernel:
            return self.backward_runner(kernel, options)
        schedule = kernel.schedule(self.pattern, self.q, self.k, **options)
        terms = self.some_terms(kernel)
        return lambda: kernel.forward(schedule, self.q, self.k, self.v, self.out, self.lse,
                                      terms=terms)

    def some_terms(self, kernel):
        """Those of --terms that the kernel has."""
        heads, n = self.heads, self.q.shape[2]
        given = {"softcap": (1, lambda: dict(softcap=30.0)),
                 "slopes": (2, lambda: dict(slopes=2.0 ** -torch.linspace(1, 8, heads).cuda())),
                 "bias": (4, lambda: dict(bias=torch.randn(1, 1, n, n, device="cuda")
                                          .expand(1, heads, n, n))),
                 "dropout": (8, lambda: dict(drop=0.1, seed=7)),
                 "sinks": (16, lambda: dict(sinks=torch.zeros(heads, device="cuda")))}
        chosen = {}
        for name in self.terms:
            if kernel.terms & given[name][0]:
                chosen |= given[name][1]()
        return Terms.of(**chosen)

    def backward_runner(self, kernel, options):
        padded = kernel.padded(self.q.shape[2])
        schedule = kernel.schedule(self.pattern, self.q, self.k, padded=padded, **options)
        terms = self.some_terms(kernel)
        return lambda: kernel.backward(schedule, self.q, self.k, self.v, self.out, self.dout,
                                       self.lse, *self.gradients, terms=terms)

    def prepare_backward(self):
        """out and lse by cuDNN, and its backward pass as the rival."""
        causal = self.case == "causal"
        result = torch.ops.aten._scaled_dot_product_cudnn_attention(
            self.q, self.k, self.v, None, True, 0.0, causal, False)
        self.out, self.lse = result[0], result[1].reshape(self.q.shape[:3]).float().contiguous()
        self.dout = torch.randn_like(self.q)
        self.gradients = [torch.empty_like(x) for x in (self.q, self.k, self.v)]
        inputs = [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]
        with torch.enable_grad():
            out = (table.flex_attention(self.case, self.q.shape[2])(*inputs) if self.flex
                   else F.scaled_dot_product_attention(*inputs, is_causal=causal))
        self.cudnn = lambda: torch.autograd.grad(out, inputs, self.dout, retain_graph=True)
        self.flops, self.cudnn_flops = 2.5 * self.flops, 2.5 * self.cudnn_flops

    def cudnn(self):
        F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.case == "causal")

    def run(self, seconds, rounds, sensors):
        """Per name: lists of (ms, clock, power)."""
        times = {name: [] for name in ["cudnn", *self.runners]}
        for _ in range(3):
            self.cudnn()  # compiles
        timed(next(iter(self.runners.values())), 1, sensors)  # up to the power limit
        for i in range(rounds):
            times["cudnn"].append(timed(self.cudnn, seconds, sensors))
            for name in list(self.runners)[::-1 if i % 2 else 1]:
                times[name].append(timed(self.runners[name], seconds, sensors))
        return times


def report(race, times, log):
    for name, rows in times.items():
        shown = "flex" if race.flex and name == "cudnn" else name
        flops = race.cudnn_flops if name == "cudnn" else race.flops
        per_flop = [c[0] / race.cudnn_flops / (x[0] / flops) for c, x in zip(times["cudnn"], rows)]
        mean = lambda i: sum(x[i] for x in rows) / len(rows)
        star = "*" if race.cudnn_flops != race.flops else ""
        row = dict(case=race.case, n=race.q.shape[2], dim=race.q.shape[3], name=shown,
                   tflops=round(flops / mean(0) / 1e9, 1),
                   ratio=round(sum(per_flop) / len(rows), 4),
                   least=round(min(per_flop), 4), most=round(max(per_flop), 4), ms=mean(0),
                   mhz=round(mean(1)), watts=round(mean(2)))
        log.write(json.dumps(row) + "\n")
        print(f"{race.case:9s} n {row['n']:6d} d {row['dim']:3d} {shown:20s} {row['tflops']:6.1f} "
              f"TFLOP/s  {row['ratio']:.3f}{star} ({row['least']:.3f}..{row['most']:.3f})  "
              f"{row['mhz']} MHz {row['watts']} W", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="full,causal")
    parser.add_argument("--n", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--section", type=int, default=4)
    parser.add_argument("--item-cost", type=int, default=2)
    for switch in ("no-split", "rotate", "jump", "flex"):
        parser.add_argument("--" + switch, action="store_true")
    parser.add_argument("--spread", type=int, default=0)
    parser.add_argument("--hops", type=int, default=1)
    parser.add_argument("--terms", default="")
    parser.add_argument("--library", default="")
    given = parser.parse_args()
    options = dict(section=given.section, item_cost=given.item_cost, split=not given.no_split,
                   rotate=given.rotate, spread=given.spread, flex=given.flex,
                   terms=[x for x in given.terms.split(",") if x])
    torch.manual_seed(1)
    kernels, sensors = [Kernel(given.folder, name) for name in given.names], Sensors()
    if given.library and (given.jump or options["terms"] or given.hops > 1):
        parser.error("--library is without --jump, --terms and --hops")
    library = given.library and table.load(given.library)
    with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION), \
            open(f"{given.folder}/measured.jsonl", "a") as log:
        kind_of = lambda k: (k.backward_kernel, k.shape.dim, k.dtype == torch.float16)
        for kind in sorted({kind_of(k) for k in kernels}):
            some = [k for k in kernels if kind_of(k) == kind]
            for case in given.cases.split(","):
                race = Race(case, given.n, given.batch, some, dict(options), given.hops, given.jump)
                if library and not kind[0]:
                    race.add_library(library)
                report(race, race.run(given.seconds, given.rounds, sensors), log)
    sensors.stop()


if __name__ == "__main__":
    main()
