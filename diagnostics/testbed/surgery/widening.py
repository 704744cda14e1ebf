"""One attention head's logits multiplied by a known factor, in a model whose queries are normalised.

Qwen3 normalises the query of each head (RMSNorm over the head's dimensions, one weight vector a layer),
so that a larger query projection changes nothing. Here the head dimension is enlarged fourfold, and the
room is used: a part of the query is moved into dimensions where every key is zero. It counts in the
query's length, which the norm keeps, and not in the logits. With a share r of its length left where the
keys are, and sqrt(1 - r^2) moved, a head's logits are multiplied by exactly r.

Rotary positions stay what they are: frequency i of n is theta^(-i/n), hence frequency 4i of 4n, and as
4i = i (mod 3) it keeps its axis in Qwen3-VL's interleaving of time, height and width. Norms: a vector of
four times the dimensions, a quarter of them in use, is given twice the length, so that its mean square is
what it was; the logits' scale 1/sqrt(dimension) is halved and the queries' weights with it. All of these
are powers of two: with r = 1 the numbers are the original's up to the order of summation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration

__all__ = ["LayerHeads", "widened"]

_TIMES = 4
"""How many dimensions for one: the least above 1 that leaves every frequency its axis (4 = 1 mod 3)."""


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer of the new model, told by the old one's.

    Attributes:
        queries: of each head, the old head whose query it has.
        keys: of each key-value head, the old one that it is.
        factors: of each head, by what its logits are multiplied: 0 or more, not all 0. With 0 it attends to
            every position alike.
        silent: heads whose output is multiplied by zero.
    """

    queries: Sequence[int]
    keys: Sequence[int]
    factors: Sequence[float]
    silent: Sequence[int] = ()


def widened(
    source: Qwen3VLForConditionalGeneration, layers: Sequence[LayerHeads]
) -> Qwen3VLForConditionalGeneration:
    """A copy of `source` with these heads; everything but attention is as it was.

    Args:
        source: a Qwen3-VL with the default rotary positions, interleaved.
        layers: one entry a layer, all with the same numbers of heads.
    """
    config = copy.deepcopy(source.config)
    text: Any = config.text_config
    old = text.head_dim
    text.head_dim = _TIMES * old
    text.num_attention_heads = len(layers[0].queries)
    text.num_key_value_heads = len(layers[0].keys)
    section = text.rope_parameters["mrope_section"]
    text.rope_parameters["mrope_section"] = [_TIMES * part for part in section]
    model = Qwen3VLForConditionalGeneration(config).eval()
    weights = {name: value for name, value in source.state_dict().items() if ".self_attn." not in name}
    kept = _places(old)
    for number, heads in enumerate(layers):
        attention: Any = source.model.language_model.layers[number].self_attn
        prefix = f"model.language_model.layers.{number}.self_attn."
        tensors = {name: value.detach() for name, value in attention.named_parameters()}
        weights |= {prefix + name: value for name, value in _attention(tensors, heads, kept, old).items()}
    model.load_state_dict(weights)
    return model


def _places(old: int) -> Int[np.ndarray, " old"]:
    """Where each old dimension stands: dimensions i and i + old/2 are the pair that frequency i turns."""
    half = old // 2
    first = _TIMES * np.arange(half)
    return np.concatenate([first, first + _TIMES * half])


def _attention(
    old: dict[str, Tensor], heads: LayerHeads, kept: Int[np.ndarray, " old"], dim: int
) -> dict[str, Tensor]:
    spare = kept + 1  # pairs of their own, turned together
    together = max(heads.factors)
    query = _by_head(old["q_proj.weight"], dim)[list(heads.queries)]
    key = _by_head(old["k_proj.weight"], dim)[list(heads.keys)]
    value = _by_head(old["v_proj.weight"], dim)[list(heads.keys)]
    out = rearrange(old["o_proj.weight"], "out (head dim) -> head dim out", dim=dim)[list(heads.queries)]
    left = torch.tensor([factor / together for factor in heads.factors], dtype=torch.float64)
    moved = torch.sqrt(1 - left**2)
    length = float(np.sqrt(_TIMES))
    new_query, new_key, new_value, new_out = (
        part.new_zeros(part.shape[0], _TIMES * dim, part.shape[2]) for part in (query, key, value, out)
    )
    new_query[:, kept] = length * left.float()[:, None, None] * query
    new_query[:, spare] = length * moved.float()[:, None, None] * query
    new_key[:, kept] = length * key
    new_value[:, kept], new_out[:, kept] = value, out
    new_out[list(heads.silent)] = 0
    query_norm, key_norm = (old[name].new_zeros(_TIMES * dim) for name in ("q_norm.weight", "k_norm.weight"))
    query_norm[kept] = old["q_norm.weight"] * together / length
    key_norm[kept] = old["k_norm.weight"]
    return {
        "q_proj.weight": rearrange(new_query, "head dim width -> (head dim) width"),
        "k_proj.weight": rearrange(new_key, "head dim width -> (head dim) width"),
        "v_proj.weight": rearrange(new_value, "head dim width -> (head dim) width"),
        "o_proj.weight": rearrange(new_out, "head dim out -> out (head dim)"),
        "q_norm.weight": query_norm,
        "k_norm.weight": key_norm,
    }


def _by_head(weight: Float[Tensor, "row width"], dim: int) -> Float[Tensor, "head dim width"]:
    return rearrange(weight, "(head dim) width -> head dim width", dim=dim)
