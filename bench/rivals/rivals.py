# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention, in a process that takes turns with `ringattn bench case --rivals`.

usage: python3 -c THIS DEVICE THREADS FILE

FILE is the number of an open file that holds q, k, v, dout, out, dq, dk and dv, one after the other, each
packed [batch, position, head, dim]; the first four are read, the others written. Without it (-1) only
the first answer is wanted. Every line of input is a command; every answer is a row of results
(docs/BENCHMARKS.md) that has the few members there are: `absent` is why there is no figure.

    problem PATTERN DTYPE BATCH QUERIES KEYS HEADS KV_HEADS DIM BACKWARD
    prepare RIVAL PASS                makes the calls, compiles them, and writes their results
    sustained RIVAL PASS SECONDS      calls in a row that fill the time
    single RIVAL PASS PAUSE COUNT     calls one by one, each after a pause
"""
import json
import math
import mmap
import statistics
import sys
import time

BATCH_SECONDS = 0.02  # of calls between two looks at the clock, as in rivals.c


def answer(**members):
    """On a line of its own, whatever a library has printed before it."""
    print("\n" + json.dumps({"schema": 1, **members}), flush=True)


def sentence(error):
    name = type(error).__name__
    text = " ".join(str(error).split()) or name
    return (text if name in ("RuntimeError", "Refused") else f"{name}: {text}")[:200]


try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except Exception as error:  # an import may fail in many ways: no module, no shared library
    answer(absent=f"no PyTorch ({sentence(error)})")
    sys.exit(0)


class Refused(Exception):
    """A problem that a rival is not asked to solve."""


def read_mask(pattern, tokens, device):
    """A pattern as FlexAttention wants it: a function of positions; None where all keys are seen."""
    name, *terms = pattern.split(";")
    kind, _, value = name.partition(":")
    rules = []
    if kind == "window":
        left, right = (int(x) for x in (value if "," in value else value + ",0").split(","))
        rules.append(lambda b, h, q, k: (q - k <= left) & (k - q <= right))
    elif kind not in ("full", "causal", "blocks"):
        raise Refused(f"there is no mask for {name}")
    local = [term for term in terms if kind == "blocks" and term.startswith("local=")]
    if kind == "blocks":
        if len(local) != 1:
            raise Refused("blocks have a mask with local alone")
        size, half_width = int(value), int(local[0].partition("=")[2])
        rules.append(lambda b, h, q, k: (q // size - k // size).abs() <= half_width)
    for term in [kind] + [term for term in terms if term not in local]:
        if term == "causal":
            rules.append(lambda b, h, q, k: q >= k)
        elif term.startswith("docs="):
            ends = torch.tensor([int(x) for x in term[len("docs="):].split(",")[1:]], device=device)
            document = torch.searchsorted(ends, torch.arange(tokens, device=device), right=True)
            rules.append(lambda b, h, q, k: document[q] == document[k])
        elif term not in ("full", "window", "blocks"):
            raise Refused(f"there is no mask for {term}")
    return rules


class Problem:
    """Tensors in memory of the device, as PyTorch takes them: [batch, head, position, dim]."""

    DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    NAMES = ("q", "k", "v", "dout", "out", "dq", "dk", "dv")

    def __init__(self, words, file, device):
        self.pattern, dtype = words[0], self.DTYPES[words[1]]
        batch, queries, keys, heads, kv_heads, dim, backward = (int(word) for word in words[2:])
        self.device, self.tokens, self.square = device, keys, queries == keys
        self.grouped = heads != kv_heads
        self.memory, self.shared, at = mmap.mmap(file, 0), {}, 0
        for name in self.NAMES:
            of_keys = name in ("k", "v", "dk", "dv")
            shape = (batch, keys if of_keys else queries, kv_heads if of_keys else heads, dim)
            if backward or name in ("q", "k", "v", "out"):
                flat = torch.frombuffer(self.memory, dtype=dtype, count=math.prod(shape), offset=at)
                self.shared[name] = flat.view(shape)
                at += flat.numel() * flat.element_size()

    def load(self, name, layout):
        """A tensor whose heads or positions come first in memory; results have the same places."""
        tensor = self.shared[name].to(self.device, copy=True).transpose(1, 2)
        return tensor.contiguous() if layout == "heads" else tensor

    def store(self, name, tensor):
        self.shared[name].copy_(tensor.detach().transpose(1, 2))


def sdpa(backend):
    def make(problem):
        if problem.pattern not in ("full", "causal"):
            raise Refused("full and causal only")
        causal = problem.pattern == "causal"
        if causal and not problem.square:
            raise Refused("its causal mask starts at the first key, ours ends at the last")
        options = {"is_causal": causal, **({"enable_gqa": True} if problem.grouped else {})}

        def attend(q, k, v):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return attend

    return make


def flex(problem):
    from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

    if not problem.square:
        raise Refused("as many queries as keys only")
    n, rules = problem.tokens, read_mask(problem.pattern, problem.tokens, problem.device)
    mask = create_block_mask(and_masks(*rules), None, None, n, n, device=problem.device) if rules else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=problem.grouped)


RIVALS = {
    "cudnn": sdpa(SDPBackend.CUDNN_ATTENTION),
    "flash": sdpa(SDPBackend.FLASH_ATTENTION),
    "efficient": sdpa(SDPBackend.EFFICIENT_ATTENTION),
    "flex": flex,
}


def complete():
    """Waits for the device."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def seconds_of(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    complete()
    return time.perf_counter() - start


