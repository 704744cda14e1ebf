"""What a check is given: the items, their frames, models by name, and two ways to ask them.

*Observed*: one item through prompt, processor, token map, capture and generation, as the experiments do it.
*Chosen*: many items at once by the testbed's batches, equal in their numbers and far faster, for accuracy
alone; the check `accuracy` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content, ensure_files
from diagnostics.data.minihorizon.procedure import Procedure, make_procedures
from diagnostics.data.minihorizon.settings import Config as MiniHorizon
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.definitions import Definition
from diagnostics.experiments.drift_measures import RoleMass, ShownUnits, measure_definition
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Reply
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import prepare_inputs
from diagnostics.strict import from_mapping
from diagnostics.testbed.batches import make_batch
from diagnostics.testbed.checkpoint import processor
from diagnostics.testbed.footage import Footage, as_patches, shoot
from diagnostics.testbed.lessons import Lesson, with_options
from diagnostics.testbed.training import first_token_logits
from diagnostics.video.perturb import GREY, fill
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform, uniform_plus_evidence
from diagnostics.video.selection import BLANK, Frames, Selection

__all__ = ["ASKING", "UNIT", "Asked", "Bench", "Observed", "share"]

UNIT = 2
"""Frames of one temporal unit of the tiny model."""

ASKING = "asking"
"""All rows from the question's first token to the prompt's last: a role beside those of the token map."""

_BATCH = 32
QUESTION = Definition(role="question", heads="named")
"""Attention of the question's tokens, measured per head and averaged over the heads that a check names."""


@dataclass(frozen=True)
class Asked:
    """A question and what is shown with it; without a selection nothing is."""

    item: Item
    selection: Selection | None

    @property
    def right(self) -> int:
        """Place of the right option."""
        assert self.item.answer is not None
        return self.item.letters.index(self.item.answer)


@dataclass(frozen=True, eq=False)
class Observed:
    """One item as an experiment sees it.

    Attributes:
        reply: what the model said.
        captured: attention of the rows asked for.
        features: embeddings of the visual tokens.
        tokens: where they stand.
        shown: what each unit shows.
    """

    reply: Reply
    captured: hooks.Captured
    features: hooks.VisualFeatures
    tokens: hooks.TokenMap
    shown: ShownUnits

    def log_lift(
        self, taken: Bool[np.ndarray, "layer head"], evidence: Bool[np.ndarray, "unit slot"] | None = None
    ) -> float:
        """`evidence_log_lift` of the question's rows over the heads taken, per head and then averaged.

        Args:
            taken: which heads.
            evidence: other units than those that show the evidence, for a null.
        """
        shown = self.shown if evidence is None else replace(self.shown, evidence=evidence)
        mass = RoleMass(self.captured.unit_mass("question"), self.captured.rest_mass("question"))
        summary = measure_definition(QUESTION, mass, taken, shown, self.tokens.tokens_per_unit, True)
        return summary.per_head["evidence_log_lift"]


def share(
    values: Sequence[float] | np.ndarray, asked: Sequence[Asked], *, confidence: float = 0.95
) -> probes.Estimate:
    """Mean over items with its interval, videos resampled."""
    return probes.clustered_mean(
        np.asarray(values, dtype=np.float64), [one.item.video_id for one in asked], confidence=confidence
    )


def _rows(tokens: hooks.TokenMap, role: str) -> Int[np.ndarray, " row"]:
    return np.arange(tokens.question[0], len(tokens)) if role == ASKING else tokens.rows(role)


