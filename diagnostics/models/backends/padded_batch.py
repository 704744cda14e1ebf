"""Questions about different videos in one pass: prompts of like length, padded on the left.

For benchmarks that ask one question a video, where nothing is shared (`shared_prefix`). Rotary positions are
each prompt's own; what stands before a prompt is seen by nobody. Short clips gain by it on a GPU, which one
short prompt does not fill; long videos do not, and padding costs what lengths differ by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

import hooks
from diagnostics.errors import SharingError
from diagnostics.models.backends.shared_prefix import (
    Decoded,
    cache_argument,
    position_argument,
    prompt_positions,
)
from diagnostics.models.loading import LoadedModel

__all__ = ["answer_padded"]

_BY_TOKEN = ("input_ids", "mm_token_type_ids")


@torch.inference_mode()
def answer_padded(
    loaded: LoadedModel, inputs: Sequence[Mapping[str, Any]], max_new_tokens: int, ends: set[int]
) -> list[Decoded]:
    """Greedy replies to prompts of one row each, in one padded batch.

    Args:
        inputs: of each prompt, on the CPU, with the same keys.
        max_new_tokens: of each reply, at most.
        ends: tokens that end a reply.

    Raises:
        SharingError: the prompts have sound, or the model gives no states without its head.
    """
    base = hooks.family_of(loaded.model).base(loaded.model)
    if base is loaded.model:
        raise SharingError(
            f"{loaded.config.name} gives no states without its head.", remedy="Set backend.batch=1."
        )
    lengths = torch.tensor([one["input_ids"].shape[1] for one in inputs])
    positions = [prompt_positions(loaded, one) for one in inputs]
    largest = torch.tensor([int(one.max()) for one in positions])
    cache = DynamicCache(config=loaded.model.config.get_text_config())
    seen = torch.arange(int(lengths.max()))[None] >= (lengths.max() - lengths)[:, None]

    def run(
        given: Mapping[str, Any], at: Int[Tensor, "axis row position"]
    ) -> Float[Tensor, "row vocabulary"]:
        hidden = base(
            **given,
            attention_mask=seen.long().to(loaded.device),
            position_ids=position_argument(at.to(loaded.device)),
            use_cache=True,
            **{cache_argument(base): cache},
        ).last_hidden_state[:, -1]
        return loaded.model.get_output_embeddings()(hidden).float()

    logits = run(
        _batch(loaded, inputs), torch.cat([_padded(one, int(lengths.max())) for one in positions], 1)
    )
    replies = [Decoded(row, [], int(last)) for row, last in zip(logits, largest, strict=True)]
    going = [True] * len(inputs)
    # Text goes on after its prompt's last position, which is not always the largest.
    following = torch.tensor([one[..., -1].max().item() + 1 for one in positions])
    for step in range(max_new_tokens):
        said = logits.argmax(dim=-1)
        for place, token in enumerate(said.tolist()):
            if going[place]:
                replies[place].tokens.append(token)
                going[place] = token not in ends
        if not any(going) or step == max_new_tokens - 1:
            break
        seen = torch.cat([seen, torch.ones(len(inputs), 1, dtype=torch.bool)], dim=1)
        at = (following + step).expand(positions[0].shape[0], -1)[..., None]
        logits = run({"input_ids": said[:, None]}, at)
    return replies


def _batch(loaded: LoadedModel, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The prompts' tensors in one batch, on the device: tokens padded, pictures one after another."""
    length = max(one["input_ids"].shape[1] for one in inputs)
    padding = loaded.processor.tokenizer.pad_token_id
    batch: dict[str, Any] = {}
    if any("feature_attention_mask" in one for one in inputs):
        raise SharingError("Prompts with sound are not padded together.", remedy="Set backend.batch=1.")
    for name in inputs[0]:
        if name in ("attention_mask", "position_ids"):
            continue
        values = [one[name] for one in inputs]
        if name in _BY_TOKEN:
            fill = padding if name == "input_ids" else 0
            rows = torch.cat([_padded(value, length, fill) for value in values])
            batch[name] = rows.to(loaded.device)
        elif isinstance(values[0], Tensor):
            batch[name] = loaded.family.joined(name, inputs).to(loaded.device)
        else:  # seconds a unit, one entry a video
            batch[name] = [entry for value in values for entry in value]
    return batch


def _padded(values: Tensor, length: int, fill: int = 0) -> Tensor:
    """Along the last axis, on the left."""
    return torch.nn.functional.pad(values, (length - values.shape[-1], 0), value=fill)
