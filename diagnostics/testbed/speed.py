"""Attention within units of equal size in one call; the library makes one a unit, which is slow on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

__all__ = ["units_at_once"]


@contextmanager
def units_at_once(model: Qwen3VLForConditionalGeneration) -> Iterator[None]:
    """Inside, the vision tower's attention takes all units of a batch at once. The numbers stay the same."""
    attentions = [block.attn for block in model.model.visual.blocks]
    for attention in attentions:
        attention.forward = MethodType(_forward, attention)
    try:
        yield
    finally:
        for attention in attentions:
            del attention.forward


def _forward(
    self: Any,
    hidden_states: Float[Tensor, "patch width"],
    cu_seqlens: Int[Tensor, " edge"],
    position_embeddings: tuple[Tensor, Tensor],
    **_: Any,
) -> Float[Tensor, "patch width"]:
    n_units = len(cu_seqlens) - 1
    if hidden_states.shape[0] != n_units * int(cu_seqlens[1]):
        raise ValueError("units of different sizes in one batch")
    query, key, value = rearrange(
        self.qkv(hidden_states),
        "patch (three head width) -> three patch head width",
        three=3,
        head=self.num_heads,
    )
    query, key = apply_rotary_pos_emb_vision(query, key, *position_embeddings)
    query, key, value = (
        rearrange(part, "(unit patch) head width -> unit head patch width", unit=n_units)
        for part in (query, key, value)
    )
    mixed = scaled_dot_product_attention(query, key, value, scale=self.scaling)
    return self.proj(rearrange(mixed, "unit head patch width -> (unit patch) (head width)"))
