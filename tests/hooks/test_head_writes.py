"""What heads write, against the attention module's own output and against the model's logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 1e-5


def _run(bench, inputs, position=None):
    tokens = hooks.token_map(bench.model, bench.processor, inputs)
    outputs: dict[str, list] = {"attention": [], "mlp": []}
    handles = []
    for layer in bench.model.model.language_model.layers:
        for name, module in (("attention", layer.self_attn), ("mlp", layer.mlp)):

            def keep(_module, _args, output, name=name):
                outputs[name].append((output[0] if isinstance(output, tuple) else output)[0])

            handles.append(module.register_forward_hook(keep))
    with torch.no_grad(), hooks.head_writes(bench.model, tokens, position) as writes:
        logits = bench.model(**inputs).logits[0]
    for handle in handles:
        handle.remove()
    return writes, logits, outputs, tokens


def test_heads_add_up_to_the_attention_modules_output(bench):
    inputs = bench.prompt(frames=4)
    for position in (None, 7):
        writes, _, outputs, _ = _run(bench, inputs, position)
        vectors = writes.vectors()
        assert vectors.shape[:2] == (3, 4)
        for layer in range(3):
            wanted = outputs["attention"][layer][writes.position].numpy()
            assert np.abs(vectors[layer].sum(0) - wanted).max() <= TOLERANCE


def test_attributions_of_all_parts_are_the_logits(bench):
    """Embedding, heads and MLPs together; the last token gets nothing from DeepStack."""
    inputs = bench.prompt(frames=4)
    writes, logits, outputs, _ = _run(bench, inputs)
    ids = [3, 50, 200]
    heads = writes.attribution(ids).sum(axis=(0, 1))
    text = bench.model.model.language_model
    with torch.no_grad():
        stream = text.embed_tokens(inputs["input_ids"][0, -1])
        stream = stream + sum(mlp[-1] for mlp in outputs["mlp"])
        final = stream + sum(one[-1] for one in outputs["attention"])
        scale = text.norm.weight * torch.rsqrt(final.square().mean() + text.norm.variance_epsilon)
        rest = (bench.model.lm_head.weight[ids] @ (stream * scale)).numpy()
    wanted = logits[-1].numpy()
    assert np.abs(heads + rest - wanted[ids]).max() <= TOLERANCE * np.abs(wanted).max()


def test_a_silenced_head_writes_nothing(bench):
    inputs = bench.prompt(frames=4)
    tokens = hooks.token_map(bench.model, bench.processor, inputs)
    with (
        torch.no_grad(),
        hooks.scale_heads(bench.model, {(1, 2): 0.0}),
        hooks.head_writes(bench.model, tokens) as writes,
    ):
        bench.model(**inputs)
    vectors = writes.vectors()
    assert not vectors[1, 2].any()
    assert vectors[1, 1].any()


def test_misuse_is_told(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = hooks.token_map(qwen3.model, qwen3.processor, inputs)
    with pytest.raises(hooks.CaptureError, match="not in a prompt"):
        hooks.head_writes(qwen3.model, tokens, len(tokens)).__enter__()
    with torch.no_grad(), hooks.head_writes(qwen3.model, tokens) as writes:
        with pytest.raises(hooks.CaptureError, match="have not been captured"):
            writes.attribution([1])
        qwen3.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="passed twice"):
            qwen3.model(**inputs)
    assert not any(module._forward_pre_hooks for module in qwen3.model.modules())
