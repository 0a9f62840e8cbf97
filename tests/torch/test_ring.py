# SPDX-License-Identifier: Apache-2.0
"""Rings of processes over gloo: a worker program in each."""
import os
import pathlib
import subprocess
import sys

import pytest


def run_workers(program, ranks, folder, seconds):
    """What each process returned and printed."""
    path = pathlib.Path(__file__).with_name(program)
    environment = dict(os.environ, LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    workers = [subprocess.Popen([sys.executable, str(path), str(rank), str(ranks),
                                 str(folder / "meet")], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for rank in range(ranks)]
    try:
        said = [worker.communicate(timeout=seconds)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, text) for worker, text in zip(workers, said)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_ring_of_processes(ranks, tmp_path):
    for rank, (code, said) in enumerate(run_workers("ring_worker.py", ranks, tmp_path, 900)):
        assert code == 0 and "all right" in said, f"rank {rank}: {said[-2000:]}"


def test_a_process_that_dies(tmp_path):
    *others, last = run_workers("dying_worker.py", 3, tmp_path, 120)
    assert last[0] == 9
    for rank, (code, said) in enumerate(others):
        assert code == 0 and "lost:" in said and "after it:" in said, f"rank {rank}: {said[-2000:]}"
