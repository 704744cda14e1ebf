"""What a prompt costs a model: operations and memory, from the architecture alone.

Operations are those of matrix products, two for each weight and position, and those of attention: two
products of `width` for each pair of query and key, in each layer. Pairs are counted without regard to
causality, as is usual (PaLM, arXiv 2204.02311, appendix B; Scaling Laws, arXiv 2001.08361, section 2.1):
kernels that skip the masked half do less. Norms, activations, rotary positions and softmax are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hooks
from diagnostics.errors import ConfigError
from diagnostics.models.loading import LoadedModel

__all__ = ["Memory", "Shape", "Work", "shape_of"]

_PATCHES = ("blocks.", "patch_embed.")
"""Parts of a vision tower that see single patches; its others (mergers) see merged ones."""
_LOOKED_UP = ("pos_embed.",)
"""Tables of which rows are taken: no product."""
_SIZES = (
    "hidden_size",
    "in_channels",
    "intermediate_size",
    "patch_size",
    "spatial_merge_size",
    "temporal_patch_size",
)
"""What the sums need to know of a vision tower: its configuration in the Qwen-VL models' words."""
_FLOAT32 = 4


@dataclass(frozen=True)
class Work:
    """Prompts that are run in one go: a part they share, run once, and what follows it in each.

    Attributes:
        grids: units, rows and columns of patches of each video that is encoded.
        prefix: tokens run first.
        suffixes: tokens of each prompt after those; none where a prompt is run whole, as the prefix.
        asked: positions whose logits are computed.
    """

    grids: Sequence[tuple[int, int, int]]
    prefix: int
    suffixes: Sequence[int] = ()
    asked: int = 1

    @property
    def tokens(self) -> int:
        """Positions that pass through the language model."""
        return self.prefix + sum(self.suffixes)

    @property
    def patches(self) -> int:
        """Patches that pass through the vision tower."""
        return sum(math.prod(grid) for grid in self.grids)

    @property
    def pairs(self) -> int:
        """Pairs of query and key in each layer: what follows is one packed row that sees the prefix and,
        masked, all of itself (`backends.shared_prefix`)."""
        return self.prefix**2 + sum(self.suffixes) * self.tokens if self.suffixes else self.prefix**2


@dataclass(frozen=True)
class Memory:
    """Bytes that a prompt needs; `activations` is an estimate, the others are exact."""

    weights: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.activations


@dataclass(frozen=True)
class Shape:
    """Sizes of a vision-language model.

    Attributes:
        parameters: all of them. item_bytes: bytes of one number, as loaded.
        patch_weights, merged_weights: weights that multiply each patch, each visual token.
        text_weights: weights that multiply each position; of a mixture of experts, the chosen ones.
        head_weights: weights of the output head.
        layers, width, key_value_width, hidden, intermediate, vocabulary: of the language model; `layers` are
            those that attend, `width` is heads x head size.
        vision: the vision tower's configuration. family: tells its pairs (`vision_pairs`).
    """

    parameters: int
    item_bytes: int
    patch_weights: int
    merged_weights: int
    text_weights: int
    head_weights: int
    layers: int
    width: int
    key_value_width: int
    hidden: int
    intermediate: int
    vocabulary: int
    vision: Any
    family: hooks.Family

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as loaded."""
        return self.parameters * self.item_bytes

    def flops(self, work: Work) -> int:
        """Operations of a prefill, those of the vision tower among them."""
        merged = work.patches // self.vision.spatial_merge_size**2
        products = (
            self.patch_weights * work.patches
            + self.merged_weights * merged
            + self.text_weights * work.tokens
            + self.head_weights * work.asked
        )
        seen = sum(self.family.vision_pairs(self.vision, grid) for grid in work.grids)
        return 2 * products + 4 * (self.vision.hidden_size * seen + self.layers * self.width * work.pairs)

    def cache_bytes(self, tokens: int) -> int:
        """Keys and values of so many positions in every layer."""
        return 2 * self.layers * self.key_value_width * tokens * self.item_bytes

    def memory(self, work: Work, new_tokens: int) -> Memory:
        """What a prefill and its replies need at once.

        Activations: inputs and deep features of the vision tower stay, the widest layer of tower or language
        model comes and goes. For each position that is residual, its norm, queries, keys and values (those
        repeated to the number of heads), the attention's output and three rows of the feed-forward part.
        """
        return Memory(
            weights=self.weight_bytes,
            cache=self.cache_bytes(work.tokens + len(work.suffixes or (0,)) * new_tokens),
            activations=self._activations(work),
        )

    def _activations(self, work: Work) -> int:
        vision, item = self.vision, self.item_bytes
        pixels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        merged = work.patches // vision.spatial_merge_size**2
        deep = 1 + len(getattr(vision, "deepstack_visual_indexes", ()))
        held = work.patches * pixels * (_FLOAT32 + item) + merged * self.hidden * deep * item
        tower = work.patches * (7 * vision.hidden_size + 2 * vision.intermediate_size) * item
        longest = max(work.prefix, sum(work.suffixes))
        text = longest * (3 * self.hidden + 2 * self.width + 3 * self.intermediate) * item
        text += 2 * work.tokens * self.width * item
        mask = sum(work.suffixes) * work.tokens
        return held + max(tower, text + mask) + work.asked * self.vocabulary * (item + _FLOAT32)


def shape_of(loaded: LoadedModel) -> Shape:
    """The sizes of a model, with or without weights (`loading.outline_model`).

    Raises:
        ConfigError: its vision tower is not built like those of the Qwen-VL models, of which these sums are.
    """
    model = loaded.model
    family = hooks.family_of(model)
    text, tower, decoder = model.config.get_text_config(), family.vision(model), family.layers(model)
    chosen = getattr(text, "num_experts_per_tok", None)
    share = chosen / (getattr(text, "num_experts", None) or text.n_routed_experts) if chosen else 1.0
    patch = merged = 0
    for name, weight in tower.named_parameters():
        if weight.ndim < 2 or name.startswith(_LOOKED_UP):
            continue
        if name.startswith(_PATCHES):
            patch += weight.numel()
        else:
            merged += weight.numel()
    vision = getattr(model.config, "vision_config", None)
    lacking = [name for name in _SIZES if not hasattr(vision, name)]
    if lacking or not patch:
        raise ConfigError(
            f"What the vision tower of {loaded.family.name} costs is not known: it has no "
            f"{lacking[0] if lacking else ' and no '.join(_PATCHES)}.",
            remedy="Run the experiment on a few items with data.limit: times.csv has their seconds.",
        )
    # Three axes: the experts' weights, stacked.
    active = sum(
        weight.numel() * (share if weight.ndim == 3 else 1.0)
        for weight in decoder.parameters()
        if weight.ndim >= 2
    )
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sparse = getattr(text, "moe_intermediate_size", 0) * (chosen or 0)
    return Shape(
        parameters=sum(weight.numel() for weight in model.parameters()),
        item_bytes=model.dtype.itemsize,
        patch_weights=patch,
        merged_weights=merged,
        text_weights=round(active),
        head_weights=model.get_output_embeddings().weight.numel(),
        layers=len(family.attention_layers(model)),
        width=text.num_attention_heads * head_size,
        key_value_width=text.num_key_value_heads * head_size,
        hidden=text.hidden_size,
        intermediate=sparse or text.intermediate_size,
        vocabulary=text.vocab_size,
        vision=model.config.vision_config,
        family=loaded.family,
    )
