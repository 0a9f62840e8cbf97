# SPDX-License-Identifier: Apache-2.0
"""What programs do to libraries: odd arrays, fork, signals, threads, failures, files that change."""
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import ringattn


@pytest.mark.parametrize("shapes", [((0, 5, 4, 8), None), ((1, 5, 0, 8), None),
                                    ((1, 5, 4, 0), None), ((1, 5, 4, 8), (1, 5, 0, 8))])
def test_empty_dimensions_are_refused(shapes):
    q = numpy.ones(shapes[0], "f4")
    k = numpy.ones(shapes[1] or shapes[0], "f4")
    for ring in (1, 2):
        with pytest.raises(ringattn.ArgumentError, match="only tokens may be 0"):
            ringattn.attention(q, k, k, ring=ring)
    with pytest.raises(ringattn.ArgumentError):
        ringattn.plan(q.shape, k.shape)
    assert ringattn.attention(numpy.ones((1, 0, 2, 8), "f4"), *2 * [numpy.ones((1, 3, 2, 8), "f4")]
                              ).shape == (1, 0, 2, 8)


def test_odd_arrays(make):
    q, k, v = (make((1, 9, 2, 8), seed=seed) for seed in range(3))
    want = ringattn.attention(q, k, v)
    swapped = [x.astype(x.dtype.newbyteorder()) for x in (q, k, v)]
    numpy.testing.assert_array_equal(ringattn.attention(*swapped), want)
    raw = numpy.zeros(q.nbytes + 1, "u1")
    unaligned = raw[1:].view("f4").reshape(q.shape)
    unaligned[...] = q
    q.flags.writeable = False
    for ring in (1, 2):
        numpy.testing.assert_allclose(ringattn.attention(unaligned, k, v, ring=ring), want, 1e-5,
                                      1e-6)
        numpy.testing.assert_allclose(ringattn.attention(q, k, v, ring=ring), want, 1e-5,
                                      1e-6)
    one = numpy.broadcast_to(q[:, :1], q.shape)
    numpy.testing.assert_allclose(ringattn.attention(one, k, v)[:, 5], want[:, 0], 1e-5)


def test_arguments_that_mean_something_else_are_refused(make):
    q = make((1, 4, 2, 8))
    for options, words in (({"scale": 0.0}, "scale"), ({"memory": 0}, "memory"),
                           ({"memory": -5}, "memory"), ({"mask": numpy.zeros((4, 4))}, "mask"),
                           ({"bias": numpy.ones((4, 4), bool)}, "bias"),
                           ({"pattern": ["full"]}, "pattern"), ({"pattern": "full\0x"}, "text"),
                           ({"ring": -1}, "ring"), ({"partition": "bogus"}, "bogus")):
        with pytest.raises(ringattn.RingattnError, match=words):
            ringattn.attention(q, q, q, **options)
    with pytest.raises(ringattn.RingattnError):
        ringattn.attention(q, q, q, "x" + "é" * 41)
    padding = numpy.array([1, 1, 0, 1], bool)[None, None, None]
    numpy.testing.assert_allclose(ringattn.attention(q, q, q, mask=padding),
                                  ringattn.attention(q, q[:, [0, 1, 3]], q[:, [0, 1, 3]]), 1e-5)


def test_merge_takes_any_layout():
    out, lse = numpy.arange(6, dtype="f4").reshape(3, 2), numpy.zeros(3, "f4")
    merged = ringattn.merge((numpy.asfortranarray(out), lse), (out, lse))
    numpy.testing.assert_allclose(merged.out, out, 1e-6)
    with pytest.raises(ValueError, match="pairs"):
        ringattn.merge(out)


def test_a_failure_does_not_stay(make):
    q, k, v = (make((1, 20, 2, 16), seed=seed) for seed in range(3))
    out, lse = ringattn.attention(q, k, v, return_lse=True)
    want = ringattn.attention_backward(out, q, k, v, out, lse)
    with pytest.raises(NotImplementedError):
        ringattn.attention_backward(out, q, k, v, out, lse + 3e6)
    numpy.testing.assert_array_equal(ringattn.attention_backward(out, q, k, v, out, lse).dq,
                                     want.dq)


