"""Asking a model the same item under many conditions, and what each answer leaves behind.

The recipes of the research questions differ in what they show (`showing`) and in what they make of the
answers; the asking itself is the same, and is here. With `attention` the same forward also tells where
the question's tokens looked.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.errors import ObservationError
from diagnostics.experiments.context import Context
from diagnostics.experiments.definitions import Definition, head_mask
from diagnostics.experiments.drift_measures import RoleMass, ShownUnits, measure_definition
from diagnostics.experiments.drift_record import (
    position_warnings,
    prompt_fields,
)
from diagnostics.experiments.pairs import Measured, Pair
from diagnostics.experiments.replies import answer_fields, choice_measure
from diagnostics.experiments.showing import Source
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Reply
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, prepare_inputs

__all__ = ["Asking", "log_odds", "unit_names"]

_HEADLINE = Definition("question")
"""Attention is summed over a unit's tokens, heads are averaged: the plain names of `probes.MEASURES`."""


class Asking:
    """The measurement of a pair: answer, option log-odds, evidence shown, and where the model looked.

    Use inside `with`: hooks that save work stay attached to the model until the end.

    Args:
        context: of the run.
        attention: of videos, also capture the question's attention over units, and the units' embeddings.
    """

    def __init__(self, context: Context, *, attention: bool = False) -> None:
        self._context, self._attention = context, attention
        self._stack = ExitStack()
        self._reuse: hooks.UnitReuse | None = None
        self._checked = False
        self._given: dict[object, tuple[Reply, dict[str, float]]] = {}
        self._given_of = ""

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, pair: Pair, source: Source, max_new_tokens: int | None = None) -> Measured:
        """Ask one pair; raises `ObservationError` where the model cannot be observed.

        Args:
            max_new_tokens: of the reply, instead of the backend's.
        """
        try:
            return self._ask(source, max_new_tokens or self._context.config.backend.max_new_tokens)
        except hooks.HooksError as error:
            raise ObservationError(error.problem, remedy=error.remedy, path=pair.item.video) from error

    def _ask(self, source: Source, max_new_tokens: int) -> Measured:
        loaded, backend, item = self._context.model, self._context.config.backend, source.item
        if self._reuse is None:
            self._reuse = self._stack.enter_context(hooks.reuse_units(loaded.model))
        started = time.perf_counter()
        prompt = prepare_inputs(
            loaded,
            item,
            source.frames,
            instruction=backend.instruction,
            max_new_tokens=max_new_tokens,
            form=source.form,
            frame_pixels=source.frame_pixels,
        )
        tokens = self._tokens(loaded, prompt, source)
        inputs = prompt.inputs.to(loaded.device)
        prepared = time.perf_counter()
        fields: dict[str, Any] = {"warnings": [*prompt.notices]}
        measures = _shown_measures(item, source)
        fields["warnings"] += position_warnings(loaded, inputs)
        if tokens is None:
            fields |= {"n_prompt_tokens": prompt.n_tokens, "prompt_sha256": prompt.sha256}
        else:
            fields |= prompt_fields(prompt, tokens)
        reply, looked = self._reply(loaded, inputs, tokens, source, max_new_tokens)
        measures |= looked
        if reply.cut and not item.options:  # a letter comes first; what else is said does not matter
            fields["warnings"].append(f"cut_reply: the reply goes on after {max_new_tokens} tokens")
        fields |= answer_fields(item, reply)
        fields["measures"] = measures | choice_measure(item, reply) | _log_odds(source, reply)
        if source.foil is not None:
            fields["measures"]["foil_answered"] = float(fields.get("answer") == source.foil)
        fields["seconds"] = {"prepare": prepared - started, "generate": time.perf_counter() - prepared}
        return Measured(fields)

    def _tokens(self, loaded: LoadedModel, prompt: Prompt, source: Source) -> hooks.TokenMap | None:
        """The map of the prompt; None for text alone."""
        if source.form == "nothing":
            return None
        return hooks.token_map(
            loaded.model,
            loaded.processor,
            prompt.inputs,
            question=prompt.question,
            options=prompt.options or None,
            n_frames=len(source.frames.selection) if source.form == "video" else None,
        )

    def _reply(
        self,
        loaded: LoadedModel,
        inputs: Any,
        tokens: hooks.TokenMap | None,
        source: Source,
        max_new_tokens: int,
    ) -> tuple[Reply, dict[str, float]]:
        """The answer, and where the model looked; those of before where this item was asked just this.

        Conditions can come to one prompt: a resolution that is held where it would not have changed, a dose
        that is clipped, the largest rung of two ladders, an order of one piece. Decoding is greedy.
        """
        assert self._reuse is not None
        if self._given_of != source.item.id:
            self._given, self._given_of = {}, source.item.id
        asked = _prompt_key(source, inputs, max_new_tokens)
        if asked not in self._given:
            if tokens is None or source.form == "images":
                self._given[asked] = answer(loaded, inputs, source.item, max_new_tokens), {}
            else:
                with self._reuse.units(unit_names(source, tokens)):
                    if self._attention:
                        found = self._observe(loaded, inputs, tokens, source, max_new_tokens)
                    else:
                        found = answer(loaded, inputs, source.item, max_new_tokens), {}
                self._given[asked] = found
        return self._given[asked]

    def _observe(
        self,
        loaded: LoadedModel,
        inputs: Any,
        tokens: hooks.TokenMap,
        source: Source,
        max_new_tokens: int,
    ) -> tuple[Reply, dict[str, float]]:
        """The answer, and concentration, evidence alignment and unit similarity of the same forward."""
        rows = {"question": tokens.rows("question")}
        if not self._checked:
            check = hooks.verify_capture(loaded.model, inputs, tokens, rows)
            self._context.folder.note("capture", asdict(check))
            self._checked = True
        with (
            hooks.visual_features(loaded.model, tokens, ("projector",)) as features,
            hooks.attention_rows(loaded.model, tokens, rows=rows) as captured,
        ):
            reply = answer(loaded, inputs, source.item, max_new_tokens)
        localised = source.item.local_evidence is not None
        shown = ShownUnits.of(source.frames.selection, tokens.unit_slots, source.item)
        mass = RoleMass(captured.unit_mass("question"), captured.rest_mass("question"))
        taken = head_mask(_HEADLINE, mass.units)
        found = measure_definition(_HEADLINE, mass, taken, shown, tokens.tokens_per_unit, localised)
        units = probes.unit_embeddings(features["projector"], tokens.unit[tokens.visual])
        return reply, found.measures() | {"unit_similarity": probes.pair_similarity(units).mean}


