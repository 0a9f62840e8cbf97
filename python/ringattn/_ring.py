# SPDX-License-Identifier: Apache-2.0
"""The ranks of a ring that this process has, with the plan of each: what both kinds of tensors, those
of NumPy and those of PyTorch, run on."""
import dataclasses
import signal
import threading
from ctypes import byref

from . import _library as c
from ._errors import AbortedError, ArgumentError, BusyError, PeerError, RingattnError
from ._library import lib
from ._resource import Handle, Resource
from ._setup import Setup

_LONG = 1e9  # FLOPs of a run that Ctrl-C should be able to end


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


def memory_of(plan: Handle) -> MemoryUse:
    memory = c.Memory()
    lib.ra_plan_memory(plan.value, byref(memory))
    return MemoryUse(*(getattr(memory, field.name) for field in dataclasses.fields(MemoryUse)))


def most_memory(every) -> MemoryUse:
    """Of the rank that needs most."""
    return max(every, key=lambda memory: memory.total)


class Ring(Resource):
    """Plans of one problem, one for each rank of this process. One thread at a time. A run that
    fails closes it: the group of its ranks is aborted."""

    def __init__(self, setup: Setup, groups, own_groups=True):
        """groups: handles of the library; destroyed with the ring if it owns them."""
        super().__init__("plan")
        self._setup = setup
        self._plans: list[Handle] = []
        self._groups = list(groups)
        self._own_groups = own_groups
        self._why = "this plan is closed"
        self._is_long = setup.flops() >= _LONG
        try:
            for group in self._groups:
                self._plans.append(Handle(
                    lambda out, group=group: lib.ra_plan_create(group, byref(setup.problem),
                                                                byref(setup.options), out),
                    lib.ra_plan_destroy))
        except RingattnError:
            self._destroy()
            raise

    def _destroy(self):
        for plan in self._plans:
            plan.close()
        self._plans = []
        groups, self._groups = self._groups, []
        for group in groups if self._own_groups else ():
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
        if not self._is_long:
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
            finally:
                args.progress = c.PROGRESS()

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