def test_a_bitmap_that_changed_is_read_again(make, tmp_path):
    q = make((1, 16, 1, 8))
    path = tmp_path / "bits.npy"
    results = []
    for bits in (numpy.ones((1, 2, 2), "u1"), numpy.eye(2, dtype="u1")[None]):
        numpy.save(path, bits)
        os.utime(path, ns=(len(results) + 1, len(results) + 1))
        results.append(ringattn.attention(q, q, q, f"blocks:8;bitmap={path}"))
    assert numpy.abs(results[0] - results[1]).max() > 0.01


def test_a_plan_that_runs_is_not_closed(make):
    q = make((1, 3000, 4, 64))
    for ring in (1, 2):
        plan = ringattn.Plan(q.shape, ring=ring, threads=1)
        results = []

        def work():
            try:
                results.append(plan.attend(q, q, q))
            except ringattn.ArgumentError as error:  # closed before it began
                assert "closed" in str(error)

        thread = threading.Thread(target=work)
        thread.start()
        refused = 0
        while thread.is_alive():
            try:
                plan.close()
                break
            except ringattn.BusyError:
                refused += 1
                time.sleep(0.01)
        thread.join()
        if results:
            numpy.testing.assert_allclose(results[0], ringattn.attention(q, q, q), rtol=1e-4,
                                          atol=1e-4)


def _in_child(ring):
    x = numpy.ones((1, 4, 2, 8), "f4")
    total = float(ringattn.attention(x, x, x, ring=ring).sum())
    ringattn.clear()
    return total


def test_children_of_fork(make):
    x = numpy.ones((1, 4, 2, 8), "f4")
    plan = ringattn.Plan(x.shape)
    for ring in (1, 2):
        ringattn.attention(x, x, x, ring=ring)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_in_child, [1, 2, 1, 2]).get(timeout=60) == 4 * [64.0]
    child = os.fork()
    if child == 0:
        try:
            plan.attend(x, x, x)
        except ringattn.ArgumentError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert plan.attend(x, x, x).sum() == 64.0


@pytest.mark.parametrize("ring", [1, 2])
def test_a_handler_that_does_not_raise_lets_a_run_end(ring):
    code = f"""
import numpy, os, signal, ringattn
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
q = numpy.random.default_rng(0).standard_normal((1, 30000, 2, 64), dtype="f4")
print("ready", flush=True)
out = ringattn.attention(q, q, q, ring={ring})
ringattn.clear()
right = ringattn.attention(q[:, -1:], q, q)
print(len(seen) > 0, bool(abs(out[:, -1:] - right).max() < 1e-4))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120)[0] == "True True\n"


def test_several_interrupts(tmp_path):
    code = """
import numpy, ringattn
q = numpy.zeros((1, 60000, 8, 64), numpy.float32)
print("ready", flush=True)
try:
    ringattn.attention(q, q, q, ring=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    for gap in (0.0005, 0.005, 0.02):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(gap)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode in (0, 1, 130, -signal.SIGINT)  # ended, and did not crash


def test_the_sources_of_a_distribution_are_all_there():
    root = pathlib.Path(__file__).resolve().parents[2]
    build = pytest.importorskip("scikit_build_core.build")
    import tarfile
    before = os.getcwd()
    os.chdir(root)
    try:
        folder = os.environ.get("TMPDIR", "/tmp")
        name = build.build_sdist(folder)
    finally:
        os.chdir(before)
    with tarfile.open(os.path.join(folder, name)) as tar:
        held = {path.split("/", 1)[1] for path in tar.getnames() if "/" in path}
    os.remove(os.path.join(folder, name))
    wanted = {str(path.relative_to(root)) for part in ("src", "include", "cli", "harness", "cmake",
                                                       "python")
              for path in (root / part).rglob("*") if path.is_file() and "__pycache__" not in
              path.parts}
    assert wanted <= held, sorted(wanted - held)[:5]
