# SPDX-License-Identifier: Apache-2.0
"""A plan: one problem on a ring of ranks, made once and run as often as wanted.

Arrays are in global order. On a ring their rows are put into the order of the shards, ranks run on
threads of their own, and results are put back.
"""
import dataclasses
import itertools
import signal
import threading
from ctypes import byref, c_void_p
from typing import Any, NamedTuple

import numpy

from . import _library as c
from ._arrays import address, as_array, dtype_of, floats, readable
from ._errors import AbortedError, ArgumentError, BusyError, PeerError, RingattnError
from ._library import lib
from ._resource import Handle, Resource

_LONG = 1e9  # FLOPs of a run that Ctrl-C should be able to end


class Gradients(NamedTuple):
    """What `Plan.gradient` returns. dsinks is None without sinks."""

    dq: numpy.ndarray
    dk: numpy.ndarray
    dv: numpy.ndarray
    dsinks: numpy.ndarray | None


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Of the last run, over all ranks; see ra_stats of ringattn.h."""

    hops: int
    bytes_sent: int
    pairs: int
    flops: float
    seconds: float
    wait_seconds: float


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Bytes of the rank that needs most; see ra_memory of ringattn.h."""

    shard: int
    travel: int
    state: int
    gradient: int
    workspace: int
    bookkeeping: int
    total: int
    device: int


def bytes_of(memory) -> int:
    """A number of bytes: an int, or a text such as "512M" (K, M, G, T are powers of 1024)."""
    if memory is None:
        return 0
    text = str(memory).strip()
    unit = "KMGT".find(text[-1:].upper()) + 1 if text else 0
    try:
        number = float(text[:-1] if unit else text)
    except ValueError:
        number = -1.0
    if not 1 <= number * 1024 ** unit < 2 ** 63:
        raise ArgumentError(f'memory is "{memory}"; a number of bytes, or one with K, M, G or T, is '
                            "expected")
    return int(number * 1024 ** unit)


def memory_of(plan: Handle) -> MemoryUse:
    memory = c.Memory()
    lib.ra_plan_memory(plan.value, byref(memory))
    return MemoryUse(*(getattr(memory, field.name) for field in dataclasses.fields(MemoryUse)))


def most_memory(every) -> MemoryUse:
    """Of the rank that needs most."""
    return max(every, key=lambda memory: memory.total)


