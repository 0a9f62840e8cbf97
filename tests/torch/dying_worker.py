# SPDX-License-Identifier: Apache-2.0
"""One process of a ring over gloo whose last process dies between two calls: the others get an error
that names the loss, none hangs.

    usage: dying_worker.py RANK RANKS FILE DEVICE     (FILE: where the processes meet)
"""
import os
import sys

import ringattn
import ringattn.torch as rt
import torch
import torch.distributed as dist

rank, ranks, path, device = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
mesh = rt.Mesh(device=device, timeout=20.0)
x = torch.randn(1, 64, 2, 16, generator=torch.Generator().manual_seed(rank)).to(device)
rt.attention(x, x, x, "causal", group=mesh)
if rank == ranks - 1:
    os._exit(9)
try:
    for _ in range(3):  # what was sent before it died may still arrive
        rt.attention(x, x, x, "causal", group=mesh)
except (ConnectionError, TimeoutError) as error:
    assert "custom transport" in str(error) and "torch.distributed" in str(error), error
    print("lost:", error)
else:
    sys.exit("nothing was noticed")
try:
    rt.attention(x, x, x, "causal", group=mesh)
except ringattn.RingattnError as error:
    print("after it:", error)
else:
    sys.exit("a broken group was used again")
sys.stdout.flush()
os._exit(0)  # gloo's own threads may abort a process whose peer is gone
