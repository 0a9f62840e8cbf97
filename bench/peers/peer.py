# SPDX-License-Identifier: Apache-2.0
"""The half of a rival that is the same for all written in Python; peer.h explains the conversation.

A rival calls serve(name, version, open_job). open_job(case) returns an object with `detail`, `result` (the
dtype of its rows), run() and rows(which, positions) -> bytes of [position, head, dim]; it raises Refused
for what the rival cannot do.
"""
import json
import os
import sys
import time

HEADER = 128  # bytes before the data in the files of `tensors`


class Refused(Exception):
    pass


class Case:
    def __init__(self, words):
        self.tokens, self.heads, self.dim = (int(word) for word in words[:3])
        self.dtype, self.pattern, direction, self.folder = words[3:]
        self.causal = self.pattern == "causal"
        self.backward = direction == "backward"

    def load(self, name):
        """The bytes of a tensor [position, head, dim] in the dtype of the case."""
        with open(os.path.join(self.folder, f"{name}.{self.dtype}.npy"), "rb") as file:
            file.seek(HEADER)
            return bytearray(file.read())


def _seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fastest(candidates):
    """The one of several ways to compute the same that takes least, with its output; `candidates` maps a
    name to a function. A way that fails is no way; if none is left, the last failure is the reason."""
    best, failure = None, None
    for name, run in candidates.items():
        try:
            run()
            seconds = min(_seconds(run) for _ in range(3))
        except Exception as error:  # whatever the library throws for what it cannot do
            failure = error
            continue
        if best is None or seconds < best[0]:
            best = (seconds, name, run)
    if best is None:
        raise Refused(" ".join(str(failure).split())[:300])
    return best[1], best[2]


def absent(name, why):
    print(json.dumps({"absent": f"{name}: {why}"}), flush=True)
    sys.exit(0)


def threads():
    return int(sys.argv[1])


def _answer(job, words):
    if words[0] == "run":
        count = int(words[1])
        start = time.perf_counter()
        for _ in range(count):
            job.run()
        return {"seconds": (time.perf_counter() - start) / count}
    if words[0] == "rows":
        positions = [int(word) for word in words[1:]]
        return {"rows": b"".join(job.rows(which, positions) for which in range(job.outputs)).hex()}
    raise Refused("not understood: " + " ".join(words))


def serve(name, version, open_job):
    print(json.dumps({"peer": name, "version": version}), flush=True)
    job = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "open":
                case = Case(line.rstrip("\n").split(" ", 7)[1:])
                job = open_job(case)
                job.outputs = 3 if case.backward else 1
                answer = {"ready": job.detail, "result": job.result}
            elif words[0] == "close":
                job = None
                answer = {"closed": True}
            else:
                answer = _answer(job, words)
        except Refused as refusal:
            answer = {"error": str(refusal)}
        except Exception as error:  # a rival that fails is reported, not fatal
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)