class Setup:
    """A problem and the options of its plans, as the C library takes them."""

    def __init__(self, q_shape, k_shape=None, value_dim=None, dtype="float32", pattern="full", *,
                 ring=1, partition=None, strategy=None, order=None, scale=None, softcap=0.0,
                 alibi=None, dropout=0.0, memory=None, kernel=None, threads=None, device=None,
                 backward=False, bias=False, any_order=False, query_offset=0, lengths=None,
                 k_lengths=None, sequences=None):
        k_shape = q_shape if k_shape is None else k_shape
        for shape, name in ((q_shape, "q"), (k_shape, "k")):
            if len(shape) != 4:
                raise ArgumentError(f"{name} has shape {tuple(shape)}; [batch, tokens, heads, dim] "
                                    "is expected")
        self.batch, self.q_len, self.q_heads, self.dim = (int(x) for x in q_shape)
        batch, self.k_len, self.kv_heads, dim = (int(x) for x in k_shape)
        self.value_dim = self.dim if value_dim is None else int(value_dim)
        if (batch, dim) != (self.batch, self.dim):
            raise ArgumentError(f"q is {tuple(q_shape)} and k is {tuple(k_shape)}: batch and dim "
                                "must be the same")
        if min(self.batch, self.q_heads, self.kv_heads, self.dim, self.value_dim) < 1 or \
                min(self.q_len, self.k_len) < 0:
            raise ArgumentError(f"q is {tuple(q_shape)}, k is {tuple(k_shape)}, the value dim is "
                                f"{self.value_dim}: only tokens may be 0")
        self.ring, self.partition = int(ring), partition
        if self.ring < 1:
            raise ArgumentError(f"a ring of {ring} ranks; there must be at least one")
        if scale == 0:
            raise ArgumentError("the scale is 0, which the library takes for 1/sqrt(dim); leave it "
                                "out for that")
        self.dtype = numpy.dtype(_ml_dtype(dtype)).newbyteorder("=")
        self.pattern = Handle(lambda out: lib.ra_pattern_parse(c.text(pattern), out),
                              lib.ra_pattern_destroy)
        self.order = None
        if order is not None:
            self.order = Handle(lambda out: lib.ra_order_parse(c.text(order), self.k_len, out),
                                lib.ra_order_destroy)
        self.alibi = floats(alibi, "alibi", (self.q_heads,))
        self.problem = c.Problem(
            pattern=self.pattern.value, order=self.order.value if self.order else None,
            alibi=address(self.alibi), batch=self.batch, q_len=self.q_len,
            k_len=self.k_len or c.NO_KEYS, dropout=dropout,
            dtype=dtype_of(numpy.empty(0, self.dtype), "dtype"), q_heads=self.q_heads,
            kv_heads=self.kv_heads, dim=self.dim, value_dim=self.value_dim, scale=scale or 0.0,
            softcap=softcap, query_offset=query_offset)
        self.sequences = sequences
        if lengths is not None or k_lengths is not None:
            self.sequences = packed(lengths, k_lengths, self.q_len, self.k_len)
        if self.sequences is not None:
            self.problem.sequences = address(self.sequences)
            self.problem.sequence_count = len(self.sequences)
        self.options = c.PlanOptions(
            strategy=c.text(strategy), partition=c.text(partition), kernel=c.text(kernel),
            memory=bytes_of(memory), backward=bool(backward), bias=bool(bias),
            any_order=bool(any_order))
        self.threads, self.device = int(threads or 0), device

    def _layout(self, of_keys, out):
        length = self.k_len if of_keys else self.q_len
        if self.sequences is None:
            return lib.ra_layout_create(c.text(self.partition), length, self.ring,
                                        self.pattern.value, out)
        starts = self.sequences[1:, 2 if of_keys else 0]
        bounds = numpy.array([0, *starts, length], numpy.int64)
        return lib.ra_layout_create_parts(c.text(self.partition), address(bounds), len(bounds),
                                          self.ring, out)

    def shards(self, of_keys):
        """Which query, or key, is where on the ring, rank after rank (None: all are in their
        places), and where the rows of each rank start, with the end."""
        length = self.k_len if of_keys else self.q_len
        layout = Handle(lambda out: self._layout(of_keys, out), lib.ra_layout_destroy)
        counts = [lib.ra_layout_count(layout.value, rank) for rank in range(self.ring)]
        bounds = [0, *itertools.accumulate(counts)]
        if self.ring == 1 and not self.order:
            return None, bounds
        positions = numpy.arange(length, dtype=numpy.int64)
        if self.order and length == self.k_len:
            positions = _permuted(lib.ra_order_permute, self.order, positions)
        return _permuted(lib.ra_layout_permute, layout, positions), bounds


def packed(lengths, k_lengths, q_len, k_len):
    """Sequences one after the other, as ra_sequence has them: first query, queries, first key,
    keys. k_lengths None: as many keys as queries."""
    if lengths is None:
        raise ArgumentError("k_lengths is given without lengths")
    sides = [_lengths(lengths, "lengths", q_len, "queries"),
             _lengths(lengths if k_lengths is None else k_lengths,
                      "lengths" if k_lengths is None else "k_lengths", k_len, "keys")]
    if len(sides[0]) != len(sides[1]):
        raise ArgumentError(f"there are {len(sides[0])} lengths, but {len(sides[1])} k_lengths")
    columns = [column for side in sides for column in (numpy.cumsum(side) - side, side)]
    return numpy.ascontiguousarray(numpy.stack(columns, axis=1))


