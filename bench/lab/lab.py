# SPDX-License-Identifier: Apache-2.0
"""Variants of a kernel as Python objects: libraries built by build.sh, called through ctypes.

Tensors are torch tensors [batch, heads, rows, dim] on the GPU. A Pattern is what the kernels take:
rows of queries and their key runs (src/backend/cuda/sm90/sm90.h)."""
import ctypes
import math
import os
import subprocess
import threading
import time

import numpy as np
import torch

FAR = 1 << 29
FIRST, LAST = 1, 2
STAIR_SHIFT, RUN_STAIR_SHIFT, VIEW_SHIFT, RUN_VIEW_SHIFT = 8, 13, 24, 27

ROWS = np.dtype([("batch", "i4"), ("head", "u2"), ("kv_head", "u2"), ("q_row", "i4"),
                 ("q_count", "i4"), ("first_run", "i4"), ("run_count", "i4"), ("flags", "i4")])
RUN = np.dtype([("row", "i4"), ("count", "i4"), ("lo", "i4"), ("hi", "i4")])
ITEM_BYTES, MERGE_BYTES = 32, 28

c_int, c_int64, c_void_p = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("rows", c_int), ("heads", c_int), ("batch", c_int),
                ("row_stride", c_int64), ("head_stride", c_int64), ("batch_stride", c_int64)]

    @staticmethod
    def of(x):
        return Tensor(x.data_ptr(), x.shape[2], x.shape[1], x.shape[0], x.stride(2), x.stride(1),
                      x.stride(0))


class Column(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("row_stride", c_int64), ("head_stride", c_int64),
                ("batch_stride", c_int64)]

    @staticmethod
    def of(x):
        if x is None:
            return Column()
        return Column(x.data_ptr(), x.stride(2), x.stride(1), x.stride(0))


class Terms(ctypes.Structure):
    """struct ra__sm90_terms. of(): from tensors; keeps them alive."""
    _fields_ = [(x, c_int) for x in ("q_pos", "q_step", "k_pos", "k_step")] + [
        ("softcap", ctypes.c_float), ("slopes", c_void_p), ("sinks", c_void_p), ("bias", c_void_p),
        ("bias_bytes", c_int), ("bias_row_stride", c_int64), ("bias_head_stride", c_int64),
        ("bias_batch_stride", c_int64), ("drop_below", ctypes.c_uint64),
        ("seed", ctypes.c_uint64), ("kept_scale", ctypes.c_float)]

    @staticmethod
    def of(softcap=0.0, slopes=None, sinks=None, bias=None, drop=0.0, seed=0, q_pos=0, q_step=1,
           k_pos=0, k_step=1):
        """bias: [batch, heads, rows, positions], f32 or uint8."""
        data = lambda x: None if x is None else x.data_ptr()
        strides = (0, 0, 0) if bias is None else (bias.stride(2), bias.stride(1), bias.stride(0))
        terms = Terms(q_pos, q_step, k_pos, k_step, softcap, data(slopes), data(sinks), data(bias),
                      0 if bias is None else bias.element_size(), *strides,
                      math.ceil(drop * 2 ** 32), seed, 1 / (1 - drop))
        terms.kept = (slopes, sinks, bias)
        return terms

    def bits(self):
        return ((1 if self.softcap else 0) | (2 if self.slopes else 0) | (4 if self.bias else 0) |
                (8 if self.drop_below else 0) | (16 if self.sinks else 0))


class View(ctypes.Structure):
    _fields_ = [("first", c_int), ("step", c_int)]


class Needs(ctypes.Structure):
    _fields_ = [(x, c_int) for x in ("dim", "dtype", "rows", "terms", "views",
                                     "deterministic")]


class Forward(ctypes.Structure):
    _fields_ = [("q", Tensor), ("k", Tensor), ("v", Tensor), ("out", Tensor), ("lse", Column),
                ("m", Column), ("l", Column), ("acc", Column), ("scale", ctypes.c_float),
                ("items", c_void_p), ("runs", c_void_p), ("merges", c_void_p),
                ("queues", c_void_p), ("clusters", c_int), ("merge_count", c_int),
                ("parts", c_void_p), ("failed", c_void_p), ("hides", c_int), ("crowded", c_int),
                ("terms", Terms), ("views", View * 8)]


