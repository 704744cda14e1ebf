"""Several questions about one video in one pass: its part of the prompt is computed once.

Prompts of one group begin with the same tokens: the conversation's opening and the whole video. That prefix
is run once and its keys and values are kept. What follows it is laid end to end, all questions in one
sequence of one row, with a mask that lets each token see the prefix and what came before it in its own
question (the layout of packed training, and of tree attention).
Nothing is padded, and the prefix is not copied for each question: memory is that of one prompt. Rotary
positions are those of the full prompt: the index of the first one says where its question begins, which is
where all begin, and text goes on one by one (`check_positions` compares with every prompt's own index).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor
from transformers import DynamicCache

import hooks
from diagnostics.errors import SharingError
from diagnostics.models.loading import LoadedModel

__all__ = [
    "Decoded",
    "answer_together",
    "cache_argument",
    "check_positions",
    "common_prefix",
    "position_argument",
    "prompt_positions",
]

_BY_TOKEN = ("input_ids", "attention_mask", "position_ids", "mm_token_type_ids")
"""Inputs that have an entry a token; the others belong to the video and go with the prefix."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """One question's reply.

    Attributes:
        first_logits: of the reply's first token, float32 [vocabulary].
        tokens: of the reply, the end's among them.
        largest_position: the largest rotary position of the prompt.
    """

    first_logits: Float[Tensor, " vocabulary"]
    tokens: list[int]
    largest_position: int


def prompt_positions(loaded: LoadedModel, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
    """Rotary positions of one full prompt: the family's own where it has some, else the model's index."""
    return loaded.family.model_positions(loaded.model, inputs)


def position_argument(positions: Int[Tensor, "axis row position"]) -> Tensor:
    """Positions as the model takes them: where there is one axis, without it."""
    return positions[0] if len(positions) == 1 else positions


def common_prefix(loaded: LoadedModel, inputs: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens all prompts begin with; the last token of each is left to the question.

    Raises:
        SharingError: a prompt has pictures behind what they have in common, or other pictures.
    """
    rows = [one["input_ids"][0] for one in inputs]
    shortest = min(len(row) for row in rows) - 1
    first = rows[0][:shortest]
    equal = torch.stack([row[:shortest] == first for row in rows]).all(dim=0)
    length = shortest if bool(equal.all()) else int((~equal).int().argmax())
    ids = torch.tensor(list(loaded.family.placeholders(loaded.model).values()))
    for row in rows:
        if bool(torch.isin(row[length:], ids).any()):
            raise SharingError(
                f"The prompts of one video have {length} tokens in common, and pictures come after them.",
                remedy="Set backend.sharing=false.",
            )
    return length


