# SPDX-License-Identifier: Apache-2.0
"""What the tests of ringattn.torch share. They need PyTorch; where there is a GPU, and the library
was built with CUDA, they run on both."""
import pytest

torch = pytest.importorskip("torch")


def _devices():
    if not torch.cuda.is_available():
        return ["cpu"]
    import ringattn
    try:
        with ringattn.Plan((1, 1, 1, 8), device="cuda"):
            return ["cpu", "cuda"]
    except ringattn.RingattnError:
        return ["cpu"]


DEVICES = _devices()
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def make(device):
    """make(shape, dtype, seed): N(0,1), with a gradient."""
    def tensor(*shape, dtype=torch.float32, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()
    return tensor


def exact(q, k, v, seen=None, bias=None, scale=None):
    """Attention in float64, [batch, tokens, heads, dim]: (out, lse). seen: [queries, keys]."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen.to(scores.device), -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None].masked_fill(lse[..., None].isneginf(), 0)).exp()
    return (weights @ v).transpose(1, 2), lse.transpose(1, 2)


def near(got, want, dtype=None, factor=1.0):
    tolerance = factor * TOLERANCE[dtype or got.dtype]
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)