class Backward(ctypes.Structure):
    _fields_ = [(x, Tensor) for x in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")] + [
        ("lse", Column), ("scale", ctypes.c_float), ("items", c_void_p), ("runs", c_void_p),
        ("merges", c_void_p), ("queues", c_void_p), ("clusters", c_int), ("merge_count", c_int),
        ("padded_rows", c_int), ("lse2", c_void_p), ("delta", c_void_p), ("dq_sum", c_void_p),
        ("parts", c_void_p), ("ranks", c_void_p), ("rank_starts", c_void_p), ("turns", c_void_p),
        ("terms", Terms), ("dk_sum", Column), ("dv_sum", Column), ("flags", c_int),
        ("views", View * 8), ("view_starts", c_int * 8), ("fresh", c_int)]


class Shape(ctypes.Structure):
    _fields_ = [(x, c_int) for x in ("dim", "tile_rows", "block_keys", "cluster_ctas", "threads",
                                     "shared_bytes", "part_floats", "warps", "walks")]


class ScheduleInput(ctypes.Structure):
    _fields_ = [("rows", c_void_p), ("runs", c_void_p)] + [(x, c_int) for x in (
        "row_count", "tile_rows", "block_keys", "clusters", "section_heads", "item_cost", "split",
        "spread", "rotate", "views")]


class ScheduleOutput(ctypes.Structure):
    _fields_ = [("items", c_void_p), ("runs", c_void_p), ("merges", c_void_p),
                ("queues", c_void_p)] + [(x, c_int) for x in (
                    "item_count", "run_count", "merge_count", "part_count", "clusters", "hides")]


class OrderInput(ctypes.Structure):
    _fields_ = [("schedule", c_void_p)] + [(x, c_int) for x in (
        "batch", "heads", "padded_rows", "block_queries", "item_cost", "walks", "views")]


class OrderOutput(ctypes.Structure):
    _fields_ = [("ranks", c_void_p), ("starts", c_void_p), ("complete", c_int)]


def copied(pointer, size):
    """Bytes of host memory, on the GPU."""
    if not size:
        return None
    return torch.frombuffer(bytearray(ctypes.string_at(pointer, size)), dtype=torch.uint8).cuda()


