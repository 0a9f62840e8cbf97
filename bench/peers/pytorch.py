# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention on the CPU, flash backend, in its own layouts.

Backward is torch.autograd.grad on a graph prepared beforehand, so the forward pass is not in the time.
"""
import peer

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except Exception as error:  # an import may fail in many ways: no module, no shared library
    peer.absent("torch", error)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def heads_first(tensor):
    """[head, position, dim] in memory."""
    return tensor.transpose(1, 2).contiguous()


def positions_first(tensor):
    """[position, head, dim] in memory: SDPA takes it by strides."""
    return tensor.transpose(1, 2)


class Job:
    def __init__(self, case):
        self.case = case
        self.result = case.dtype
        ways = {layout.__name__: self.way(layout) for layout in (heads_first, positions_first)}
        name, self.compute = peer.fastest(ways)
        self.detail = f"flash, {name.replace('_', ' ')}"
        self.run()

    def way(self, layout):
        case = self.case
        shape = (1, case.tokens, case.heads, case.dim)

        def load(name):
            flat = torch.frombuffer(case.load(name), dtype=DTYPES[case.dtype])
            return layout(flat.reshape(shape).clone())

        q, k, v = (load(name) for name in "qkv")

        def forward():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return (scaled_dot_product_attention(q, k, v, is_causal=case.causal),)

        if not case.backward:
            return torch.no_grad()(forward)
        dout = load("dout")
        for tensor in (q, k, v):
            tensor.requires_grad_()
        graph = []  # made by the first call, which is not timed

        def backward():
            if not graph:
                graph.extend(forward())
            return torch.autograd.grad(graph[0], (q, k, v), dout, retain_graph=True)

        return backward

    def run(self):
        self.outputs_now = self.compute()

    def rows(self, which, positions):
        picked = self.outputs_now[which].detach()[0, :, positions].transpose(0, 1).contiguous()
        return bytes(picked.view(torch.uint8).flatten().tolist())


torch.set_num_threads(peer.threads())
peer.serve("torch", f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}", Job)
