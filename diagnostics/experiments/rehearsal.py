"""What a run leaves on the disk, by writing a few of its files with made-up numbers and weighing them.

Records and tensor files are made by the code that makes the real ones. Prompts, token maps, slots and axes
are the real ones; attention, features and replies are drawn at random. Random numbers compress as badly as
measured ones do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import hooks
from diagnostics.data.items import Item
from diagnostics.experiments import attention_drift
from diagnostics.experiments.drift_measures import Redundancy, ShownUnits
from diagnostics.experiments.film import slots_of
from diagnostics.experiments.pairs import Pair, common_fields, shown_fields, with_source
from diagnostics.experiments.replies import answer_fields, choice_measure
from diagnostics.experiments.showing import Source
from diagnostics.models.backends.requests import Reply
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt
from diagnostics.store.records import Record, to_json
from diagnostics.store.tensors import write_tensors
from diagnostics.store.thumbnails import LARGEST, LONG_SIDE
from diagnostics.video.selection import Frames

__all__ = ["Disk", "answer_disk", "drift_disk"]

_DRAWN_WIDTH = 8
"""Width of made-up features: what is measured on them has the same form at any."""
_THUMBNAIL_BYTES = 0.24
"""Bytes of a thumbnail for each of its pixels: measured on MiniHorizon."""
_REPLY_LETTERS = 4
"""Letters of a token, in free text."""


@dataclass(frozen=True)
class Disk:
    """Bytes of one pair's files."""

    record: float
    tensors: float = 0.0
    thumbnails: float = 0.0


def answer_disk(context: Any, source: Source, prompt: Prompt, n_visual: int) -> Disk:
    """Bytes of a record that holds an answer."""
    item, reply = source.item, _reply(source.item, context.config.backend.max_new_tokens)
    grid = [list(one) for one in prompt.grids]
    fields = {
        **answer_fields(item, reply),
        "grid": grid,
        "n_units": grid[0][0],
        "tokens_per_unit": n_visual // grid[0][0],
        "n_visual_tokens": n_visual,
        "n_prompt_tokens": prompt.n_tokens,
        "prompt_sha256": prompt.sha256,
        "measures": choice_measure(item, reply),
        "seconds": dict.fromkeys(("prepare", "generate", "busy", "idle"), np.pi / 100),
        "warnings": prompt.notices,
    }
    return Disk(
        _weight_of(context, source, fields),
        thumbnails=_thumbnails(slots_of(source, context.config.thumbnails), source.frames),
    )


def drift_disk(
    context: Any,
    config: attention_drift.Config,
    source: Source,
    prompt: Prompt,
    loaded: LoadedModel,
) -> Disk:
    """Bytes of what `attention_drift` keeps of an item.

    Args:
        loaded: with or without weights.
    """
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        pair = Pair(source.item)
        measured = _Rehearsal(context, config, stack, loaded, prompt)(pair, source)
        assert measured.tensors is not None
        per_unit = loaded.family.slots_per_unit(loaded.model)
        film = slots_of(source, context.config.thumbnails, per_unit)
        path = Path(folder) / "tensors.h5"
        write_tensors(path, measured.tensors, durable=False)
        fields = {
            **measured.fields,
            "axes": measured.tensors.axes,
            "tensor_file": f"tensors/{source.item.id}-{'0' * 16}.h5",
        }
        return Disk(
            record=_weight_of(context, source, fields),
            tensors=path.stat().st_size,
            thumbnails=_thumbnails({*film, *measured.thumbnails}, source.frames),
        )


def _weight_of(context: Any, source: Source, fields: Mapping[str, Any]) -> float:
    common = common_fields(context, Pair(source.item)) | shown_fields(source)
    told = {**common, **fields, **with_source(source, fields)}
    record = Record(**told, config_hash="0" * 12, attempt=1)
    return len(to_json(record)) + 1


def _thumbnails(slots: Collection[int], frames: Frames) -> float:
    height, width = frames.pixels.shape[1:3]
    shrunk = min(1.0, LONG_SIDE / max(height, width))
    return len(slots) * min(LARGEST, height * width * shrunk**2 * _THUMBNAIL_BYTES)


def _reply(item: Item, max_new_tokens: int) -> Reply:
    """A letter, or as much text as there may be."""
    logits = tuple(-np.sqrt(2.0 + place) for place in range(len(item.letters)))
    text = item.letters[0] if item.letters else "a" * (_REPLY_LETTERS * max_new_tokens)
    return Reply(text, logits, logits, 2, cut=False)


