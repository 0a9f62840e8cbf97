# SPDX-License-Identifier: Apache-2.0
"""Variants of a kernel as Python objects: libraries built by build.sh, called through ctypes.

Tensors are torch tensors [batch, heads, rows, dim] on the GPU. A Pattern is what the kernels take:
rows of queries and their key runs (src/backend/cuda/sm90/sm90.h)."""
import ctypes
import os
import subprocess
import threading
import time

import numpy as np
import torch

FAR = 1 << 29
FIRST, LAST = 1, 2

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


class Forward(ctypes.Structure):
    _fields_ = [("q", Tensor), ("k", Tensor), ("v", Tensor), ("out", Tensor), ("lse", Column),
                ("m", Column), ("l", Column), ("acc", Column), ("scale", ctypes.c_float),
                ("items", c_void_p), ("runs", c_void_p), ("merges", c_void_p),
                ("queues", c_void_p), ("workers", c_int), ("merge_count", c_int),
                ("parts", c_void_p), ("failed", c_void_p)]


class Backward(ctypes.Structure):
    _fields_ = [(x, Tensor) for x in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")] + [
        ("lse", Column), ("scale", ctypes.c_float), ("items", c_void_p), ("runs", c_void_p),
        ("merges", c_void_p), ("queues", c_void_p), ("workers", c_int), ("merge_count", c_int),
        ("padded_rows", c_int), ("lse2", c_void_p), ("delta", c_void_p), ("dq_sum", c_void_p),
        ("parts", c_void_p), ("ranks", c_void_p), ("rank_starts", c_void_p), ("turns", c_void_p)]


class Shape(ctypes.Structure):
    _fields_ = [(x, c_int) for x in ("dim", "tile_rows", "block_keys", "cluster", "threads",
                                     "shared_bytes", "part_floats", "warps")]


class ScheduleInput(ctypes.Structure):
    _fields_ = [("rows", c_void_p), ("runs", c_void_p)] + [(x, c_int) for x in (
        "row_count", "tile_rows", "block_keys", "workers", "section_heads", "item_cost", "split",
        "spread", "rotate")]


class ScheduleOutput(ctypes.Structure):
    _fields_ = [("items", c_void_p), ("runs", c_void_p), ("merges", c_void_p),
                ("queues", c_void_p)] + [(x, c_int) for x in (
                    "item_count", "run_count", "merge_count", "part_count", "workers")]


class OrderInput(ctypes.Structure):
    _fields_ = [("schedule", c_void_p)] + [(x, c_int) for x in (
        "batch", "heads", "padded_rows", "block_queries", "item_cost")]


class OrderOutput(ctypes.Structure):
    _fields_ = [("ranks", c_void_p), ("starts", c_void_p)]


def copied(pointer, size):
    """Bytes of host memory, on the GPU."""
    if not size:
        return None
    return torch.frombuffer(bytearray(ctypes.string_at(pointer, size)), dtype=torch.uint8).cuda()


class Pattern:
    """Rows of one head, repeated for all heads and batch items. rows: (q_row, q_count, [runs]).
    stair: queries count in steps of 2^stair."""

    def __init__(self, rows, flags=FIRST | LAST, stair=0):
        self.rows, self.flags, self.stair = rows, flags | stair << 8, stair

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
            all_rows[i] = (b, h * group, h, *row, FIRST | LAST)
        return all_rows, np.array(runs, dtype=RUN)


