#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python for tests/bench/rivals.sh that has no PyTorch but answers as bench/rivals/rivals.py would.

It is started as `python -c SCRIPT DEVICE THREADS FILE`. Results are computed by definition; times are made
up: 0.5, 0.1, 0.3, ... seconds of a call, 0.2 of a single shot. LOG gets every command. FAULT is what is wrong,
and where: "dies sustained flash", "hangs prepare cudnn", "refuses prepare flash", "answers single flash",
"wrong prepare cudnn", "nan prepare flash", "timeless single flash", "absent". A fault that ends the process
happens again when it is started again.
"""
import json
import math
import mmap
import os
import struct
import sys
import time

FAULT, LOG = os.environ.get("FAULT", ""), os.environ["LOG"]
SECONDS = (0.5, 0.1, 0.3)


def answer(**members):
    print(json.dumps({"schema": 1, **members}), flush=True)


def log(line):
    with open(LOG, "a") as file:
        print(line, file=file)


class Tensor:
    """Rows by (position, head) in shared memory, f32 or bf16; batch 1."""

    def __init__(self, memory, at, dtype, shape):
        self.memory, self.at, self.shape = memory, at, shape
        self.bytes = 4 if dtype == "f32" else 2
        self.end = at + self.bytes * math.prod(shape)

    def row(self, position, head):
        dim = self.shape[2]
        start = self.at + (position * self.shape[1] + head) * dim * self.bytes
        return slice(start, start + dim * self.bytes)

    def read(self, position, head):
        data = self.memory[self.row(position, head)]
        if self.bytes == 2:
            data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return struct.unpack(f"<{self.shape[2]}f", data)

    def write(self, position, head, numbers):
        data = struct.pack(f"<{len(numbers)}f", *numbers)
        if self.bytes == 2:  # to nearest
            words = struct.unpack(f"<{len(numbers)}I", data)
            data = struct.pack(f"<{len(numbers)}H", *((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words))
        self.memory[self.row(position, head)] = data


class Problem:
    def __init__(self, words, file):
        self.pattern, dtype = words[:2]
        batch, self.queries, keys, self.heads, kv_heads, dim, backward = map(int, words[2:])
        assert batch == 1 and self.queries == keys and self.heads == kv_heads
        memory, at, self.tensors = mmap.mmap(file, 0), 0, {}
        for name in ("q", "k", "v", "dout", "out", "dq", "dk", "dv"):
            if backward or name in ("q", "k", "v", "out"):
                self.tensors[name] = Tensor(memory, at, dtype, (self.queries, self.heads, dim))
                at = self.tensors[name].end

    def weights(self, q, k, i):
        last = i + 1 if self.pattern == "causal" else len(k)
        scores = [dot(q, k[j]) / math.sqrt(len(q)) for j in range(last)]
        most = max(scores)
        powers = [math.exp(score - most) for score in scores]
        return [power / sum(powers) for power in powers]

    def solve(self, backward):
        for h in range(self.heads):
            rows = {name: [tensor.read(i, h) for i in range(self.queries)]
                    for name, tensor in self.tensors.items() if name in ("q", "k", "v", "dout")}
            results = self.gradient(**rows) if backward else self.forward(**rows)
            for name, values in results.items():
                for i, numbers in enumerate(values):
                    self.tensors[name].write(i, h, numbers)

    def forward(self, q, k, v, dout=None):
        return {"out": [mix(self.weights(q[i], k, i), v) for i in range(len(q))]}

    def gradient(self, q, k, v, dout):
        dq, dk, dv = ([[0.0] * len(q[0]) for _ in q] for _ in range(3))
        for i, query in enumerate(q):
            weights = self.weights(query, k, i)
            inner = [dot(dout[i], v[j]) for j in range(len(weights))]
            mean = dot(weights, inner)
            for j, weight in enumerate(weights):
                score = weight * (inner[j] - mean) / math.sqrt(len(query))
                add(dq[i], score, k[j])
                add(dk[j], score, query)
                add(dv[j], weight, dout[i])
        return {"dq": dq, "dk": dk, "dv": dv}


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def mix(weights, rows):
    return [sum(w * row[d] for w, row in zip(weights, rows)) for d in range(len(rows[0]))]


def add(to, factor, row):
    for d, x in enumerate(row):
        to[d] += factor * x


def fail(command):
    """Does what FAULT says of this command; false if nothing."""
    kind, _, place = FAULT.partition(" ")
    if not place or not command.startswith(place):
        return False
    if kind == "dies":
        print("Segmentation fault in libwarp.so", file=sys.stderr, flush=True)
        sys.exit(1)
    if kind == "hangs":
        time.sleep(1000)
    if kind == "answers":
        print("{nonsense", flush=True)
    if kind == "refuses":
        answer(absent="not on a Wednesday")
    if kind == "timeless":
        answer()
    return kind in ("answers", "refuses", "timeless")


def main():
    script, device, threads, file = sys.argv[2:]
    log(f"start {device} {threads} {os.getpid()}")
    with open(LOG + ".script", "w") as copy:
        copy.write(script)
    if FAULT == "absent":
        return answer(absent="no PyTorch (by request)")
    print("a library that talks")
    answer(library="PyTorch 0.0")
    turns, problem = {}, None
    for line in sys.stdin:
        log(line.rstrip("\n"))
        command, *words = line.split()
        if fail(line):
            continue
        if command == "problem":
            problem = Problem(words, int(file))
            answer()
        elif command == "prepare":
            problem.solve(words[1] == "backward")
            kind, _, place = FAULT.partition(" ")
            if kind in ("wrong", "nan") and line.startswith(place):
                out = problem.tensors["dq" if words[1] == "backward" else "out"]
                out.write(0, 0, [x + (1.0 if kind == "wrong" else math.nan) for x in out.read(0, 0)])
            answer()
        elif command == "sustained":
            count = turns[tuple(words[:2])] = turns.get(tuple(words[:2]), 0) + 1
            answer(seconds=SECONDS[(count - 1) % 3], runs=count)
        else:
            answer(seconds=0.2, runs=5)


main()