class Pattern:
    """Rows of one head, repeated for all heads and batch items. rows: (q_row, q_count, [runs]).
    stair: queries count in steps of 2^stair."""

    def __init__(self, rows, flags=FIRST | LAST, stair=0):
        self.rows, self.flags, self.stair = rows, flags | stair << STAIR_SHIFT, stair
        self.views = []

    @staticmethod
    def band(n, keys, lo=-FAR, hi=FAR, **flags):
        return Pattern([(0, n, [(0, keys, lo, hi)])], **flags)

    @staticmethod
    def blocks(n, reach):
        """Blocks of 64 queries that see `reach` blocks of 64 keys before and after their own."""
        return Pattern([(0, n, [(0, n, -64 * reach, 64 * reach + 63)])], stair=6)

    @staticmethod
    def documents(lengths, causal=False):
        starts = np.cumsum([0] + list(lengths))
        return Pattern([(int(s), n, [(int(s), n, -FAR, 0 if causal else FAR)])
                        for s, n in zip(starts, lengths)])

    def pairs(self):
        """Query-key pairs of one head."""
        total = 0
        for _, count, runs in self.rows:
            i = np.arange(count, dtype=np.int64) >> self.stair << self.stair
            for _, keys, lo, hi in runs:
                total += int(np.maximum(0, np.minimum(keys - 1, hi + i) - np.maximum(0, lo + i) + 1)
                             .sum())
        return total

    def mask(self, n, keys):
        """Which key each query sees, as a dense matrix."""
        seen = torch.zeros(n, keys, dtype=torch.bool)
        for q_row, count, runs in self.rows:
            i = (torch.arange(count) >> self.stair << self.stair)[:, None]
            for row, k, lo, hi in runs:
                j = torch.arange(k)[None]
                seen[q_row:q_row + count, row:row + k] |= (j >= lo + i) & (j <= hi + i)
        return seen

    def arrays(self, batch, heads, kv_heads):
        runs = np.array([run for _, _, rs in self.rows for run in rs], dtype=RUN)
        rows = np.zeros(batch * heads * len(self.rows), dtype=ROWS)
        at = 0
        for b in range(batch):
            for h in range(heads):
                first = 0
                for q_row, count, rs in self.rows:
                    rows[at] = (b, h, h * kv_heads // heads, q_row, count, first, len(rs),
                                self.flags)
                    first += len(rs)
                    at += 1
        return rows, runs


    def backward_arrays(self, batch, heads, kv_heads, padded):
        """The same with sides changed: rows of keys, runs of the queries of all heads of a group
        that see them. Keys come in stretches that are in the same runs from end to end."""
        edges = sorted({x for _, _, rs in self.rows for row, n, _, _ in rs for x in (row, row + n)})
        group = heads // kv_heads
        rows, runs = [], []
        for first, end in zip(edges, edges[1:]):
            at = len(runs)
            for h in range(group):
                for q_row, count, rs in self.rows:
                    for row, n, lo, hi in rs:
                        if row <= first and end <= row + n:
                            # query i sees key j: lo + i <= j <= hi + i, so j - hi <= i <= j - lo
                            shift = first - row
                            runs.append((h * padded + q_row, count,
                                         -FAR if hi >= FAR else shift - hi,
                                         FAR if lo <= -FAR else shift - lo))
            rows.append((first, end - first, at, len(runs) - at))
        all_rows = np.zeros(batch * kv_heads * len(rows), dtype=ROWS)
        for i, (b, h, row) in enumerate((b, h, row) for b in range(batch) for h in range(kv_heads)
                                        for row in rows):
            all_rows[i] = (b, h * group, h, *row,
                           self.flags & (FIRST | LAST) | self.stair << RUN_STAIR_SHIFT)
        return all_rows, np.array(runs, dtype=RUN)


