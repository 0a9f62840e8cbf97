# SPDX-License-Identifier: Apache-2.0
"""Failures of the C library as exceptions. Each has the library's own sentence."""


class RingattnError(Exception):
    """Whatever the library refuses or fails to do. `status` is the name of its status."""

    status = "RA_ERR"


class ArgumentError(RingattnError, ValueError):
    """An argument is wrong."""

    status = "RA_ERR_ARGUMENT"


class UnsupportedError(RingattnError, NotImplementedError):
    """This combination is not supported."""

    status = "RA_ERR_UNSUPPORTED"


class OutOfMemoryError(RingattnError, MemoryError):
    """Memory could not be allocated."""

    status = "RA_ERR_MEMORY"


class BudgetError(RingattnError, MemoryError):
    """The memory budget is too small."""

    status = "RA_ERR_BUDGET"


class MismatchError(RingattnError, ValueError):
    """The ranks disagree about the problem."""

    status = "RA_ERR_MISMATCH"


class PeerTimeoutError(RingattnError, TimeoutError):
    """A peer sent no heartbeat in time."""

    status = "RA_ERR_TIMEOUT"


class PeerError(RingattnError, ConnectionError):
    """A peer failed."""

    status = "RA_ERR_PEER"


class AbortedError(RingattnError, RuntimeError):
    """The group was aborted."""

    status = "RA_ERR_ABORTED"


class SystemRefusalError(RingattnError, OSError):
    """The operating system refused a request."""

    status = "RA_ERR_SYSTEM"


class CorruptError(RingattnError, ConnectionError):
    """A message changed on its way."""

    status = "RA_ERR_CORRUPT"


class BusyError(RingattnError, RuntimeError):
    """Another thread is using this plan."""

    status = "RA_ERR_BUSY"


# By the number of the status; the first one is success.
BY_STATUS = (None, ArgumentError, UnsupportedError, OutOfMemoryError, BudgetError, MismatchError,
             PeerTimeoutError, PeerError, AbortedError, SystemRefusalError, CorruptError, BusyError)


def error_of(status: int, sentence: str) -> RingattnError:
    """The exception for a status that is not 0."""
    kind = BY_STATUS[status] if 0 < status < len(BY_STATUS) else RingattnError
    return kind(sentence)