def _lengths(given, name, tokens, what):
    array = numpy.asarray(given)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ArgumentError(f"{name} is of shape {array.shape} and dtype {array.dtype.name}; whole "
                            "numbers, one for each sequence, are expected")
    if array.min() < 0 or array.sum() != tokens:
        raise ArgumentError(f"{name} add up to {array.sum()}, with {array.min()} as the smallest; "
                            f"there are {tokens} {what}")
    return array.astype(numpy.int64)


def _ml_dtype(dtype):
    """numpy knows bfloat16 only once ml_dtypes is there."""
    if str(dtype) == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ArgumentError("bfloat16 needs the package ml_dtypes") from error
        return ml_dtypes.bfloat16
    return dtype


def _permuted(function, handle, positions):
    out = numpy.empty_like(positions)
    array = c.Array(address(positions), address(out), 1, positions.itemsize)
    function(handle.value, byref(array), 1)
    return out


class Plan(Resource):
    """A problem on a ring of in-process ranks. Reusable; one thread at a time.

    q_shape, k_shape: [batch, tokens, heads, dim]. Options: ring, partition, strategy, order, scale,
    softcap, alibi, dropout, memory, kernel, threads, device, backward, bias, any_order,
    query_offset, lengths, k_lengths, as docs/PYTHON.md says. A run that fails closes the plan: the group of its ranks is aborted.
    """

    def __init__(self, q_shape, k_shape=None, value_dim=None, dtype="float32", pattern="full",
                 **options):
        super().__init__("plan")
        self._plans: list[Handle] = []
        self._groups = None
        self._why = "this plan is closed"
        self._setup = s = Setup(q_shape, k_shape, value_dim, dtype, pattern, **options)
        self.backward = bool(s.options.backward)
        self._out_shape = (s.batch, s.q_len, s.q_heads, s.value_dim)
        self._in_shapes = ((s.batch, s.q_len, s.q_heads, s.dim),
                           (s.batch, s.k_len, s.kv_heads, s.dim),
                           (s.batch, s.k_len, s.kv_heads, s.value_dim))
        self._q_index, self._q_bounds = s.shards(of_keys=False)
        self._k_index, self._k_bounds = s.shards(of_keys=True)
        group_options = c.GroupOptions(threads=s.threads, device=c.text(s.device))
        groups = (c_void_p * s.ring)()
        lib.ra_group_create_local(s.ring, byref(group_options), groups)
        self._groups = groups
        try:
            for group in groups:
                self._plans.append(Handle(
                    lambda out, group=group: lib.ra_plan_create(group, byref(s.problem),
                                                                byref(s.options), out),
                    lib.ra_plan_destroy))
        except RingattnError:
            self._destroy()
            raise

    def _destroy(self):
        for plan in self._plans:
            plan.close()
        self._plans = []
        groups, self._groups = self._groups, None
        for group in groups or ():
            lib.ra_group_destroy(group)

    # ---- Questions ----

    @property
    def closed(self) -> bool:
        return not self._plans

    def _first(self):
        self.must_be_ours()
        if self.closed:
            raise ArgumentError(self._why)
        return self._plans[0].value

    @property
    def kernel(self) -> str:
        """The kernel that computes, by name."""
        return lib.ra_plan_kernel(self._first()).decode()

    @property
    def strategy(self) -> str:
        """ring, allgather, ... as it was chosen."""
        return lib.ra_plan_strategy(self._first()).decode()

    @property
    def memory(self) -> MemoryUse:
        self._first()
        return most_memory(memory_of(plan) for plan in self._plans)

    @property
    def statistics(self) -> Statistics:
        """Of the last run: sums over the ranks, and the time of the slowest."""
        self._first()
        every = []
        for plan in self._plans:
            stats = c.Stats()
            lib.ra_plan_stats(plan.value, byref(stats))
            every.append(stats)
        total = lambda name: sum(getattr(stats, name) for stats in every)
        most = lambda name: max(getattr(stats, name) for stats in every)
        return Statistics(most("hops"), total("bytes_sent"), total("pairs"), total("flops"),
                          most("seconds"), most("wait_seconds"))

    # ---- Runs ----

    def attend(self, q, k, v, *, bias=None, mask=None, sinks=None, seed=0, return_lse=False):
        """softmax(scale q k^T) v over the pattern: out, or (out, lse) with `return_lse`."""
        s = self._setup
        self._first()
        out = numpy.empty(self._out_shape, s.dtype)
        if bias is None and mask is None and sinks is None and seed == 0:
            lse = self._attend_plainly(q, k, v, out)
            if lse is not None:
                return (out, lse) if return_lse else out
        q, k, v = self._inputs(q, k, v)
        terms = self._terms(bias, mask, sinks, seed)
        keep, calls = [], []
        for rank in range(s.ring):
            rows, keys = self._rows(rank), self._keys(rank)
            lse = numpy.empty((s.batch, rows.stop - rows.start, s.q_heads), numpy.float32)
            args = c.AttendArgs(lse=address(lse), sinks=address(terms.sinks), dropout_seed=seed,
                                bias=terms.of_rows(rows))
            keep.append((args, lse, _set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys]),
                         _set(args, out=out[:, rows])))
            calls.append(args)
        self._run(lib.ra_attend, calls)
        lse = numpy.concatenate([kept[1] for kept in keep], axis=1) if s.ring > 1 else keep[0][1]
        out, lse = _restored(out, self._q_index), _restored(lse, self._q_index)
        return (out, lse) if return_lse else out

    def _attend_plainly(self, q, k, v, out):
        """The short way: one rank, packed arrays, no terms. The lse, or None: not that case."""
        if self._setup.ring > 1 or self._q_index is not None:
            return None
        for x, shape in zip((q, k, v), self._in_shapes):
            if type(x) is not numpy.ndarray or x.shape != shape or x.dtype != self._setup.dtype:
                return None
            if not (x.flags.c_contiguous and x.flags.aligned):
                return None
        lse = numpy.empty(self._out_shape[:3], numpy.float32)
        args = c.AttendArgs(lse=address(lse))
        args.q.data, args.k.data, args.v.data = address(q), address(k), address(v)
        args.out.data = address(out)
        self._run(lib.ra_attend, [args])
        return lse

    def gradient(self, dout, q, k, v, out, lse, *, dlse=None, bias=None, mask=None, sinks=None,
                 seed=0) -> Gradients:
        """dq, dk, dv (and dsinks) for what `attend` returned."""
        s = self._setup
        self._first()
        if not self.backward:
            raise ArgumentError("this plan was made without backward=True")
        q, k, v = self._inputs(q, k, v)
        dout, out = (_taken(_typed(x, name, s.dtype, self._out_shape), self._q_index)
                     for x, name in ((dout, "dout"), (out, "out")))
        lse, dlse = (_taken(floats(x, name, self._out_shape[:3]), self._q_index)
                     for x, name in ((lse, "lse"), (dlse, "dlse")))
        dq, dk, dv = (numpy.empty(x.shape, s.dtype) for x in (q, k, v))
        terms = self._terms(bias, mask, sinks, seed)
        keep, calls = [], []
        for rank in range(s.ring):
            rows, keys = self._rows(rank), self._keys(rank)
            own = [numpy.ascontiguousarray(x[:, rows]) if x is not None else None
                   for x in (lse, dlse)]
            dsinks = None if terms.sinks is None else numpy.zeros(s.q_heads, numpy.float32)
            args = c.GradientArgs(lse=address(own[0]), dlse=address(own[1]),
                                  sinks=address(terms.sinks), dsinks=address(dsinks),
                                  dropout_seed=seed, bias=terms.of_rows(rows))
            keep.append((args, own, dsinks,
                         _set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys], out=out[:, rows],
                              dout=dout[:, rows]),
                         _set(args, dq=dq[:, rows], dk=dk[:, keys], dv=dv[:, keys])))
            calls.append(args)
        self._run(lib.ra_gradient, calls)
        every = [kept[2] for kept in keep]
        return Gradients(_restored(dq, self._q_index), _restored(dk, self._k_index),
                         _restored(dv, self._k_index),
                         None if every[0] is None else numpy.sum(every, axis=0))

    # ---- Inside ----

    def _is_long(self):
        s = self._setup
        return 4.0 * s.batch * s.q_len * s.k_len * s.q_heads * s.dim >= _LONG

    def _rows(self, rank):
        return slice(self._q_bounds[rank], self._q_bounds[rank + 1])

    def _keys(self, rank):
        return slice(self._k_bounds[rank], self._k_bounds[rank + 1])

    def _inputs(self, q, k, v):
        s = self._setup
        return tuple(_taken(_typed(x, name, s.dtype, shape), index)
                     for x, name, shape, index in zip((q, k, v), "qkv", self._in_shapes,
                                                      (self._q_index, *2 * [self._k_index])))

    def _terms(self, bias, mask, sinks, seed):
        s = self._setup
        if bias is not None and mask is not None:
            raise ArgumentError("a bias and a mask at once; add -inf to the bias where the mask "
                                "hides a key")
        if (bias is not None or mask is not None) and not s.options.bias:
            raise ArgumentError("this plan was made without bias=True")
        if not 0 <= seed < 2 ** 64:
            raise ArgumentError(f"the seed is {seed}; it must fit in 64 bits")
        return _Terms(self, bias, mask, sinks)

    def _run(self, function, arguments):
        """Calls the function for each rank's plan and arguments."""
        with self._turn:
            self._first()
            try:
                if len(arguments) == 1:
                    self._run_one(function, self._plans[0].value, arguments[0])
                else:
                    self._run_ranks(function, arguments)
            except RingattnError as error:
                self._fail(error)
                raise

    def _fail(self, error):
        """A run that was refused changes nothing; after any other failure the group is aborted."""
        if isinstance(error, (ArgumentError, BusyError)) and len(self._plans) == 1:
            return
        self._why = f"this plan was closed by a failure: {error}"
        self._destroy()

    def _run_one(self, function, plan, args):
        """A long run asks now and then whether Python was interrupted."""
        if not self._is_long():
            function(plan, byref(args))
            return
        with _Interrupts() as interrupts:
            args.progress = c.PROGRESS(interrupts.ask)
            try:
                function(plan, byref(args))
            except AbortedError as error:
                if not interrupts.raised:
                    raise
                self._fail(error)
                raise interrupts.raised from None

    def _run_ranks(self, function, arguments):
        """Each rank on a thread. What they use is kept until all have ended, whatever happens."""
        errors = [None] * len(arguments)

        def work(rank):
            try:
                function(self._plans[rank].value, byref(arguments[rank]))
            except BaseException as error:
                errors[rank] = error

        threads = []
        interrupted = None
        try:
            with _Interrupts() as interrupts:
                try:
                    for rank in range(len(arguments)):
                        thread = threading.Thread(target=work, args=(rank,), daemon=True)
                        thread.start()
                        threads.append(thread)
                except RuntimeError as error:  # no more threads
                    interrupted = error
                    lib.ra_group_abort(self._groups[0], b"a rank could not start")
                for thread in threads:
                    while thread.is_alive():
                        thread.join(0.1)
                        if interrupts.raised and not interrupted:
                            interrupted = interrupts.raised
                            lib.ra_group_abort(self._groups[0], b"interrupted")
            if interrupted:
                self._fail(interrupted)
                raise interrupted
            # The rank that failed by itself, not those that noticed.
            failed = sorted(filter(None, errors),
                            key=lambda error: isinstance(error, (PeerError, AbortedError)))
            if failed:
                raise failed[0]
        finally:
            del errors, interrupted  # no cycle through tracebacks