class Dilated(Pattern):
    """LongNet: branches (segment, rate); head h selects positions h mod rate of a segment. Keys of
    several branches count as often. Rows are residues modulo the largest rate, a view each."""

    def __init__(self, n, branches):
        super().__init__([])
        self.n, self.branches = n, branches
        self.views = [(first, rate) for _, rate in branches for first in range(rate)]
        assert len(self.views) <= 8

    def head_rows(self, h):
        """(view, q_row, q_count, runs) of one head; runs: (view, row, count)."""
        period = max(rate for _, rate in self.branches)
        segment = max(w for w, _ in self.branches)
        shortest = min(w for w, _ in self.branches)
        for start in range(0, self.n, shortest):
            for residue in range(period):
                runs = [(self.views.index((residue % rate, rate)), start // w * w // rate,
                         w // rate)
                        for w, rate in self.branches if residue % rate == h % rate]
                assert segment % period == 0
                yield (self.views.index((residue, period)), start // period, shortest // period,
                       runs)

    def arrays(self, batch, heads, kv_heads):
        rows, runs = [], []
        for b in range(batch):
            for h in range(heads):
                for view, q_row, count, keys in self.head_rows(h):
                    rows.append((b, h, h * kv_heads // heads, q_row, count, len(runs), len(keys),
                                 self.flags | view << VIEW_SHIFT))
                    runs += [(v << RUN_VIEW_SHIFT | row, n, -FAR, FAR) for v, row, n in keys]
        return np.array(rows, dtype=ROWS), np.array(runs, dtype=RUN)

    def pairs(self):
        """The mean of all heads."""
        period = max(rate for _, rate in self.branches)
        return sum(count * sum(n for _, _, n in keys) for h in range(period)
                   for _, _, count, keys in self.head_rows(h)) // period

    def counts(self, heads):
        """How often each query of each head sees each key."""
        seen = torch.zeros(heads, self.n, self.n)
        i = torch.arange(self.n)
        for h in range(heads):
            for w, rate in self.branches:
                on = i % rate == h % rate
                same = (i[:, None] // w == i[None] // w) & on[:, None] & on[None]
                seen[h] += same
        return seen


class Schedule:
    """A pattern cut into items, on the GPU. padded: of a backward kernel."""

    def __init__(self, kernel, pattern, batch, heads, kv_heads, section=4, item_cost=2, split=True,
                 padded=0, rotate=False, spread=0):
        rows, runs = (pattern.backward_arrays(batch, heads, kv_heads, padded) if padded
                      else pattern.arrays(batch, heads, kv_heads))
        shape = kernel.shape
        given = ScheduleInput(rows.ctypes.data, runs.ctypes.data, len(rows), shape.tile_rows,
                              shape.block_keys, kernel.clusters, section, item_cost, int(split),
                              spread, int(rotate))
        made = ScheduleOutput()
        if kernel.planner.ra__sm90_schedule(ctypes.byref(given), ctypes.byref(made)):
            raise MemoryError("schedule")
        self.items = copied(made.items, made.item_count * ITEM_BYTES)
        self.runs = copied(made.runs, made.run_count * 16)
        self.merges = copied(made.merges, made.merge_count * MERGE_BYTES)
        self.queues = copied(made.queues, (made.clusters + 1) * 4)
        self.clusters, self.merge_count, self.hides = made.clusters, made.merge_count, made.hides
        self.parts = torch.empty(max(1, made.part_count * shape.part_floats), device="cuda")
        self.failed = torch.empty(max(1, made.item_count * shape.warps), dtype=torch.uint8,
                                  device="cuda")
        if padded and "-o" in kernel.name:
            self.order(kernel, made, batch, heads, padded, item_cost)
        kernel.planner.ra__sm90_schedule_clear(ctypes.byref(made))

    ranks = rank_starts = turns = None

    def order(self, kernel, made, batch, heads, padded, item_cost):
        """For deterministic kernels: whose turn it is at each block of dq."""
        block = kernel.shape.block_keys
        given = OrderInput(ctypes.addressof(made), batch, heads, padded, block, item_cost,
                           kernel.shape.walks)
        ordered = OrderOutput()
        if kernel.planner.ra__sm90_order(ctypes.byref(given), ctypes.byref(ordered)):
            raise MemoryError("order")
        self.rank_starts = copied(ordered.starts, (made.clusters + 1) * 8)
        adds = ctypes.cast(ordered.starts, ctypes.POINTER(c_int64))[made.clusters]
        self.ranks = copied(ordered.ranks, max(1, adds) * 4)
        self.turns = torch.empty(2 * batch * heads * padded // block, dtype=torch.int32,
                                 device="cuda")
        kernel.planner.ra__sm90_order_clear(ctypes.byref(ordered))


class Kernel:
    """A variant; or, by the name [f16-]table-DIM, the kernels of forward.cu, and with -backward or
    -backward-o those of backward.cu, through the functions that the project calls."""

    def __init__(self, folder, name):
        self.name = name
        table = "table" in name
        self.library = ctypes.CDLL(f"{folder}/{'table' if table else name}.so")
        self.planner = ctypes.CDLL(f"{folder}/schedule.so")
        self.dtype = torch.float16 if name.startswith("f16") else torch.bfloat16
        self.shape = Shape()
        if table:
            self.from_table(name)
        else:
            self.library.lab_shape(ctypes.byref(self.shape))
            self.clusters = self.library.lab_clusters()
            self.backward_kernel = hasattr(self.library, "lab_backward")
            self.launch = getattr(self.library,
                                  "lab_backward" if self.backward_kernel else "lab_forward")
            self.launch.argtypes = [c_void_p, c_void_p]
            self.views = name.endswith("v")
            self.terms = self.library.lab_terms() if hasattr(self.library, "lab_terms") else 0

    def from_table(self, name):
        self.backward_kernel = "backward" in name
        side = "backward" if self.backward_kernel else "forward"
        self.needs = Needs(int(name.split("table-")[1].split("-")[0]),
                           int(self.dtype == torch.float16), 4096 if "long" in name else 0,
                           31 if "terms" in name else 0, int("views" in name),
                           int(name.endswith("-o")))
        self.views, self.terms = self.needs.views, self.needs.terms
        clusters = c_int()
        error = getattr(self.library, f"ra__sm90_{side}_shape")(
            ctypes.byref(self.needs), ctypes.byref(self.shape), ctypes.byref(clusters))
        if error:
            raise RuntimeError(f"{name}: CUDA error {error}")
        self.clusters = clusters.value
        function = getattr(self.library, f"ra__sm90_{side}_launch")
        function.argtypes = [c_void_p, c_void_p, c_void_p]
        self.launch = lambda args, stream: function(args, ctypes.byref(self.needs), stream)

    def schedule(self, pattern, q, k, **options):
        schedule = Schedule(self, pattern, q.shape[0], q.shape[1], k.shape[1], **options)
        schedule.views = (View * 8)(*(pattern.views or [(0, 1)]))
        return schedule

    def forward(self, schedule, q, k, v, out, lse, state=None, terms=None):
        """Launches. state: (m, l, acc), read or written as the flags of the pattern say."""
        m, l, acc = state or (None, None, None)
        data = lambda x: None if x is None else x.data_ptr()
        self.start(Forward(Tensor.of(q), Tensor.of(k), Tensor.of(v), Tensor.of(out), Column.of(lse),
                           Column.of(m), Column.of(l), Column.of(acc), q.shape[3] ** -0.5,
                           data(schedule.items), data(schedule.runs), data(schedule.merges),
                           data(schedule.queues), schedule.clusters, schedule.merge_count,
                           data(schedule.parts), data(schedule.failed),
                           schedule.hides or bool(terms and terms.bias), 0, terms or Terms(),
                           schedule.views))

    def start(self, args):
        error = self.launch(ctypes.byref(args), torch.cuda.current_stream().cuda_stream)
        if error:
            raise RuntimeError(f"{self.name}: CUDA error {error}")

    def padded(self, rows):
        return -(-rows // self.shape.block_keys) * self.shape.block_keys

    def backward(self, schedule, q, k, v, out, dout, lse, dq, dk, dv, terms=None,
                 flags=FIRST | LAST, sums=(None, None), workspace=None):
        """sums: dk and dv in f32, read or written as the flags of the pattern say. flags: of this
        launch for the queries; launches of a ring share a workspace."""
        padded, heads = self.padded(q.shape[2]), q.shape[0] * q.shape[1]
        if not hasattr(schedule, "sums"):
            schedule.sums = workspace or [torch.empty(heads * padded * x, device="cuda")
                                          for x in (1, 1, q.shape[3])]
        data = lambda x: None if x is None else x.data_ptr()
        self.start(Backward(*(Tensor.of(x) for x in (q, k, v, out, dout, dq, dk, dv)),
                            Column.of(lse), q.shape[3] ** -0.5, data(schedule.items),
                            data(schedule.runs), data(schedule.merges), data(schedule.queues),
                            schedule.clusters, schedule.merge_count, padded,
                            *(data(x) for x in schedule.sums), data(schedule.parts),
                            data(schedule.ranks), data(schedule.rank_starts),
                            data(schedule.turns), terms or Terms(), Column.of(sums[0]),
                            Column.of(sums[1]), flags))


def finish(what, seconds=8):
    """Waits for the GPU; a kernel that hangs ends the process."""
    event, start = torch.cuda.Event(), time.time()
    event.record()
    while not event.query():
        if time.time() - start > seconds:
            print(f"{what}: HANGS", flush=True)
            os._exit(3)
        time.sleep(0.0005)


class Sensors:
    """SM clock and power, 20 times a second."""

    def __init__(self):
        self.rows = []
        self.process = subprocess.Popen(
            "nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits -lms 50"
            .split(), stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.rows.append((time.time(), *[float(x) for x in line.split(",")]))
            except ValueError:
                pass

    def mean(self, start, end):
        rows = [x for x in self.rows if start + 0.1 <= x[0] <= end]
        return tuple(sum(x[i] for x in rows) / len(rows) for i in (1, 2)) if rows else (0, 0)

    def stop(self):
        self.process.terminate()