class _Rehearsal(attention_drift.Measurement):
    """The measurement with everything that needs weights made up."""

    def __init__(
        self,
        context: Any,
        config: attention_drift.Config,
        stack: ExitStack,
        loaded: LoadedModel,
        prompt: Prompt,
    ) -> None:
        stand_in: Any = SimpleNamespace(config=context.config, model=loaded)
        super().__init__(stand_in, config, stack)
        self.checked = True  # nothing to check: there is no forward
        self._loaded, self._prompt = loaded, prompt

    def _prepare(
        self,
        loaded: LoadedModel,
        item: Item,  # noqa: ARG002 - the prompt at hand is its own
        frames: Frames,
    ) -> tuple[Prompt, Any, hooks.TokenMap]:
        prompt = self._prompt
        tokens = hooks.token_map(
            loaded.model,
            loaded.processor,
            prompt.inputs,
            question=prompt.question,
            options=prompt.options or None,
            n_frames=len(frames.selection),
        )
        return prompt, prompt.inputs, tokens

    def _observe(
        self,
        loaded: LoadedModel,  # noqa: ARG002 - no forward is run
        inputs: Any,  # noqa: ARG002 - likewise
        tokens: hooks.TokenMap,
        item: Item,
    ) -> tuple[Reply, hooks.Captured, hooks.VisualFeatures]:
        generator = np.random.default_rng(0)
        shape = (tokens.n_visual, _DRAWN_WIDTH)
        features: Any = {name: generator.standard_normal(shape) for name in self.config.all_features}
        reply = _reply(item, self.context.config.backend.max_new_tokens)
        return reply, self._captured(tokens, generated=True), features

    def _control(self, loaded: LoadedModel, item: Item, frames: Frames) -> hooks.Captured | None:
        if self.config.control == "none":
            return None
        _, _, tokens = self._prepare(loaded, item, frames)
        return self._captured(tokens, generated=False)

    def _redundancy(
        self, captured: hooks.Captured, features: Any, tokens: hooks.TokenMap, shown: ShownUnits
    ) -> Redundancy:
        found = super()._redundancy(captured, features, tokens, shown)
        width = self._width(self.config.feature)
        return replace(found, mean_direction=np.random.default_rng(1).standard_normal(width))

    def _width(self, feature: str) -> int:
        config = self._loaded.model.config
        return int(config.vision_config.hidden_size if feature == "vit" else _text(config).hidden_size)

    def _captured(self, tokens: hooks.TokenMap, *, generated: bool) -> Any:
        rows = self._rows(tokens)
        text, family = _text(self._loaded.model.config), self._loaded.family
        positions = np.unique(np.concatenate(list(rows.values()))) if rows else np.empty(0, np.int64)
        return _Drawn(
            (*rows, "generated") if generated else tuple(rows),
            (len(family.attention_layers(self._loaded.model)), int(text.num_attention_heads)),
            tokens,
            positions,
        )


def _text(config: Any) -> Any:
    return config.get_text_config()


class _Drawn:
    """What `hooks.Captured` would hold, drawn at random: rows that sum to one."""

    def __init__(
        self, roles: tuple[str, ...], shape: tuple[int, int], tokens: hooks.TokenMap, positions: np.ndarray
    ) -> None:
        generator = np.random.default_rng(2)
        self.roles, self.layers, self.row_positions = roles, tuple(range(shape[0])), positions
        mass = _rows(generator, (*shape, len(roles)), tokens.n_units)
        self._units, self._rest = mass[..., 1:], mass[..., 0]
        self._tokens = _rows(generator, (shape[0], len(roles)), tokens.n_visual)[..., 1:]
        self._shape, self._n_units = shape, tokens.n_units

    def unit_mass(self, role: str | None = None) -> np.ndarray:
        return self._of(self._units, role, 2)

    def rest_mass(self, role: str | None = None) -> np.ndarray:
        return self._of(self._rest, role, 2)

    def token_mass(self, role: str | None = None) -> np.ndarray:
        return self._of(self._tokens, role, 1)

    def value_mass(self, role: str | None = None) -> np.ndarray:
        return 3 * self.unit_mass(role)

    def value_rest_mass(self, role: str | None = None) -> np.ndarray:
        return 3 * self.rest_mass(role)

    def row_unit_mass(self) -> np.ndarray:
        return self._kept()[..., 1:]

    def row_rest_mass(self) -> np.ndarray:
        return self._kept()[..., 0]

    def _kept(self) -> np.ndarray:
        shape = (*self._shape, len(self.row_positions))
        return _rows(np.random.default_rng(3), shape, self._n_units)

    def _of(self, array: np.ndarray, role: str | None, axis: int) -> np.ndarray:
        return array if role is None else array.take(self.roles.index(role), axis=axis)


def _rows(generator: np.random.Generator, shape: tuple[int, ...], length: int) -> np.ndarray:
    """Shares of `length` parts and of the rest, which comes first."""
    drawn = generator.standard_exponential((*shape, length + 1), dtype=np.float32)
    return drawn / drawn.sum(axis=-1, keepdims=True)