class _Interrupts:
    """Ctrl-C while the C library computes: what the handler of the signal raises is kept, and the
    run ended for it. A handler that does not raise lets the run go on. Python runs handlers between
    its own instructions only, which callbacks and short waits have."""

    def __init__(self):
        self.raised = None
        self._before = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number, frame):
        try:
            self._before(number, frame)
        except BaseException as error:
            self.raised = self.raised or error

    def ask(self, _context, _done) -> int:
        return 1 if self.raised else 0

    def __exit__(self, *_):
        if self._before:
            signal.signal(signal.SIGINT, self._before)


class _Terms:
    """Bias or mask, and sinks, of a run."""

    def __init__(self, plan: Plan, bias, mask, sinks):
        s = plan._setup
        self.sinks = floats(sinks, "sinks", (s.q_heads,))
        self.array: Any = None
        if bias is None and mask is None:
            return
        self.is_mask = mask is not None
        given = as_array(mask if self.is_mask else bias, "mask" if self.is_mask else "bias")
        if self.is_mask and given.dtype.kind not in "biu":
            raise ArgumentError(f"the mask is of dtype {given.dtype.name}; bool or an integer is "
                                "expected, where 0 hides a key. Numbers to add are a bias")
        if not self.is_mask and given.dtype.kind in "biu":
            raise ArgumentError(f"the bias is of dtype {given.dtype.name}; floating numbers are "
                                "expected. What hides keys is a mask")
        array = given.astype(bool) if self.is_mask else given
        array = numpy.ascontiguousarray(array, dtype=numpy.uint8 if self.is_mask else numpy.float32)
        array = array.reshape((1,) * (4 - array.ndim) + array.shape)
        if (array.ndim != 4 or array.shape[0] not in (1, s.batch) or
                array.shape[1] not in (1, s.q_heads) or array.shape[2] not in (1, s.q_len) or
                array.shape[3] != s.k_len):
            raise ArgumentError(f"the bias or mask has shape {given.shape}; [1 or {s.batch}, 1 or "
                                f"{s.q_heads}, 1 or {s.q_len}, {s.k_len}] is expected")
        if array.shape[2] != s.q_len:
            array = numpy.repeat(array, s.q_len, axis=2)
        if plan._q_index is not None:
            array = numpy.ascontiguousarray(array[:, :, plan._q_index])
        self.array = array

    def of_rows(self, rows) -> c.Bias:
        if self.array is None:
            return c.Bias()
        x = self.array
        strides = [stride // x.itemsize for stride in x.strides]
        return c.Bias(address(x) + rows.start * x.strides[2], int(self.is_mask), 0,
                      strides[0] if x.shape[0] > 1 else 0, strides[1] if x.shape[1] > 1 else 0,
                      strides[2])


def _typed(x, name, dtype, shape):
    array = as_array(x, name)
    if array.dtype != dtype:
        raise ArgumentError(f"{name} is of dtype {array.dtype.name}, but the plan is for "
                            f"{dtype.name}")
    if array.shape != shape:
        raise ArgumentError(f"{name} has shape {array.shape}, but the plan is for {shape}")
    return array


def _taken(array, index):
    """Rows in the order of the ring."""
    return array if index is None or array is None else array[:, index]


def _restored(array, index):
    if index is None:
        return array
    out = numpy.empty_like(array)
    out[:, index] = array
    return out


def _set(args, **arrays):
    """Sets tensors of a call; returns what must stay alive until it is done."""
    kept = []
    for name, array in arrays.items():
        array, tensor = readable(array)
        setattr(args, name, tensor)
        kept.append(array)
    return kept
