# SPDX-License-Identifier: Apache-2.0
"""One row of the comparison: a problem, all peers interleaved, and the result."""
import math
import statistics
import struct
import time

LEAST_SECONDS = 0.02  # of a sample: shorter runs are repeated
PAUSE = 0.05  # seconds between samples, in which idle threads of the last peer stop spinning
# Largest difference from ours, in units of the largest number of ours: a few roundings of the dtype, as
# rivals also keep weights in it.
TOLERANCE = {"f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}


class Row:
    """A problem, and what came out: rates by peer and round, and notes by peer where there are none."""

    def __init__(self, tokens, dim, dtype, pattern, direction, heads):
        self.tokens, self.dim, self.dtype = tokens, dim, dtype
        self.pattern, self.direction, self.heads = pattern, direction, heads
        self.rates, self.notes, self.errors, self.details = {}, {}, {}, {}

    def fields(self):
        return {
            "tokens": self.tokens, "heads": self.heads, "dim": self.dim, "dtype": self.dtype,
            "pattern": self.pattern, "pass": self.direction,
        }

    def __str__(self):
        return f"{self.tokens} x {self.dim} {self.dtype} {self.pattern} {self.direction}"

    def flops(self):
        """Of useful work: forward 2 GEMMs, backward 5, over the pairs that see each other."""
        pairs = self.tokens * (self.tokens + 1) // 2 if self.pattern == "causal" else self.tokens**2
        return (10.0 if self.direction == "backward" else 4.0) * self.heads * pairs * self.dim

    def ratio(self, name):
        """Ours over the rival, the median of the rounds."""
        return statistics.median(a / b for a, b in zip(self.rates["ours"], self.rates[name]))

    def wrong(self, name):
        return not self.errors.get(name, 0.0) <= TOLERANCE[self.dtype]  # NaN is wrong too

    def best(self):
        """The fastest rival that computes the right thing, or None."""
        right = [name for name in self.rates if name != "ours" and not self.wrong(name)]
        return min(right, key=self.ratio, default=None)


def open_all(row, peers, folder):
    """The peers that can do this row, with the dtype of their results."""
    opened = {}
    for peer in peers:
        answer = peer.ask("open", row.tokens, row.heads, row.dim, row.dtype, row.pattern, row.direction, folder)
        if "error" in answer:
            row.notes[peer.name] = answer["error"]
        else:
            opened[peer] = answer["result"]
            row.details[peer.name] = answer["ready"]
    return opened


def drop(row, opened, peer, note):
    """This peer gets no figure in this row."""
    row.notes[peer.name] = note
    row.rates.pop(peer.name, None)
    del opened[peer]
    peer.ask("close")


def warm_up(row, opened, options):
    """Runs each peer twice. Returns for each how often it must run to fill a sample, and how long that
    takes. A peer whose rounds would fill the time of the row is not run again."""
    repeats = {}
    for peer in list(opened):
        answer = peer.ask("run", 1)
        if answer.get("seconds", 0.0) * options.least_runs < options.seconds_per_row:
            answer = peer.ask("run", 1)
        if "error" in answer:
            drop(row, opened, peer, answer["error"])
            continue
        count = max(1, math.ceil(LEAST_SECONDS / answer["seconds"]))
        repeats[peer] = (count, count * answer["seconds"] + PAUSE)
    return repeats


def fit(row, opened, repeats, options):
    """How many rounds fit the time of a row, up to those asked for. Where the least do not, the slowest
    rival is left out, again and again; 0 where ours alone is too slow."""
    while True:
        rounds = int(options.seconds_per_row / sum(repeats[peer][1] for peer in opened))
        if rounds >= options.least_runs:
            return min(options.runs, rounds)
        slowest = max(opened, key=lambda peer: repeats[peer][1])
        if slowest.name == "ours":
            return 0
        drop(row, opened, slowest, f"too slow: {options.least_runs} rounds do not fit --seconds-per-row")


def decode(text, dtype):
    """The numbers of rows in hexadecimal."""
    data = bytes.fromhex(text)
    if dtype == "f32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if dtype == "f16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    words = struct.unpack(f"<{len(data) // 2}H", data)
    return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(word << 16 for word in words)))


def check(row, opened):
    """Each rival's results at sampled positions against ours."""
    count = min(16, row.tokens)
    positions = sorted({i * (row.tokens - 1) // max(1, count - 1) for i in range(count)})
    results = {}
    for peer, dtype in opened.items():
        answer = peer.ask("rows", *positions)
        results[peer.name] = decode(answer["rows"], dtype) if "rows" in answer else ()
    ours = results.pop("ours")
    largest = max(abs(x) for x in ours)
    for name, theirs in results.items():
        if len(theirs) != len(ours):
            row.errors[name] = math.inf
        else:
            differences = [abs(a - b) for a, b in zip(ours, theirs)]
            row.errors[name] = math.nan if any(map(math.isnan, differences)) else max(differences) / largest


def measure(row, opened, repeats, rounds, record):
    for number in range(rounds):
        for peer in list(opened):
            time.sleep(PAUSE)
            answer = peer.ask("run", repeats[peer][0])
            if "error" in answer:
                drop(row, opened, peer, answer["error"])
                continue
            rate = row.flops() / answer["seconds"] * 1e-9
            row.rates.setdefault(peer.name, []).append(rate)
            record({"peer": peer.name, "round": number, **row.fields(),
                    "seconds": answer["seconds"], "gflops": rate})


def run_row(row, peers, folder, options, record):
    opened = open_all(row, peers, folder)
    repeats = warm_up(row, opened, options)
    rounds = fit(row, opened, repeats, options) if peers[0] in opened else 0
    if rounds:
        check(row, opened)
        measure(row, opened, repeats, rounds, record)
    elif peers[0] in opened:
        row.notes["ours"] = f"too slow: {options.least_runs} rounds do not fit --seconds-per-row"
    if peers[0] not in opened:
        raise RuntimeError(f"ours fails at {row}: {row.notes['ours']}")
    for peer in opened:
        peer.ask("close")
