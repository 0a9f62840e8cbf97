#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a short call of the Python package costs more than the same call of the C library by ctypes:
one token, one head, one thread; microseconds of processor time, the least of ten rounds.

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


def main():
    q = numpy.ones((1, 1, 1, 8), numpy.float32)
    out, lse = numpy.empty_like(q), numpy.empty(1, numpy.float32)
    plan = ringattn.Plan(q.shape, threads=1)
    args = c.AttendArgs(lse=address(lse))
    args.q.data = args.k.data = args.v.data = address(q)
    args.out.data = address(out)
    bare = microseconds(lambda: c.lib.ra_attend(plan._first(), byref(args)))
    for name, call in (("Plan.attend", lambda: plan.attend(q, q, q)),
                       ("attention", lambda: ringattn.attention(q, q, q, threads=1))):
        print(f"{name:12} {microseconds(call) - bare:5.1f} us more than {bare:.1f} us")


main()
