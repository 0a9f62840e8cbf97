# SPDX-License-Identifier: Apache-2.0
"""Plans, errors, helpers, threads, and the layout of the structs."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy
import pytest
import ringattn
from ringattn import _library

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_plan_is_reused(make):
    q, k, v = (make((1, 50, 2, 16), seed=seed) for seed in range(3))
    with ringattn.Plan(q.shape, pattern="causal", ring=3, partition="zigzag",
                       backward=True) as plan:
        first, lse = plan.attend(q, k, v, return_lse=True)
        again = plan.attend(q, k, v)
        numpy.testing.assert_array_equal(first, again)
        found = plan.gradient(first, q, k, v, first, lse)
        assert [x.shape for x in found[:3]] == [q.shape, k.shape, v.shape] and found.dsinks is None
        assert plan.kernel and plan.strategy == "ring"
        assert plan.memory.total >= plan.memory.shard > 0
        assert plan.statistics.pairs > 0 and plan.statistics.hops > 0
    assert plan.closed
    with pytest.raises(ringattn.ArgumentError, match="closed"):
        plan.attend(q, k, v)


def test_nothing_is_left_behind(make):
    ringattn.clear()
    before = _library.lib.ra_allocated_bytes()
    q = make((1, 64, 2, 16))
    ringattn.attention(q, q, q, ring=2)
    assert _library.lib.ra_allocated_bytes() > before
    ringattn.clear()
    assert _library.lib.ra_allocated_bytes() == before


@pytest.mark.parametrize("options, kind, words", [
    ({"pattern": "cuasal"}, ValueError, "cuasal"),
    ({"memory": "1K"}, MemoryError, "the budget is"),
    ({"memory": "lots"}, ValueError, "lots"),
    ({"kernel": "quantum"}, Exception, "quantum"),
    ({"ring": 0}, ValueError, "ring is 0"),
    ({"ring": 2 ** 32 + 2}, ValueError, "ring is 4294967298"),
    ({"ring": 1.9}, ValueError, "whole number"),
    ({"threads": 1.5}, ValueError, "threads is 1.5"),
    ({"threads": 2 ** 32 + 1}, ValueError, "threads"),
    ({"query_offset": 2 ** 64}, ValueError, "query_offset"),
    ({"scale": 1e-60}, ValueError, "1e-60 is 0"),
    ({"order": [1, 0]}, ValueError, "order is"),
    ({"alibi": [1.0]}, ValueError, "alibi"),
    ({"seed": -1}, ValueError, "seed"),
    ({"device": "abacus"}, Exception, "abacus"),
])
def test_errors_say_what_is_wrong(make, options, kind, words):
    q = make((1, 64, 2, 16))
    with pytest.raises(kind, match=words) as caught:
        ringattn.attention(q, q, q, **options)
    assert isinstance(caught.value, ringattn.RingattnError)


def test_arrays_that_do_not_fit_are_refused(make):
    q = make((1, 8, 2, 16))
    with pytest.raises(ValueError, match="float64"):
        ringattn.attention(q.astype("f8"), q, q)
    with pytest.raises(ValueError, match="shape"):
        ringattn.attention(q, q[:, :4], q)
    with pytest.raises(ValueError, match="shape"):
        ringattn.attention(q[0, 0], q, q)
    with pytest.raises(ValueError, match="dtype"):
        ringattn.attention(q, q.astype("f2"), q)
    with pytest.raises(ValueError, match="without backward"):
        ringattn.Plan(q.shape).gradient(q, q, q, q, q, q[..., 0])


def test_other_array_objects(make):
    q = make((1, 16, 2, 8))

    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    want = ringattn.attention(q, q, q)
    numpy.testing.assert_array_equal(ringattn.attention(Foreign(q), Foreign(q), q), want)
    assert ringattn.attention(memoryview(q), q, q).shape == q.shape


def test_plan_answers_without_running():
    answer = ringattn.plan((1, 1 << 20, 8, 64), dtype="float16", pattern="causal", ring=64,
                           partition="zigzag", backward=True)
    assert answer.pairs == 8 * (1 << 20) * ((1 << 20) + 1) // 2
    assert 0 < answer.memory.total < 600 << 20 and answer.seconds > 0 and answer.bytes_sent > 0


def test_masks_positions_and_pictures():
    numpy.testing.assert_array_equal(ringattn.mask("causal", 5)[0], numpy.tri(5, dtype="u1"))
    assert ringattn.mask("dilated:4/1,8/2", 8).max() == 2
    shards = ringattn.positions(10, 2, "zigzag")
    assert sorted(numpy.concatenate(shards)) == list(range(10))
    picture = ringattn.plot("causal", 8)
    assert picture._repr_svg_().count("<rect") == 1 + 36


def test_merge_of_halves(make):
    q, k, v = (make((1, 30, 2, 16), seed=seed) for seed in range(3))
    halves = [ringattn.attention(q, k[:, part], v[:, part], return_lse=True)
              for part in (slice(0, 13), slice(13, 30))]
    out, lse = ringattn.merge(*halves)
    want, want_lse = ringattn.attention(q, k, v, return_lse=True)
    numpy.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)


def test_threads_call_at_once(make):
    q = make((1, 200, 4, 32))
    want = ringattn.attention(q, q, q, "causal")
    failures = []

    def work():
        for _ in range(5):
            if not numpy.array_equal(ringattn.attention(q, q, q, "causal"), want):
                failures.append("other bits")
        ringattn.clear()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("ring", [1, 2])
def test_ctrl_c_ends_a_call(ring):
    code = f"""
import numpy, ringattn
q = numpy.zeros((1, 60000, 8, 64), numpy.float32)
print("ready", flush=True)
try:
    ringattn.attention(q, q, q, ring={ring})
    print("ended")
except KeyboardInterrupt:
    print("interrupted", ringattn.attention(q[:, :9], q[:, :9], q[:, :9], ring={ring}).sum())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted 0.0\n"


def test_the_structs_are_those_of_the_header():
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        pytest.skip("no C compiler")
    structs = {"ra_tensor": _library.Tensor, "ra_const_tensor": _library.Tensor,
               "ra_array": _library.Array, "ra_problem": _library.Problem,
               "ra_group_options": _library.GroupOptions, "ra_plan_options": _library.PlanOptions,
               "ra_stats": _library.Stats, "ra_memory": _library.Memory, "ra_bias": _library.Bias,
               "ra_attend_args": _library.AttendArgs, "ra_gradient_args": _library.GradientArgs,
               "ra_part": _library.Part, "ra_nccl_where": _library.NcclWhere}
    lines, want = [], []
    for name, struct in structs.items():
        want.append(f"{name} {ctypes.sizeof(struct)}")
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in struct._fields_:
            want.append(f"{name}.{field} {getattr(struct, field).offset}")
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, '
                         f'{field.rstrip("_")}));')
    headers = "".join(f"#include {name}\n"
                      for name in ("<stdio.h>", '"ringattn.h"', '"ringattn_nccl.h"'))
    source = headers + "int main(void) {" + "".join(lines) + "}"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "layout.c").write_text(source)
        subprocess.run([compiler, "-I", ROOT / "include", path / "layout.c", "-o", path / "layout"],
                       check=True)
        found = subprocess.run([path / "layout"], check=True, capture_output=True, text=True).stdout
    assert found.split("\n")[:-1] == want


def test_the_selftest_passes(capsys):
    ringattn.selftest()
    assert "all right" in capsys.readouterr().out
