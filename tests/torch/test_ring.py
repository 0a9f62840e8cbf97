# SPDX-License-Identifier: Apache-2.0
"""Rings of processes over gloo: ring_worker.py in each, on 1 to 8 of them."""
import os
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).with_name("ring_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_ring_of_processes(ranks, tmp_path):
    environment = dict(os.environ, LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    workers = [subprocess.Popen([sys.executable, str(WORKER), str(rank), str(ranks),
                                 str(tmp_path / "meet")], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for rank in range(ranks)]
    try:
        for rank, worker in enumerate(workers):
            said, _ = worker.communicate(timeout=900)
            assert worker.returncode == 0 and "all right" in said, f"rank {rank}: {said[-2000:]}"
    finally:
        for worker in workers:
            worker.kill()