class Schedule:
    """A pattern cut into items, on the GPU. padded: of a backward kernel."""

    def __init__(self, kernel, pattern, batch, heads, kv_heads, section=4, item_cost=2, split=True,
                 padded=0, rotate=False, spread=0):
        rows, runs = (pattern.backward_arrays(batch, heads, kv_heads, padded) if padded
                      else pattern.arrays(batch, heads, kv_heads))
        shape = kernel.shape
        given = ScheduleInput(rows.ctypes.data, runs.ctypes.data, len(rows), shape.tile_rows,
                              shape.block_keys, kernel.workers, section, item_cost, int(split),
                              spread, int(rotate))
        made = ScheduleOutput()
        if kernel.planner.ra__sm90_schedule(ctypes.byref(given), ctypes.byref(made)):
            raise MemoryError("schedule")
        self.items = copied(made.items, made.item_count * ITEM_BYTES)
        self.runs = copied(made.runs, made.run_count * 16)
        self.merges = copied(made.merges, made.merge_count * MERGE_BYTES)
        self.queues = copied(made.queues, (made.workers + 1) * 4)
        self.workers, self.merge_count = made.workers, made.merge_count
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
        given = OrderInput(ctypes.addressof(made), batch, heads, padded, block, item_cost)
        ordered = OrderOutput()
        if kernel.planner.ra__sm90_order(ctypes.byref(given), ctypes.byref(ordered)):
            raise MemoryError("order")
        self.rank_starts = copied(ordered.starts, (made.workers + 1) * 8)
        adds = ctypes.cast(ordered.starts, ctypes.POINTER(c_int64))[made.workers]
        self.ranks = copied(ordered.ranks, max(1, adds) * 4)
        self.turns = torch.empty(2 * batch * heads * padded // block, dtype=torch.int32,
                                 device="cuda")
        kernel.planner.ra__sm90_order_clear(ctypes.byref(ordered))


class Kernel:
    def __init__(self, folder, name):
        self.name = name
        self.library = ctypes.CDLL(f"{folder}/{name}.so")
        self.planner = ctypes.CDLL(f"{folder}/schedule.so")
        self.shape = Shape()
        self.library.lab_shape(ctypes.byref(self.shape))
        self.workers = self.library.lab_workers()
        self.backward_kernel = hasattr(self.library, "lab_backward")
        self.launch = getattr(self.library,
                              "lab_backward" if self.backward_kernel else "lab_forward")
        self.launch.argtypes = [c_void_p, c_void_p]
        self.dtype = torch.float16 if name.startswith("f16") else torch.bfloat16
        self.plans = {}

    def schedule(self, pattern, q, k, **options):
        return Schedule(self, pattern, q.shape[0], q.shape[1], k.shape[1], **options)

    def forward(self, schedule, q, k, v, out, lse, state=None):
        """Launches. state: (m, l, acc), read or written as the flags of the pattern say."""
        m, l, acc = state or (None, None, None)
        data = lambda x: None if x is None else x.data_ptr()
        args = Forward(Tensor.of(q), Tensor.of(k), Tensor.of(v), Tensor.of(out), Column.of(lse),
                       Column.of(m), Column.of(l), Column.of(acc), q.shape[3] ** -0.5,
                       data(schedule.items), data(schedule.runs), data(schedule.merges),
                       data(schedule.queues), schedule.workers, schedule.merge_count,
                       data(schedule.parts), data(schedule.failed))
        self.start(args)

    def start(self, args):
        error = self.launch(ctypes.byref(args), torch.cuda.current_stream().cuda_stream)
        if error:
            raise RuntimeError(f"{self.name}: CUDA error {error}")

    def padded(self, rows):
        return -(-rows // self.shape.block_keys) * self.shape.block_keys

    def backward(self, schedule, q, k, v, out, dout, lse, dq, dk, dv):
        padded, heads = self.padded(q.shape[2]), q.shape[0] * q.shape[1]
        if not hasattr(schedule, "sums"):
            schedule.sums = [torch.empty(heads * padded * x, device="cuda")
                             for x in (1, 1, q.shape[3])]
        data = lambda x: None if x is None else x.data_ptr()
        self.start(Backward(*(Tensor.of(x) for x in (q, k, v, out, dout, dq, dk, dv)),
                            Column.of(lse), q.shape[3] ** -0.5, data(schedule.items),
                            data(schedule.runs), data(schedule.merges), data(schedule.queues),
                            schedule.workers, schedule.merge_count, padded,
                            *(data(x) for x in schedule.sums), data(schedule.parts),
                            data(schedule.ranks), data(schedule.rank_starts),
                            data(schedule.turns)))


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