class Server:
    def __init__(self, device, file):
        self.device, self.file, self.problem = device, file, None
        self.attend, self.calls = {}, {}

    def take_problem(self, *words):
        self.problem = Problem(words, self.file, self.device)
        return {}

    def make_call(self, rival, direction, layout):
        """A call of one pass, which returns its results. Backward is autograd's, on a graph that is made
        here, so that the forward pass is not in its time."""
        attend = self.attend[rival]
        inputs = [self.problem.load(name, layout) for name in ("q", "k", "v")]
        if direction == "forward":
            return torch.no_grad()(lambda: (attend(*inputs),))
        dout = self.problem.load("dout", layout)
        for tensor in inputs:
            tensor.requires_grad_()
        out = attend(*inputs)
        return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)

    def prepare(self, rival, direction):
        """The layout in which this rival is faster; each is compiled and warmed up."""
        if rival not in self.attend:
            self.attend[rival] = RIVALS[rival](self.problem)
        ways = {}
        for layout in ("positions", "heads"):
            call = self.make_call(rival, direction, layout)
            seconds_of(call, 2)
            ways[layout] = (min(seconds_of(call, 1) for _ in range(3)), call)
        call = min(ways.values(), key=lambda way: way[0])[1]
        self.calls[rival, direction] = call
        for name, tensor in zip(("out",) if direction == "forward" else ("dq", "dk", "dv"), call()):
            self.problem.store(name, tensor)
        return {}

    def sustained(self, rival, direction, seconds):
        call = self.calls[rival, direction]
        count = max(1, min(1000, int(BATCH_SECONDS / seconds_of(call, 1))))
        elapsed = calls = 0
        while elapsed < float(seconds) or calls < 2:
            elapsed += seconds_of(call, count)
            calls += count
        return {"seconds": elapsed / calls, "runs": calls}

    def single(self, rival, direction, pause, count):
        call, times = self.calls[rival, direction], []
        for _ in range(int(count)):
            time.sleep(float(pause))
            times.append(seconds_of(call, 1))
        return {"seconds": statistics.median(times), "runs": len(times)}

    def serve(self):
        commands = {"problem": self.take_problem, "prepare": self.prepare, "sustained": self.sustained,
                    "single": self.single}
        for line in sys.stdin:
            word, *words = line.split()
            try:
                members = commands[word](*words)
            except Exception as error:
                if "CUDA error" in str(error):
                    raise  # nothing works on the device after it, until another process begins
                members = {"absent": sentence(error)}
            answer(**members)


def main():
    device, threads, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    library = f"PyTorch {torch.__version__}"
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            answer(absent=f"{library} has no GPU here")
            return
        torch.cuda.set_device(int(device.partition(":")[2] or 0))
        version = torch.backends.cudnn.version() or 0
        library += f", cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}"
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    answer(library=library)
    Server(device, file).serve()


main()
