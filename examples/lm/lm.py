# SPDX-License-Identifier: Apache-2.0
"""A byte-level language model whose sequences are sharded over a ring of processes.

    python examples/lm/lm.py train --ranks 4 --pattern causal      one run; losses as JSON lines
    python examples/lm/lm.py compare --out lm.svg                   1, 2 and 4 processes, dense and
                                                                    dilated; table and plot
    python examples/lm/lm.py generate --prompt "A ring "            trains, then writes text

Needs PyTorch, and ringattn (`pip install .`). The text is the documentation of this project, or
--text FILE. Every process has its tokens of the one long sequence of a step: with P processes, 1/P of
all activations. Parameters are small here, and every process has them all.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import ringattn
import ringattn.torch
import torch
import torch.distributed as dist

ROOT = pathlib.Path(__file__).resolve().parents[2]
DILATED = "dilated:256/1,1024/4;causal"


# ---- Model ----

def rotate(x, positions):
    """Rotary embedding by the positions of the tokens, wherever they are: [batch, tokens, heads,
    dim]."""
    half = x.shape[3] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angle = (positions[:, None] * rates)[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], 3)


class Block(torch.nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv = torch.nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x, positions, attend):
        qkv = self.qkv(self.norm1(x)).unflatten(2, (-1, self.dim))
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 2)
        x = x + self.out(attend(rotate(q, positions), rotate(k, positions), v).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Model(torch.nn.Module):
    def __init__(self, width=128, layers=3, heads=4, kv_heads=2):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.blocks = torch.nn.ModuleList([Block(width, heads, kv_heads) for _ in range(layers)])
        self.norm, self.head = torch.nn.RMSNorm(width), torch.nn.Linear(width, 256, bias=False)

    def forward(self, ids, positions, attends):
        """attends: what computes attention, for each block."""
        x = self.embed(ids)
        for block, attend in zip(self.blocks, attends):
            x = block(x, positions, attend)
        return self.head(self.norm(x))


# ---- Data ----

def read_text(path):
    files = [pathlib.Path(path)] if path else sorted(ROOT.glob("docs/*.md")) + [ROOT / "README.md"]
    return torch.tensor(list(b"\n\n".join(file.read_bytes() for file in files)))


def sequences(text, tokens, steps, seed):
    """A place in the text for each step, the same in every process."""
    generator = torch.Generator().manual_seed(seed)
    for start in torch.randint(0, len(text) - tokens - 1, (steps,), generator=generator).tolist():
        yield text[start:start + tokens + 1]


# ---- Training ----

def train(args, rank, ranks):
    """One process of the ring. Returns the model and the loss of each step."""
    torch.manual_seed(args.seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    places = torch.from_numpy(ringattn.positions(args.tokens, ranks, args.partition)[rank])
    group = {"group": True, "partition": args.partition} if ranks > 1 else {}

    def attend(q, k, v):
        return ringattn.torch.attention(q, k, v, args.pattern, **group)

    losses, before = [], memory()
    for sequence in sequences(read_text(args.text), args.tokens, args.steps, args.seed):
        start = time.perf_counter()
        ids, labels = sequence[places][None], sequence[places + 1]
        logits = model(ids, places, [attend] * len(model.blocks))[0]
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / args.tokens
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters() if ranks > 1 else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        total = loss.detach()
        if ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item())
        if rank == 0:
            print(json.dumps({"step": len(losses), "loss": losses[-1],
                              "seconds": time.perf_counter() - start}), flush=True)
    if rank == 0:
        print(json.dumps({"ranks": ranks, "pattern": args.pattern, "tokens": args.tokens,
                          "bytes": memory() - before}), flush=True)
    return model, losses


def memory():
    """The most that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_rank(args):
    """A process that `start` has started."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{args.meet}", rank=rank,
                                world_size=ranks)
    train(args, rank, ranks)
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def start(args, ranks, pattern):
    """Starts the processes of a ring; returns what the first one prints, line by line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "rank", "--meet", f"{folder}/meet", "--pattern",
                   pattern, "--partition", args.partition, "--tokens", str(args.tokens), "--steps",
                   str(args.steps), "--seed", str(args.seed), "--rate", str(args.rate)]
        command += ["--text", args.text] if args.text else []
        processes = []
        for rank in range(ranks):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks),
                               LOCAL_WORLD_SIZE=str(ranks))
            processes.append(subprocess.Popen(command, env=environment, text=True,
                                              stdout=subprocess.PIPE if rank == 0 else None))
        try:
            for line in processes[0].stdout:
                yield json.loads(line)
            ends = [process.wait() for process in processes]
            if any(ends):
                raise SystemExit(f"a ring of {ranks} failed: its processes ended with {ends}")
        finally:
            for process in processes:
                process.kill()


# ---- Commands ----

def command_train(args):
    for row in start(args, args.ranks, args.pattern):
        print(json.dumps(row))


