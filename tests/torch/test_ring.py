# SPDX-License-Identifier: Apache-2.0
"""Rings of processes over gloo and nccl: a worker program in each."""
import os
import pathlib
import subprocess
import sys

import pytest
import ringattn
import torch
from conftest import DEVICES
from ringattn.torch import _nccl

needs_gpu = pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU, or a library without CUDA")


def run_workers(program, ranks, folder, seconds, *arguments):
    """What each process returned and printed."""
    path = pathlib.Path(__file__).with_name(program)
    environment = dict(os.environ, LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    workers = [subprocess.Popen([sys.executable, str(path), str(rank), str(ranks),
                                 str(folder / "meet"), *arguments], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for rank in range(ranks)]
    try:
        said = [worker.communicate(timeout=seconds)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, text) for worker, text in zip(workers, said)]


def ring(backend, device, ranks):
    marks = [needs_gpu] if device == "cuda" else []
    if "nccl" in backend:
        marks.append(pytest.mark.skipif(torch.cuda.device_count() < ranks, reason="too few GPUs"))
    return pytest.param(backend, device, ranks, marks=marks,
                        id=f"{device}-{backend.replace(':', '_').replace(',', '_')}-{ranks}")


RINGS = [*(ring("gloo", "cpu", ranks) for ranks in (1, 2, 3, 4, 8)),
         *(ring("gloo", "cuda", ranks) for ranks in (2, 3, 4)),  # they share a GPU
         *(ring("nccl", "cuda", ranks) for ranks in (1, 2, 4)),
         ring("cpu:gloo,cuda:nccl", "cuda", 1)]


@pytest.mark.parametrize("backend, device, ranks", RINGS)
def test_ring_of_processes(backend, device, ranks, tmp_path):
    said = run_workers("ring_worker.py", ranks, tmp_path, 900, backend, device)
    for rank, (code, text) in enumerate(said):
        assert code == 0 and "all right" in text, f"rank {rank}: {text[-2000:]}"


@needs_gpu
def test_one_gpu_for_two_processes_of_nccl_on_cuda(tmp_path):
    for rank, (code, said) in enumerate(run_workers("same_gpu_worker.py", 2, tmp_path, 120)):
        assert code == 0 and "NCCL takes one process for each" in said, f"rank {rank}: {said[-2000:]}"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_a_process_that_dies(device, tmp_path):
    *others, last = run_workers("dying_worker.py", 3, tmp_path, 120, device)
    assert last[0] == 9
    for rank, (code, said) in enumerate(others):
        assert code == 0 and "lost:" in said and "after it:" in said, f"rank {rank}: {said[-2000:]}"


class Two:
    """Two ranks, of which this is the second; the first sends `first`."""

    rank, ranks = 1, 2

    def __init__(self, first):
        self.first, self.sent = first, None

    def gather(self, x):
        self.sent = x.tolist()
        return torch.tensor([self.first, self.sent], dtype=torch.uint8)


def test_all_ranks_know_which_of_them_has_no_nccl(monkeypatch):
    size = ringattn._library.NCCL_ID_BYTES
    monkeypatch.setattr(_nccl, "_must_be_there", lambda: None)
    assert _nccl._shared_id(Two([7] * size + [1])) == bytes([7] * size)
    with pytest.raises(OSError, match="rank 0 of this process group cannot use NCCL"):
        _nccl._shared_id(Two([7] * size + [0]))

    def refuse():
        raise ringattn.UnsupportedError("no plug-in")

    monkeypatch.setattr(_nccl, "_must_be_there", refuse)
    mesh = Two([7] * size + [1])
    with pytest.raises(ringattn.UnsupportedError, match="no plug-in"):
        _nccl._shared_id(mesh)
    assert mesh.sent[-1] == 0
