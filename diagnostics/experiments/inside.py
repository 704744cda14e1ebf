"""What the experiments that reach inside the model share: one item's prompt, mapped, and its answer.

    look = look_inside(context, source.item, source.frames)
    with reported(pair.item):
        reply = answered(context, look)
        with hooks.knock_out(context.model.model, look.tokens, "video_to_last"):
            logits = option_logits(context.model, look)

An intervention is judged by the logits of the options' letters as the first token of the reply: one forward,
nothing generated. The reply itself is generated once, without any intervention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

import hooks
from diagnostics.data.items import Item
from diagnostics.errors import ItemError, ObservationError
from diagnostics.experiments.context import Context
from diagnostics.experiments.drift_measures import ShownUnits
from diagnostics.experiments.drift_record import (
    position_warnings,
    prompt_fields,
    tokens_part,
    units_part,
)
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.replies import answer_fields, choice_measure
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Reply
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, letter_tokens, prepare_inputs
from diagnostics.store import tensor_parts as parts
from diagnostics.store.manifest import package_versions
from diagnostics.video.selection import Frames

__all__ = [
    "Look",
    "answered",
    "knockout_notices",
    "look_inside",
    "option_logits",
    "record_fields",
    "reported",
    "tensor_fields",
]


@dataclass(frozen=True, eq=False)
class Look:
    """One item as the model is given it.

    Attributes:
        item: what is asked, its evidence checked against the video.
        prompt: of the item, its tensors still on the CPU.
        inputs: the same tensors on the model's device.
        tokens: the map of the prompt.
        shown: what each temporal unit shows.
        letters: the token of each option's letter; none for an open-ended item.
    """

    item: Item
    prompt: Prompt
    inputs: Any
    tokens: hooks.TokenMap
    shown: ShownUnits
    letters: tuple[int, ...]

    @property
    def gold(self) -> int:
        """The place of the right option; raises `ItemError` where none is known."""
        if not self.letters or self.item.answer is None:
            raise ItemError(
                "The item has no options, no right one, or letters that are not one token each.",
                remedy="Leave it out of experiments that follow the right option.",
                item_id=self.item.id,
            )
        return self.item.letters.index(self.item.answer)

    @property
    def evidence_units(self) -> Bool[np.ndarray, " unit"]:
        """Which temporal units show evidence in any of their slots."""
        return np.asarray(self.shown.evidence.any(axis=1))


def look_inside(
    context: Context,
    item: Item,
    frames: Frames,
    loaded: LoadedModel | None = None,
    *,
    instruction: str | None = None,
    max_new_tokens: int | None = None,
) -> Look:
    """Prepare and map the prompt of one item with these frames; raises as `prepare_inputs` does.

    Args:
        loaded: another model than the run's.
        instruction, max_new_tokens: others than the backend's.
    """
    loaded, backend = loaded or context.model, context.config.backend
    prompt = prepare_inputs(
        loaded,
        item,
        frames,
        instruction=backend.instruction if instruction is None else instruction,
        max_new_tokens=max_new_tokens or backend.max_new_tokens,
    )
    with reported(item):
        tokens = hooks.token_map(
            loaded.model,
            loaded.processor,
            prompt.inputs,
            question=prompt.question,
            options=prompt.options or None,
            n_frames=len(frames.selection),
        )
    return Look(
        item=item,
        prompt=prompt,
        inputs=prompt.inputs.to(loaded.device),
        tokens=tokens,
        shown=ShownUnits.of(frames.selection, tokens.unit_slots, item),
        letters=tuple(letter_tokens(loaded.processor.tokenizer, item)),
    )


@contextmanager
def reported(item: Item) -> Iterator[None]:
    """Errors of `hooks` inside the block become errors about this item."""
    try:
        yield
    except hooks.HooksError as error:
        raise ObservationError(error.problem, remedy=error.remedy, path=item.video) from error


def answered(context: Context, look: Look) -> Reply:
    """The model's own answer, nothing done to it; hooks that only watch may be attached."""
    return answer(context.model, look.inputs, look.item, context.config.backend.max_new_tokens)


@torch.inference_mode()
def option_logits(loaded: LoadedModel, look: Look) -> Float[np.ndarray, " option"]:
    """Logits of the options' letters after one forward, under whatever is attached to the model."""
    logits = loaded.model(**look.inputs, logits_to_keep=1, use_cache=False).logits[0, -1]
    return logits[list(look.letters)].double().cpu().numpy()


def knockout_notices(loaded: LoadedModel) -> list[str]:
    """What to say of pairs blocked in a hybrid model, some of whose layers do not attend; else nothing."""
    attending = len(loaded.family.attention_layers(loaded.model))
    layers = len(loaded.family.layers(loaded.model))
    if attending == layers:
        return []
    return [
        f"partial_knockout: {attending} of {layers} layers attend; what the others pass on by their state is"
        " not blocked"
    ]


def record_fields(context: Context, look: Look, reply: Reply) -> dict[str, Any]:
    """Record fields of an item's prompt and of its answer; `measures` holds `choice_accuracy`."""
    return {
        **prompt_fields(look.prompt, look.tokens),
        **answer_fields(look.item, reply),
        "measures": choice_measure(look.item, reply),
        "warnings": [*look.prompt.notices, *position_warnings(context.model, look.inputs)],
    }


def tensor_fields(pair: Pair, look: Look, reply: Reply) -> dict[str, Any]:
    """What every tensor file says: `PairTensors(**tensor_fields(...), knockout=...)`."""
    return {
        "item_id": pair.item.id,
        "condition": pair.condition,
        "units": units_part(look.shown),
        "tokens": tokens_part(look.tokens),
        "option": look.item.letters if reply.option_logits else (),
        "answer": parts.Answer(np.array(reply.option_logits, np.float32), reply.text),
        "versions": package_versions(),
    }
