# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers, of random weights, give what they give with sdpa."""
import pytest
import torch

transformers = pytest.importorskip("transformers")
import ringattn.transformers  # noqa: E402

SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 512}


def decoder(kind, **more):
    config = {
        "mistral": lambda: transformers.MistralConfig(**SIZES, num_key_value_heads=2,
                                                      sliding_window=12, **more),
        "llama": lambda: transformers.LlamaConfig(**SIZES, num_key_value_heads=2, **more),
        "gemma2": lambda: transformers.Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=16,
                                                    sliding_window=10, **more),
    }[kind]()
    return config


def pair(config, base, device="cpu"):
    """The same model with both implementations. sdpa has no softcap: eager is beside it."""
    models = []
    other = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
    for name in (other, "ringattn"):
        torch.manual_seed(0)
        models.append(base.from_config(config, attn_implementation=name).eval().to(device))
    models[1].load_state_dict(models[0].state_dict())
    return models


def tokens(*shape, device="cpu"):
    return torch.randint(3, 97, shape, generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("kind", ["mistral", "llama", "gemma2"])
def test_logits_and_gradients(kind, device):
    theirs, mine = pair(decoder(kind), transformers.AutoModelForCausalLM, device)
    ids = tokens(2, 40, device=device)
    found = []
    for model in (theirs, mine):
        result = model(ids, labels=ids)
        result.loss.backward()
        found.append((result.logits, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-4, atol=1e-4)
    for got, want in zip(found[1][1], found[0][1]):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["mistral", "llama", "gemma2"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_greedy_continuation(kind, cache, device):
    theirs, mine = pair(decoder(kind), transformers.AutoModelForCausalLM, device)
    given = {"max_new_tokens": 25, "do_sample": False, "cache_implementation": cache,
             "pad_token_id": 0}
    ids = tokens(2, 17, device=device)
    assert torch.equal(theirs.generate(ids, **given), mine.generate(ids, **given))
    padding = torch.ones_like(ids)  # the first sequence is shorter
    padding[0, :6] = 0
    want = theirs.generate(ids, attention_mask=padding, **given)
    assert torch.equal(want, mine.generate(ids, attention_mask=padding, **given))


@pytest.mark.parametrize("kind", ["mistral", "llama"])
def test_packed_documents(kind, device):
    theirs, mine = pair(decoder(kind), transformers.AutoModelForCausalLM, device)
    positions = torch.cat([torch.arange(n) for n in (25, 4, 11)])[None].to(device)
    ids = tokens(1, 40, device=device)
    want, got = (model(ids, position_ids=positions).logits for model in (theirs, mine))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    other = mine(ids).logits
    assert (other - got).abs().max() > 1e-3  # documents do not see one another


def test_an_encoder(device):
    config = transformers.BertConfig(**SIZES)
    theirs, mine = pair(config, transformers.AutoModel, device)
    ids = tokens(3, 30, device=device)
    padding = torch.ones_like(ids)
    padding[1, 20:] = 0
    for given in ({}, {"attention_mask": padding}):
        want, got = (model(ids, **given).last_hidden_state for model in (theirs, mine))
        keep = given.get("attention_mask", torch.ones_like(ids)).bool()
        torch.testing.assert_close(got[keep], want[keep], rtol=1e-4, atol=1e-4)


def test_patterns_need_no_mask():
    from transformers import masking_utils as m

    def ask(function, **more):
        return ringattn.transformers.mask(1, 20, 30, 10, mask_function=function, **more)

    window = m.sliding_window_causal_mask_function(8)
    assert ask(m.causal_mask_function) is None
    assert ask(window, local_size=8) is None
    assert ringattn.transformers.mask(1, 20, 20, mask_function=m.bidirectional_mask_function,
                                      allow_is_bidirectional_skip=True) is None
    chunks = m.chunked_causal_mask_function(8, torch.zeros(1, dtype=torch.int64))
    assert ask(chunks, local_size=8).shape == (1, 1, 20, 30)
    assert ask(m.and_masks(window, lambda b, h, q, k: k != 25), local_size=8,
               allow_is_causal_skip=False) is not None
    padding = torch.ones(1, 30, dtype=torch.bool)
    assert ask(m.causal_mask_function, attention_mask=padding) is None
    padding[0, 0] = False
    assert ask(m.causal_mask_function, attention_mask=padding).shape == (1, 1, 20, 30)


def test_padding_of_shards_is_refused():
    padding = torch.ones(1, 20, dtype=torch.bool)
    with ringattn.transformers.ring():
        assert ringattn.transformers.mask(1, 20, 20, attention_mask=padding) is None
        padding[0, 3] = False
        with pytest.raises(NotImplementedError, match="padded"):
            ringattn.transformers.mask(1, 20, 20, attention_mask=padding)


def test_generation_refuses_what_it_cannot_do():
    theirs, mine = (transformers.AutoModelForCausalLM.from_config(
        decoder("llama"), attn_implementation=name) for name in ("sdpa", "ringattn"))
    for model, ids, more, sentence in (
            (theirs, tokens(1, 8), {}, "does not use ringattn"),
            (mine, tokens(1, 8).float(), {}, "a tensor of int64"),
            (mine, tokens(1, 8)[0], {}, r"\[batch, tokens\]"),
            (mine, [[1, 2]], {}, "input_ids is list"),
            (mine, tokens(1, 8), {"max_new_tokens": -1}, "whole number"),
            (mine, tokens(1, 8), {"choose": 5}, "function of the logits"),
            (mine, tokens(1, 8), {}, "not initialized")):
        with pytest.raises(ValueError, match=sentence):
            ringattn.transformers.generate(model, ids, **{"max_new_tokens": 3, **more})


def test_attentions_are_refused():
    _, mine = pair(decoder("llama"), transformers.AutoModelForCausalLM)
    with pytest.raises(NotImplementedError, match="never stored"):
        mine(tokens(1, 8), output_attentions=True)
