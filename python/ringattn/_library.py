# SPDX-License-Identifier: Apache-2.0
"""libringattn by ctypes: its structs, its functions, and a check of what they return.

ctypes releases the GIL for as long as a call takes. The structs are those of ringattn.h and
ringattn_nccl.h; a test compares their layout with what a C compiler says.
"""
import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_uint64
from ctypes import c_void_p

from ._errors import ArgumentError, error_of

HERE = pathlib.Path(__file__).resolve().parent
PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_double)
LINE = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
F32, BF16, F16 = range(3)
NO_KEYS = -1
NCCL_ID_BYTES = 128


class Sized(ctypes.Structure):
    """A struct that starts with its size; all other fields are 0, which means default."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = ctypes.sizeof(self)


class Tensor(ctypes.Structure):
    """ra_tensor and ra_const_tensor."""

    _fields_ = [("data", c_void_p), ("batch_stride", c_int64), ("position_stride", c_int64),
                ("head_stride", c_int64)]


class Array(ctypes.Structure):
    """ra_array."""

    _fields_ = [("from_", c_void_p), ("to", c_void_p), ("batch", c_int64), ("bytes", c_size_t)]


class Problem(Sized):
    """ra_problem."""

    _fields_ = [("size", c_size_t), ("pattern", c_void_p), ("order", c_void_p),
                ("alibi", c_void_p), ("batch", c_int64), ("q_len", c_int64), ("k_len", c_int64),
                ("dropout", c_double), ("dtype", c_int), ("q_heads", c_int), ("kv_heads", c_int),
                ("dim", c_int), ("value_dim", c_int), ("scale", c_float), ("softcap", c_float),
                ("reserved", c_int), ("query_offset", c_int64), ("sequences", c_void_p),
                ("sequence_count", c_int64)]


class GroupOptions(Sized):
    """ra_group_options."""

    _fields_ = [("size", c_size_t), ("timeout", c_double), ("log", c_void_p), ("trace", c_void_p),
                ("context", c_void_p), ("pool_threshold", c_size_t), ("threads", c_int),
                ("checksum", c_int), ("device", c_char_p), ("on_device", c_int),
                ("reserved", c_int)]


class Message(ctypes.Structure):
    """ra_message."""

    _fields_ = [("peer", c_int), ("tag", c_int), ("data", c_void_p), ("bytes", c_size_t)]


POST = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Message), c_int, POINTER(Message), c_int,
                        POINTER(c_void_p))
WAIT = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_double)


class TransportCallbacks(Sized):
    """ra_transport_callbacks."""

    _fields_ = [("size", c_size_t), ("context", c_void_p), ("post", POST), ("wait", WAIT),
                ("poll", c_void_p), ("abort", c_void_p), ("close", c_void_p)]


class NcclWhere(Sized):
    """ra_nccl_where."""

    _fields_ = [("size", c_size_t), ("rank", c_int), ("ranks", c_int), ("device", c_int),
                ("reserved", c_int), ("path", c_char_p), ("id", c_void_p)]


class PlanOptions(Sized):
    """ra_plan_options."""

    _fields_ = [("size", c_size_t), ("strategy", c_char_p), ("partition", c_char_p),
                ("layout", c_void_p), ("kv_layout", c_void_p), ("kernel", c_char_p),
                ("machine", c_void_p), ("measured", c_void_p), ("memory", c_size_t),
                ("backward", c_int), ("bias", c_int), ("ranks", c_int), ("rank", c_int),
                ("transport", c_char_p), ("threads", c_int), ("sources", c_int),
                ("any_order", c_int), ("counts", c_int), ("device", c_char_p)]


class Stats(Sized):
    """ra_stats."""

    _fields_ = [("size", c_size_t), ("hops", c_int64), ("bytes_sent", c_int64),
                ("bytes_received", c_int64), ("pairs", c_int64), ("flops", c_double),
                ("seconds", c_double), ("wait_seconds", c_double), ("bytes_loaded", c_int64),
                ("bytes_stored", c_int64)]


class Memory(Sized):
    """ra_memory."""

    _fields_ = [(name, c_size_t) for name in ("size", "shard", "travel", "state", "gradient",
                                              "workspace", "bookkeeping", "total", "device")]


class Bias(ctypes.Structure):
    """ra_bias."""

    _fields_ = [("data", c_void_p), ("mask", c_int), ("reserved", c_int),
                ("batch_stride", c_int64), ("head_stride", c_int64), ("query_stride", c_int64)]


class AttendArgs(Sized):
    """ra_attend_args."""

    _fields_ = [("size", c_size_t), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("out", Tensor),
                ("lse", c_void_p), ("progress", PROGRESS), ("context", c_void_p), ("bias", Bias),
                ("sinks", c_void_p), ("dropout_seed", c_uint64), ("stream", c_void_p),
                ("queue", c_void_p), ("counts", c_void_p)]


class GradientArgs(Sized):
    """ra_gradient_args."""

    _fields_ = [("size", c_size_t), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("out", Tensor),
                ("lse", c_void_p), ("dout", Tensor), ("dlse", c_void_p), ("dq", Tensor),
                ("dk", Tensor), ("dv", Tensor), ("progress", PROGRESS), ("context", c_void_p),
                ("bias", Bias), ("sinks", c_void_p), ("dropout_seed", c_uint64),
                ("dsinks", c_void_p), ("stream", c_void_p), ("queue", c_void_p),
                ("dbias", c_void_p)]


class Part(Sized):
    """ra_part."""

    _fields_ = [("size", c_size_t), ("name", c_char_p), ("summary", c_char_p), ("why", c_char_p),
                ("samples", c_char_p), ("usable", c_int), ("chosen", c_int), ("dtypes", c_uint),
                ("joins", c_int), ("device", c_char_p)]


def _path() -> str:
    """RINGATTN_LIBRARY, or the library of this package."""
    given = os.environ.get("RINGATTN_LIBRARY")
    if given:
        return given
    found = sorted((HERE / "lib").glob("libringattn.so*"))
    if not found:
        raise ImportError("ringattn: there is no libringattn.so in " + str(HERE / "lib") +
                          "; install the package with pip, or set RINGATTN_LIBRARY to a build of it")
    return str(found[-1])


# Functions by what they return: a status, which is checked; or as it is.
_STATUS = {
    "ra_pattern_parse": [c_char_p, POINTER(c_void_p)],
    "ra_order_parse": [c_char_p, c_int64, POINTER(c_void_p)],
    "ra_order_permute": [c_void_p, POINTER(Array), c_int],
    "ra_problem_row": [POINTER(Problem), c_int, c_int64, c_void_p],
    "ra_layout_create_parts": [c_char_p, c_void_p, c_int64, c_int, POINTER(c_void_p)],
    "ra_layout_create": [c_char_p, c_int64, c_int, c_void_p, POINTER(c_void_p)],
    "ra_layout_permute": [c_void_p, POINTER(Array), c_int],
    "ra_group_create_local": [c_int, POINTER(GroupOptions), POINTER(c_void_p)],
    "ra_group_create_custom": [c_int, c_int, POINTER(TransportCallbacks), POINTER(GroupOptions),
                               POINTER(c_void_p)],
    "ra_group_join": [c_char_p, c_void_p, POINTER(GroupOptions), POINTER(c_void_p)],
    "ra_plan_create": [c_void_p, POINTER(Problem), POINTER(PlanOptions), POINTER(c_void_p)],
    "ra_plan_stats": [c_void_p, POINTER(Stats)],
    "ra_plan_forecast": [c_void_p, c_int, POINTER(Stats)],
    "ra_plan_memory": [c_void_p, POINTER(Memory)],
    "ra_plan_explain": [c_void_p, c_int, LINE, c_void_p],
    "ra_attend": [c_void_p, POINTER(AttendArgs)],
    "ra_gradient": [c_void_p, POINTER(GradientArgs)],
    "ra_state_create": [POINTER(Problem), c_char_p, POINTER(c_void_p)],
    "ra_state_init": [c_void_p],
    "ra_state_fold": [c_void_p, POINTER(Tensor), POINTER(Tensor), POINTER(Tensor), c_int64,
                      c_int64],
    "ra_state_set_sequences": [c_void_p, c_void_p],
    "ra_state_use_group": [c_void_p, c_void_p],
    "ra_state_finish": [c_void_p, POINTER(Tensor), c_void_p],
    "ra_state_finish_sinks": [c_void_p, c_void_p, POINTER(Tensor), c_void_p],
    "ra_partial_merge": [c_int64, c_int, c_void_p, c_void_p, c_void_p, c_void_p],
}
_PLAIN = {
    "ra_last_error": (c_char_p, []),
    "ra_version": (c_char_p, []),
    "ra_pattern_destroy": (None, [c_void_p]),
    "ra_order_destroy": (None, [c_void_p]),
    "ra_layout_destroy": (None, [c_void_p]),
    "ra_layout_count": (c_int64, [c_void_p, c_int]),
    "ra_group_abort": (None, [c_void_p, c_char_p]),
    "ra_group_destroy": (None, [c_void_p]),
    "ra_group_threads": (c_int, [c_void_p]),
    "ra_plan_destroy": (None, [c_void_p]),
    "ra_plan_q_count": (c_int64, [c_void_p]),
    "ra_plan_k_count": (c_int64, [c_void_p]),
    "ra_transport_error": (c_int, [c_int, c_char_p]),
    "ra_state_destroy": (None, [c_void_p]),
    "ra_plan_kernel": (c_char_p, [c_void_p]),
    "ra_plan_strategy": (c_char_p, [c_void_p]),
    "ra_plan_why": (c_char_p, [c_void_p]),
    "ra_allocated_bytes": (c_size_t, []),
    "ra_part_at": (c_int, [c_char_p, c_int, POINTER(Part)]),
}

lib = ctypes.CDLL(_path())


def _check(status, function, arguments):
    if status:
        raise error_of(status, lib.ra_last_error().decode(errors="replace"))
    return status


for _name, _arguments in _STATUS.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes, _function.errcheck = c_int, _arguments, _check
for _name, (_result, _arguments) in _PLAIN.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


def text(value) -> bytes | None:
    """A string as C takes it; None stays None."""
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise ArgumentError(f"a text is expected, not {value!r}")
    return value.encode()