class Bench:
    """The environment of the checks. A context manager; what is loaded or decoded is so once.

    Args:
        context: of the run; its data set has to be a split of MiniHorizon.

    Raises:
        ConfigError: it is another.
    """

    def __init__(self, context: Context, say: Callable[[str], None]) -> None:
        self.context = context
        self.say = say
        data = context.config.data
        config = from_mapping(MiniHorizon, data.parameters, "data") if data.loader == "minihorizon" else None
        if config is None or config.split is None or (config.height, config.width) != (96, 96):
            raise ConfigError(
                "+exp=validate needs a split of MiniHorizon in pictures of 96 x 96: its truth is known.",
                remedy="Leave data and data.split as they are (data.n_videos may be set).",
            )
        self.data: MiniHorizon = config
        self._items: Sequence[Item] = context.items
        self._models: dict[str, LoadedModel] = {}
        self._answered: dict[tuple[str, Asked], int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def beside(self, **changes: Any) -> Iterator[Bench]:
        """A bench over other videos, with the models of this one.

        Args:
            changes: of MiniHorizon's settings (`seed`, `split`, `n_videos`...), to those of this bench.
        """
        with Bench(self.context, self.say) as other:
            other.data = replace(self.data, **changes)
            self.say(f"writing {other.data.videos} videos of {other.data.split}, seed {other.data.seed}")
            # Videos are named alike in every such set, and others all the same.
            name = other.data.content_hash[:8]
            items = content(other.data, ensure_files(other.data))[1]
            other._items = [replace(item, video_id=f"{item.video_id} of {name}") for item in items]
            other._models = self._models
            yield other

    # -- items

    def items(self, *tasks: str, videos: int | None = None) -> list[Item]:
        """The items of those tasks (all where none is named), on the first so many videos that have any."""
        chosen = [item for item in self._items if not tasks or item.task in tasks]
        if videos is not None:
            kept = list(dict.fromkeys(item.video_id for item in chosen))[:videos]
            chosen = [item for item in chosen if item.video_id in kept]
        if not chosen:
            raise ConfigError(
                f"No item of {', '.join(tasks) or 'any task'} is left.",
                remedy="Loosen data.*, which selects items.",
            )
        return chosen

    def procedure(self, item: Item) -> Procedure:
        """What happens in the item's video."""
        return self._procedures[item.video.stem]

    @cached_property
    def _procedures(self) -> dict[str, Procedure]:
        return {procedure.name: procedure for procedure in make_procedures(self.data)}

    # -- frames

    @cached_property
    def footage(self) -> Footage:
        """The split, decoded."""
        self.say("decoding the videos")
        return shoot(self.data)

    @cached_property
    def reader(self) -> FrameReader:
        """The toolkit's reader, as the configuration has it."""
        reading = self.context.config.reading
        return self._stack.enter_context(
            FrameReader(
                reader=reading.reader, timeout_seconds=reading.timeout_seconds, workers=reading.workers
            )
        )

    def uniform(self, item: Item, budget: int) -> Selection:
        """Evenly spaced frames."""
        return select_frames(uniform, uniform.Config(budget=budget), self.reader.index(item.video), item)

    def enriched(self, item: Item, budget: int) -> Selection:
        """Evenly spaced frames, up to half of them exchanged for evidence."""
        config = uniform_plus_evidence.Config(budget=budget, evidence_frames=budget // 2)
        return select_frames(uniform_plus_evidence, config, self.reader.index(item.video), item)

    def frames(self, item: Item, selection: Selection, video: Path | None = None) -> Frames:
        """The selection's pictures, read from the item's video or from another file in its place."""
        path = video or item.video
        index = self.reader.index(path)
        return fill(selection, lambda numbers: self.reader.read(path, numbers), (index.height, index.width))

    # -- models

    def model(self, variant: str = "") -> LoadedModel:
        """The run's model, or one made from it by surgery (`first_stream`, `drifting@2`...), loaded once."""
        if not variant:
            return self.context.model
        if variant not in self._models:
            self.say(f"making {variant}")
            config = self.context.config.model
            config = replace(config, name=f"{config.name}/{variant}", path=f"{config.path}/{variant}")
            self._models[variant] = load_model(config)
        return self._models[variant]

    # -- asking

    def observe(
        self,
        loaded: LoadedModel,
        item: Item,
        frames: Frames,
        *,
        roles: Sequence[str] = ("question",),
        features: Sequence[str] = (),
        question: str | None = None,
    ) -> Observed:
        """One item through the experiments' own steps.

        Args:
            roles: rows to capture: those of the token map, or `ASKING`.
            features: embeddings to take.
            question: the part of the question that counts as it; all of it where None.
        """
        backend = self.context.config.backend
        prompt = prepare_inputs(
            loaded, item, frames, instruction=backend.instruction, max_new_tokens=backend.max_new_tokens
        )
        tokens = hooks.token_map(
            loaded.model,
            loaded.processor,
            prompt.inputs,
            question=question or prompt.question,
            options=prompt.options or None,
            n_frames=len(frames.selection),
        )
        rows = {role: _rows(tokens, role) for role in roles}
        inputs = prompt.inputs.to(loaded.device)
        with (
            hooks.visual_features(loaded.model, tokens, features) as embedded,
            hooks.attention_rows(loaded.model, tokens, rows=rows) as captured,
        ):
            reply = answer(loaded, inputs, item, max_new_tokens=1)
        shown = ShownUnits.of(frames.selection, tokens.unit_slots, item)
        return Observed(reply, captured, embedded, tokens, shown)

    def served(self, loaded: LoadedModel, item: Item, frames: Frames) -> Reply:
        """The whole reply, as an experiment gets it, without a capture."""
        backend = self.context.config.backend
        prompt = prepare_inputs(
            loaded, item, frames, instruction=backend.instruction, max_new_tokens=backend.max_new_tokens
        )
        return answer(loaded, prompt.inputs.to(loaded.device), item, backend.max_new_tokens)

    def chosen(self, loaded: LoadedModel, asked: Sequence[Asked]) -> Int[np.ndarray, " item"]:
        """Place of the option with the likeliest letter, for each question.

        All are shown as many frames: of their videos, blank ones (`perturb.blank`), or none. A question that
        was asked before is not asked again.

        Raises:
            ConfigError: the model's tokenizer is not the testbed's, so that batches would be nonsense.
        """
        self._refuse_other_tokenizer(loaded)
        letters = [loaded.processor.tokenizer.encode(letter)[0] for letter in "ABCD"]
        sources = {
            slot.source == BLANK for one in asked for slot in (one.selection.slots if one.selection else ())
        }
        if len(sources) > 1:
            raise ValueError("blank and real pictures in one call")
        film = self._blank_footage if sources == {True} else self.footage
        path = loaded.config.path
        new = [one for one in dict.fromkeys(asked) if (path, one) not in self._answered]
        for start in range(0, len(new), _BATCH):
            part = new[start : start + _BATCH]
            logits = first_token_logits(loaded.model, make_batch([self._lesson(one) for one in part], film))
            for row, one in zip(logits[:, letters], part, strict=True):
                self._answered[path, one] = int(torch.argmax(row[: len(one.item.options)]))
        return np.array([self._answered[path, one] for one in asked])

    def right(self, loaded: LoadedModel, asked: Sequence[Asked]) -> Float[np.ndarray, " item"]:
        """Whether each question is answered rightly, as numbers."""
        truth = np.array([one.right for one in asked])
        return (self.chosen(loaded, asked) == truth).astype(np.float64)

    def _lesson(self, asked: Asked) -> Lesson:
        item, selection = asked.item, asked.selection
        assert item.answer is not None
        text = with_options(item.question, item.options)
        if selection is None:
            return Lesson(item.task, "choice", text, item.answer, item.letters)
        numbers = selection.frame_indices
        first = [0 if slot.source == BLANK else self._first_rows[slot.source] for slot in selection.slots]
        # Of blank footage there is one picture.
        rows = np.where(numbers < 0, 0, numbers + np.array(first))
        return Lesson(item.task, "choice", text, item.answer, item.letters, rows, selection.shown_seconds)

    @cached_property
    def _first_rows(self) -> Mapping[str, int]:
        """Where in the footage each video begins, by its id."""
        films = {item.video_id: self.procedure(item).index for item in self._items}
        return {name: int(self.footage.first[place]) for name, place in films.items()}

    @cached_property
    def _blank_footage(self) -> Footage:
        """One grey picture in the place of all."""
        side = self.data.height, self.data.width
        return replace(self.footage, patches=as_patches(np.full((1, *side, 3), GREY, np.uint8)))

    def _refuse_other_tokenizer(self, loaded: LoadedModel) -> None:
        own = loaded.processor.tokenizer.get_vocab()
        if own != processor().tokenizer.get_vocab():
            raise ConfigError(
                f"The tokenizer of {loaded.config.name} is not the testbed's.",
                remedy="Validate a model of the testbed, trained by this version of it.",
            )

    # -- what a row's details say

    def details(self, asked: Sequence[Asked], sampler: str, **more: Any) -> Mapping[str, Any]:
        """Split, videos, budget, evidence among the frames of the video and among those shown."""
        ratios = [one.item.metadata.get("evidence_ratio") for one in asked]
        told: dict[str, Any] = {
            "split": self.data.split,
            "videos": len({one.item.video_id for one in asked}),
            "tasks": sorted({one.item.task for one in asked}),
            "sampler": sampler,
            "evidence_ratio": float(
                np.mean([ratio for ratio in ratios if isinstance(ratio, float)] or [np.nan])
            ),
        }
        shown = [one.selection for one in asked if one.selection is not None]
        if shown:
            told["budget"] = len(shown[0])
            told["evidence_shown"] = float(
                np.mean([one.selection.holds(one.item.evidence).mean() for one in asked if one.selection])
            )
        return told | more
