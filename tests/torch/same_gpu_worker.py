# SPDX-License-Identifier: Apache-2.0
"""One process of a process group of nccl whose processes all use the first GPU, which NCCL refuses.

    usage: same_gpu_worker.py RANK RANKS FILE     (FILE: where the processes meet)
"""
import os
import sys

import ringattn.torch as rt
import torch.distributed as dist

rank, ranks, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=ranks)
try:
    rt.Mesh(device="cuda:0")
except ValueError as error:
    print("refused:", error, flush=True)
os._exit(0)  # a process group that failed may wait for its end