def command_compare(args):
    runs = []
    for pattern in (args.pattern, DILATED):
        for ranks in (1, 2, 4):
            losses, seconds, held = [], [], 0
            for row in start(args, ranks, pattern):
                if "loss" in row:
                    losses.append(row["loss"])
                    seconds.append(row["seconds"])
                    print(f"\r{pattern} on {ranks}: step {len(losses)} of {args.steps}, loss "
                          f"{losses[-1]:.4f} ", end="", file=sys.stderr)
                held = row.get("bytes", held)
            runs.append({"pattern": pattern, "ranks": ranks, "losses": losses, "bytes": held,
                         "seconds": sorted(seconds)[len(seconds) // 2]})
    print("\r" + " " * 79, end="\r", file=sys.stderr)
    print(f"{'pattern':28} processes   loss    farthest from 1   MiB of a process   s per step")
    worst = 0.0
    for run in runs:
        alone = next(r for r in runs if r["pattern"] == run["pattern"] and r["ranks"] == 1)
        far = max(abs(a - b) for a, b in zip(run["losses"], alone["losses"]))
        worst = max(worst, far)
        print(f"{run['pattern']:28} {run['ranks']:9}   {run['losses'][-1]:.4f}   {far:15.1e}   "
              f"{run['bytes'] / 2 ** 20:16.0f}   {run['seconds']:10.2f}")
    pathlib.Path(args.out).write_text(plot(runs))
    print(f"the plot is in {args.out}")
    if worst > 1e-3:
        raise SystemExit(f"losses differ by {worst:.1e}; at most 1e-3 was expected")


def command_generate(args):
    model, _ = train(args, 0, 1)
    caches = [ringattn.Cache(args.tokens, 4, 32, kv_heads=2, pattern=args.pattern)
              for _ in model.blocks]
    attends = [lambda q, k, v, cache=cache: torch.from_numpy(
        cache.step(*(x.detach().numpy() for x in (q, k, v)))) for cache in caches]
    ids = torch.tensor(list(args.prompt.encode()))
    torch.manual_seed(args.seed)
    print(args.prompt, end="", flush=True)
    with torch.no_grad():
        while caches[0].length + len(ids) <= args.tokens and args.bytes > 0:
            positions = torch.arange(len(ids)) + caches[0].length
            logits = model(ids[None], positions, attends)[0, -1]
            ids = torch.multinomial((logits / args.temperature).softmax(0), 1)
            print(bytes(ids.tolist()).decode("utf-8", "replace"), end="", flush=True)
            args.bytes -= 1
    print()


# ---- Plot ----

COLOURS = {1: "#1b6ca8", 2: "#d9822b", 4: "#2e8b57"}


def plot(runs):
    """Loss against step, as an SVG. Curves that agree lie on one another: dashes show them all."""
    width, height, left, top = 720, 360, 60, 30
    steps = max(len(run["losses"]) for run in runs)
    low = min(min(run["losses"]) for run in runs)
    high = max(max(run["losses"]) for run in runs)
    x = lambda step: left + (width - left - 20) * step / max(steps - 1, 1)
    y = lambda loss: top + (height - top - 50) * (high - loss) / max(high - low, 1e-9)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="18">loss (nats per byte) against step</text>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" '
                     f'stroke="#ddd"/><text x="{left - 6}" y="{y(loss) + 4:.1f}" '
                     f'text-anchor="end">{loss:.2f}</text>')
        step = round((steps - 1) * i / 4)
        parts.append(f'<text x="{x(step):.1f}" y="{height - 28}" text-anchor="middle">{step + 1}'
                     '</text>')
    for number, run in enumerate(runs):
        points = " ".join(f"{x(i):.1f},{y(loss):.1f}" for i, loss in enumerate(run["losses"]))
        ranks = run["ranks"]
        dashes = {1: "none", 2: "8 6", 4: "2 5"}[ranks]
        name = "dense" if run["pattern"] == runs[0]["pattern"] else "dilated"
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[ranks]}" '
                     f'stroke-width="{2 if ranks == 1 else 2.4}" stroke-dasharray="{dashes}"/>')
        at = left + 110 * number
        parts.append(f'<line x1="{at}" x2="{at + 24}" y1="{height - 12}" y2="{height - 12}" '
                     f'stroke="{COLOURS[ranks]}" stroke-width="2.4" stroke-dasharray="{dashes}"/>'
                     f'<text x="{at + 28}" y="{height - 8}">{name}, {ranks}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["train", "compare", "generate", "rank"])
    parser.add_argument("--ranks", type=int, default=1, help="processes of the ring (1)")
    parser.add_argument("--pattern", default="causal", help='as everywhere in ringattn ("causal")')
    parser.add_argument("--partition", default="zigzag", help="of the tokens (zigzag)")
    parser.add_argument("--tokens", type=int, default=2048, help="of a sequence (2048)")
    parser.add_argument("--steps", type=int, default=100, help="of training (100)")
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning (0.002)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", help="a file to train on (the documentation of this project)")
    parser.add_argument("--out", default="lm.svg", help="of compare: the plot (lm.svg)")
    parser.add_argument("--prompt", default="A ring ", help="of generate")
    parser.add_argument("--bytes", type=int, default=300, help="of generate: how many (300)")
    parser.add_argument("--temperature", type=float, default=0.6, help="of generate (0.6)")
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    args = parser.parse_args()
    {"train": command_train, "compare": command_compare, "generate": command_generate,
     "rank": run_rank}[args.command](args)


if __name__ == "__main__":
    main()