def check_positions(loaded: LoadedModel, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Compare the positions that `answer_together` uses with the index of every full prompt.

    Raises:
        SharingError: they differ.
    """
    begin, following = _shared_positions(loaded, inputs[0], common_prefix(loaded, inputs))
    for one in inputs:
        length = one["input_ids"].shape[1]
        used = torch.cat([begin, _text_positions(begin, following, length - begin.shape[-1])], dim=-1)
        if not torch.equal(used, prompt_positions(loaded, one)):
            raise SharingError(
                "A prompt's rotary positions are not those of the first one with another question.",
                remedy="Set backend.sharing=false.",
            )


def _shared_positions(
    loaded: LoadedModel, inputs: Mapping[str, Any], length: int
) -> tuple[Real[Tensor, "axis one position"], float]:
    """Positions of the prefix, and the one after it, from the index of the full prompt. Some families have
    fractions of positions."""
    found = prompt_positions(loaded, inputs)
    return found[..., :length], found[..., length].max().item()


def _text_positions(begin: Tensor, first: float, length: int) -> Real[Tensor, "axis one position"]:
    return (first + torch.arange(length)).to(begin.dtype).expand(begin.shape[0], 1, -1)


@torch.inference_mode()
def answer_together(
    loaded: LoadedModel, inputs: Sequence[Mapping[str, Any]], max_new_tokens: int, ends: set[int]
) -> list[Decoded]:
    """Greedy replies to prompts that show the same video.

    Args:
        inputs: of each prompt, one row each, on the CPU; the first one's pixels are used for all.
        max_new_tokens: of each reply, at most.
        ends: tokens that end a reply.

    Raises:
        SharingError: pictures come after what the prompts have in common, or the model's layers do not keep
            the whole prefix.
    """
    length = common_prefix(loaded, inputs)
    begin, following = _shared_positions(loaded, inputs[0], length)
    packed = _Packed(loaded, _prefill(loaded, inputs[0], begin, length), length)
    suffixes = [one["input_ids"][0, length:] for one in inputs]
    lengths = torch.tensor([len(suffix) for suffix in suffixes])
    hidden = packed.run(
        torch.cat(suffixes),
        torch.cat([_text_positions(begin, following, len(suffix)) for suffix in suffixes], dim=-1),
        torch.repeat_interleave(torch.arange(len(inputs)), lengths),
    )
    logits = packed.logits(hidden[(lengths.cumsum(0) - 1).to(hidden.device)])
    next_position = following + lengths
    largest = torch.clamp(next_position - 1, min=int(begin.max()))
    replies = [Decoded(row, [], int(last)) for row, last in zip(logits, largest, strict=True)]
    going = list(range(len(inputs)))
    for step in range(max_new_tokens):
        said = logits.argmax(dim=-1).tolist()
        for place, token in zip(going, said, strict=True):
            replies[place].tokens.append(token)
        kept = [(place, token) for place, token in zip(going, said, strict=True) if token not in ends]
        if not kept or step == max_new_tokens - 1:
            break
        going = [place for place, _ in kept]
        hidden = packed.run(
            torch.tensor([token for _, token in kept]),
            (next_position[going] + step).expand(begin.shape[0], 1, -1),
            torch.tensor(going),
        )
        logits = packed.logits(hidden)
    return replies


def _prefill(loaded: LoadedModel, inputs: Mapping[str, Any], positions: Tensor, length: int) -> DynamicCache:
    """Keys and values of the first tokens, pictures encoded on the way."""
    model = loaded.model
    base = hooks.family_of(model).base(model)
    cache = DynamicCache(config=model.config.get_text_config())
    if any(cache.is_sliding):
        raise SharingError(
            "Some layers of this model forget what lies further back.", remedy="Set backend.sharing=false."
        )
    device = loaded.device
    given = {name: value for name, value in inputs.items() if name not in _BY_TOKEN}
    given |= {name: inputs[name][:, :length] for name in ("input_ids", "mm_token_type_ids") if name in inputs}
    given = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in given.items()}
    at = position_argument(positions.to(device))
    base(**given, position_ids=at, use_cache=True, **{cache_argument(base): cache})
    return cache


class _Packed:
    """Questions in one row behind a prefix: runs tokens and remembers which question each belongs to."""

    def __init__(self, loaded: LoadedModel, cache: DynamicCache, prefix: int) -> None:
        self._model, self._device = loaded.model, loaded.device
        family = hooks.family_of(loaded.model)
        base = family.base(loaded.model)
        # Where the whole model joins them itself, it returns logits and no hidden states.
        self._base = family.text_model(loaded.model) if base is loaded.model else base
        self._cache, self._prefix = cache, prefix
        self._argument = cache_argument(self._base)
        self._additive = loaded.model.config.get_text_config()._attn_implementation == "eager"
        self._owners = torch.empty(0, dtype=torch.long)

    def run(
        self, tokens: Int[Tensor, " token"], positions: Int[Tensor, "axis one token"], owners: Tensor
    ) -> Float[Tensor, "token width"]:
        """Last hidden states of further tokens, each seeing the prefix and its question's earlier tokens."""
        before = len(self._owners)
        self._owners = torch.cat([self._owners, owners])
        behind = owners[:, None] == self._owners[None]
        behind[:, before:] &= torch.ones(len(owners), len(owners), dtype=torch.bool).tril()
        seen = torch.cat([torch.ones(len(owners), self._prefix, dtype=torch.bool), behind], dim=1)
        output = self._base(
            input_ids=tokens[None].to(self._device),
            position_ids=position_argument(positions.to(self._device)),
            attention_mask=self._mask(seen.to(self._device)),
            use_cache=True,
            **{self._argument: self._cache},
        )
        return output.last_hidden_state[0]

    def logits(self, hidden: Float[Tensor, "row width"]) -> Float[Tensor, "row vocabulary"]:
        """Over the vocabulary, float32."""
        return self._model.get_output_embeddings()(hidden).float()

    def _mask(self, seen: Bool[Tensor, "query key"]) -> Tensor:
        if not self._additive:
            return seen[None, None]
        dtype = self._model.dtype
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
            ~seen, torch.finfo(dtype).min
        )[None, None]


def cache_argument(base: Any) -> str:
    """The name of the forward's cache: `cache` from transformers 5.24 on, where the older one warns."""
    return "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"
