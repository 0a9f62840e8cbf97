# SPDX-License-Identifier: Apache-2.0
"""A rival in plain Python for tests/bench/peers.sh: the name it is called by decides what is wrong with it.

right.py computes attention by definition; wrong.py adds a little to one number; late.py ends in the middle
of its runs; mute.py never ends one; silent.py is absent; picky.py refuses causal."""
import math
import os
import struct
import sys
import time

import peer

NAME = os.path.basename(sys.argv[0])[: -len(".py")]
if NAME == "silent":
    peer.absent(NAME, "not today")


def attention(case):
    shape = (case.tokens, case.heads, case.dim)
    flat = {name: struct.unpack(f"<{math.prod(shape)}f", case.load(name)) for name in "qkv"}

    def vector(name, position, head):
        start = (position * case.heads + head) * case.dim
        return flat[name][start : start + case.dim]

    def row(i, h):
        keys = range(i + 1 if case.causal else case.tokens)
        scores = [sum(a * b for a, b in zip(vector("q", i, h), vector("k", j, h))) for j in keys]
        weights = [math.exp(score / math.sqrt(case.dim)) for score in scores]
        values = [vector("v", j, h) for j in keys]
        return [sum(w * v[d] for w, v in zip(weights, values)) / sum(weights) for d in range(case.dim)]

    return [[row(i, h) for h in range(case.heads)] for i in range(case.tokens)]


class Job:
    detail, result, runs = "by definition", "f32", 0

    def __init__(self, case):
        if NAME == "picky" and case.causal:
            raise peer.Refused("never causal")
        self.case = case

    def run(self):
        self.runs += 1
        if NAME == "late" and self.runs > 4:
            sys.exit(1)
        while NAME == "mute":
            time.sleep(1)
        self.out = attention(self.case)

    def rows(self, which, positions):
        picked = [x for position in positions for row in self.out[position] for x in row]
        if NAME == "wrong":
            picked[-1] += 0.01
        return struct.pack(f"<{len(picked)}f", *picked)


peer.serve(NAME, "1", Job)
