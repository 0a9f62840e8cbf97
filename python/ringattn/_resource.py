# SPDX-License-Identifier: Apache-2.0
"""Things of the C library that Python objects hold: whose they are, and when they end."""
import ctypes
import os
import threading

from ._errors import ArgumentError, BusyError


class Owned:
    """Something that belongs to the process that made it: after fork() the child must neither use
    nor destroy it."""

    def __init__(self):
        self._process = os.getpid()

    def is_ours(self) -> bool:
        return getattr(self, "_process", None) == os.getpid()

    def must_be_ours(self):
        if not self.is_ours():
            raise ArgumentError("this object was made before fork(); make a new one")


class Handle(Owned):
    """A handle of the library, destroyed with this object."""

    def __init__(self, make, destroy):
        super().__init__()
        self.value = ctypes.c_void_p()
        self._destroy = destroy
        make(ctypes.byref(self.value))

    def close(self):
        if self.value and self.is_ours():
            self._destroy(self.value)
        self.value = ctypes.c_void_p()

    def __del__(self):
        if getattr(self, "value", None):
            self.close()


class Turn:
    """`with` it, a thread is alone; a second one gets BusyError."""

    def __init__(self, name: str):
        self._name = name
        self._lock = threading.Lock()

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            raise BusyError(f"another thread is using this {self._name}")

    def __exit__(self, *_):
        self._lock.release()


class Resource(Owned):
    """What one thread at a time uses (`_turn`), and what is closed: by `close()`, by `with`, or
    with the object. A subclass has `_destroy`, which may be called again."""

    def __init__(self, name: str):
        super().__init__()
        self._turn = Turn(name)

    def _destroy(self):
        raise NotImplementedError

    def close(self):
        """Frees threads and memory. What is closed cannot run, and what runs is not closed."""
        if self.is_ours():
            with self._turn:
                self._destroy()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if self.is_ours():
            self._destroy()
