#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a short call of the Python package costs more than the same call of the C library by ctypes:
one token, one head, one thread; microseconds of processor time, the least of ten rounds. Where
PyTorch is, also of its tensors; those of a GPU where there is one, whose calls end when issued.

usage: overhead.py        with ringattn installed, or RINGATTN_LIBRARY and PYTHONPATH set
"""
import time
from ctypes import byref

import numpy
import ringattn
from ringattn import _library as c
from ringattn._arrays import address

ROUNDS, CALLS = 10, 2000


def microseconds(call):
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        least = min(least, (time.process_time() - start) / CALLS)
    return 1e6 * least


def print_row(name, call, bare):
    print(f"{name:32} {microseconds(call) - bare:5.1f} us more than {bare:.1f} us")


def tensors(torch, device):
    """The same for ringattn.torch, without and with a graph for gradients."""
    import ringattn.torch as rt
    q, out, lse = (torch.ones(1, 1, 1, 8, device=device) for _ in range(3))
    graded = q.clone().requires_grad_()
    rt.clear()
    rt.attention(q, q, q, threads=1)
    ((_, crew),) = rt._pool.pool()._idle
    (ring,) = crew._rings.values()
    plan = ring._plans[0].value  # the one that attention() runs
    args = c.AttendArgs(lse=lse.data_ptr(), queue=ring._queue(), counts=address(ring._counts))
    args.q.data = args.k.data = args.v.data = q.data_ptr()
    args.out.data = out.data_ptr()
    bare = microseconds(lambda: c.lib.ra_attend(plan, byref(args)))
    print_row(f"torch.attention, {device}", lambda: rt.attention(q, q, q, threads=1), bare)
    print_row(f"torch.attention, {device}, graph",
              lambda: rt.attention(graded, q, q, threads=1), bare)


def main():
    q = numpy.ones((1, 1, 1, 8), numpy.float32)
    out, lse = numpy.empty_like(q), numpy.empty(1, numpy.float32)
    plan = ringattn.Plan(q.shape, threads=1)
    args = c.AttendArgs(lse=address(lse))
    args.q.data = args.k.data = args.v.data = address(q)
    args.out.data = address(out)
    bare = microseconds(lambda: c.lib.ra_attend(plan._first(), byref(args)))
    print_row("Plan.attend", lambda: plan.attend(q, q, q), bare)
    print_row("attention", lambda: ringattn.attention(q, q, q, threads=1), bare)
    try:
        import torch
    except ImportError:
        return
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        tensors(torch, device)


main()