def _prompt_key(source: Source, inputs: Any, max_new_tokens: int) -> object:
    """What an answer depends on, within a run: the pictures by name, and every input but their pixels.

    Pixels follow from frame, size as read, JPEG and grid, as in `unit_names`; hashing them would cost more.
    """
    digest = hashlib.sha256()
    for name, value in sorted(inputs.items()):
        if not name.startswith("pixel_values"):
            told = value.cpu().numpy().tobytes() if hasattr(value, "cpu") else repr(value).encode()
            digest.update(f"{name}:{len(told)}:".encode() + told)
    pictures = (source.frames.selection.slots, source.frames.pixels.shape[1:3], source.jpeg, source.form)
    # Beside the letters: an item changed by the recipe has its own options and right answer.
    return source.item.options, source.item.answer, pictures, max_new_tokens, digest.digest()


def unit_names(source: Source, tokens: hooks.TokenMap) -> list[tuple[object, ...]]:
    """What each temporal unit of a video shows: units of the same name have the same pictures.

    A picture is that of its video and frame, at the size it was read or made equal to, through JPEG or not;
    what the processor makes of it, `hooks.reuse_units` adds. Where the reader's settings change, a run does.
    """
    slots = source.frames.selection.slots
    size = (*source.frames.pixels.shape[1:3], source.jpeg)
    return [
        (size, *((slots[slot].source, slots[slot].frame_index) for slot in unit if slot >= 0))
        for unit in tokens.unit_slots.tolist()
    ]


def log_odds(logits: Float[np.ndarray, " option"], option: int) -> float:
    """Log-odds of one option's letter against the others': log p - log sum p(others), among options alone."""
    return float(logits[option] - logsumexp(np.delete(logits, option)))


def _log_odds(source: Source, reply: Reply) -> dict[str, float]:
    """Those of the right option and of the foil; nothing where letters are no single tokens."""
    item = source.item
    if len(reply.option_logits) < 2:
        return {}
    logits = np.asarray(reply.option_logits, dtype=np.float64)
    asked = {"gold_log_odds": item.answer, "foil_log_odds": source.foil}
    return {
        name: log_odds(logits, item.letters.index(letter))
        for name, letter in asked.items()
        if letter is not None
    }


def _shown_measures(item: Item, source: Source) -> dict[str, float]:
    """How much of the evidence the selection shows: slots that hold it, in all and by window; windows hit."""
    evidence, selection = item.local_evidence, source.frames.selection
    if evidence is None or source.form == "nothing":
        return {}
    slots = [
        int(selection.holds(replace(evidence, windows=(one,)), item.video_id).sum())
        for one in evidence.windows
    ]
    hit = [count > 0 for count in slots]
    return {
        "evidence_slots": float(selection.holds(evidence, item.video_id).sum()),
        "evidence_slots_per_window": float(np.mean(slots)),
        "windows_hit": float(np.mean(hit)),
        "any_window_hit": float(any(hit)),
        "all_windows_hit": float(all(hit)),
    }
