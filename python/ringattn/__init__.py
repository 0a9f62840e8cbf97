# SPDX-License-Identifier: Apache-2.0
"""Exact attention for sequences that do not fit: libringattn for NumPy.

    import numpy, ringattn
    q = k = v = numpy.random.randn(4096, 8, 64).astype("float32")
    out = ringattn.attention(q, k, v, "causal", ring=4, partition="zigzag")

Problems are written as everywhere in ringattn; see docs/PYTHON.md.
"""
from ._cache import Cache
from ._errors import (AbortedError, ArgumentError, BudgetError, BusyError, CorruptError,
                      MismatchError, OutOfMemoryError, PeerError, PeerTimeoutError, RingattnError,
                      SystemRefusalError, UnsupportedError)
from ._functions import (Forecast, Partial, attention, attention_backward, clear, mask, merge, plan,
                         positions)
from ._library import lib as _lib
from ._picture import Picture, plot
from ._plan import Gradients, GradientsAndBias, Plan
from ._ring import MemoryUse, Statistics
from ._selftest import selftest

__version__ = _lib.ra_version().decode()
__all__ = ["AbortedError", "ArgumentError", "BudgetError", "BusyError", "Cache", "CorruptError",
           "Forecast", "Gradients", "GradientsAndBias", "MemoryUse", "MismatchError",
           "OutOfMemoryError", "Partial", "PeerError", "PeerTimeoutError", "Picture", "Plan",
           "RingattnError", "Statistics", "SystemRefusalError", "UnsupportedError", "attention",
           "attention_backward", "clear", "mask", "merge", "plan", "plot", "positions", "selftest"]
