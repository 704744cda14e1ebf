"""Attention drift: where a model looks in a long video, and whether what it looks at is redundant.

MedHorizon (arXiv 2605.06537), section 4.4 and Figure 9, after ViLAMP (arXiv 2504.02438): for each
question the attention of the question's tokens is summed over each temporal unit of the video; units are
ranked, and the fraction of them that holds 90% of the attention says how diffuse it is. The most attended
quarter are keyframes; every other patch is compared with the same place in the nearest preceding one.

One prefill per question gives the answer, the attention of every layer and head, and the embeddings. A
second one, with blank pictures under the same question, gives the attention that position alone explains.
The published figures are silent about layers, heads, query rows and embeddings: all definitions are
measured from the same capture, and the tables name each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, ObservationError
from diagnostics.experiments.context import Context
from diagnostics.experiments.definitions import (
    HEAD_SETS,
    LAYER_SETS,
    Definition,
    head_mask,
    layer_mask,
    pooled_share,
)
from diagnostics.experiments.drift_measures import (
    Redundancy,
    RoleMass,
    ShownUnits,
    control_measures,
    measure_definition,
    redundancy_of,
    sink_measures,
)
from diagnostics.experiments.drift_outcome import finish
from diagnostics.experiments.drift_record import (
    attention_part,
    control_part,
    kept_rows,
    position_warnings,
    prompt_fields,
    similarity_part,
    tokens_part,
    units_part,
)
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.own_probes import Seen, load_probes, own_measures
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.replies import answer_fields, choice_measure
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Reply
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.store import tensor_parts as parts
from diagnostics.store.manifest import package_versions
from diagnostics.strict import STRICT, near_match
from diagnostics.video.perturb import blank_frames, permuted_frames
from diagnostics.video.selection import Frames

__all__ = ["Config", "Measurement", "run"]

_HELD_VIDEOS = 2
"""Encoded videos kept at hand: the one asked about, and its control."""


Share = Annotated[float, Field(gt=0, le=1)]
Feature = Annotated[str, Field(pattern=r"^(projector|vit|layer:\d+)$")]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment; the first of each pair is the headline, the second all that is measured.

    Attributes:
        role, roles: query rows: `question`, `options`, `last` (the prompt's last token).
        layers, layer_sets: sets of layers.
        heads, head_sets: sets of heads.
        pooling: a unit counts by the `sum` over its tokens, or by their `mean`.
        head_pooling, head_poolings: heads are pooled by their attention on the video (`mass`) or equally.
        key_fraction, key_fractions: share of the units that are keyframes.
        feature, features: embeddings for similarity: `projector`, `vit`, `layer:N`.
        control: what stands in for the video in the control: `blank`, `permuted` frames, or `none`.
        value_weighted: also weight attention by the norm of the value vectors.
        sinks: also score every visual token as a sink, and measure without the attention on sinks. Not in
            the YAML file, so that runs without it keep the hash they had: `+exp.sinks=true`.
        probes: dotted names of modules with measures of one's own (docs/own_probe.md). Not in the YAML file
            either: `exp.probes=[mine.centre]`.
        keep_rows: also keep every query row by itself (files of 17 MB and more for an 8B model).
        item_figures: how many items get pictures of their own.
        top_units: how many of the most attended units those pictures show.
        seed: of the permuted control.
    """

    role: str = "question"
    roles: tuple[str, ...] = ("question", "options", "last")
    layers: str = "all"
    layer_sets: tuple[str, ...] = ("all", "early", "middle", "late")
    heads: str = "all"
    head_sets: tuple[str, ...] = ("all", "most_visual")
    pooling: Literal["sum", "mean"] = "sum"
    head_pooling: Literal["mass", "equal"] = "mass"
    head_poolings: tuple[Literal["mass", "equal"], ...] = ("mass", "equal")
    key_fraction: Share = 0.25
    key_fractions: tuple[Share, ...] = (0.1, 0.25, 0.5)
    feature: Feature = "projector"
    features: tuple[Feature, ...] = ("projector", "vit")
    control: Literal["blank", "permuted", "none"] = "blank"
    value_weighted: bool = True
    sinks: bool = False
    probes: tuple[str, ...] = ()
    keep_rows: bool = False
    item_figures: NonNegativeInt = 6
    top_units: PositiveInt = 8
    seed: NonNegativeInt = 0

    @field_validator("layers", "layer_sets")
    @classmethod
    def _known_layers(cls, value: Any) -> Any:
        return _among(value, LAYER_SETS)

    @field_validator("heads", "head_sets")
    @classmethod
    def _known_heads(cls, value: Any) -> Any:
        return _among(value, HEAD_SETS)

    @field_validator("role", "roles")
    @classmethod
    def _known_roles(cls, value: Any) -> Any:
        return _among(value, ("question", "options", "last"))

    @property
    def headline(self) -> Definition:
        """The definition behind the headline numbers."""
        return Definition(self.role, self.layers, self.heads, "attention", self.pooling, self.head_pooling)

    @property
    def all_roles(self) -> tuple[str, ...]:
        """Roles to capture, the headline's among them."""
        return tuple(dict.fromkeys((self.role, *self.roles)))

    @property
    def all_features(self) -> tuple[str, ...]:
        """Embeddings to take, the headline's among them."""
        return tuple(dict.fromkeys((self.feature, *self.features)))

    @property
    def all_key_fractions(self) -> tuple[float, ...]:
        """Keyframe shares to measure, the headline's among them."""
        return tuple(dict.fromkeys((self.key_fraction, *self.key_fractions)))


def run(context: Context, config: Config) -> Outcome:
    """Measure every item, then write summary, tables and figures."""
    pairs = [Pair(item) for item in context.items]
    if config.keep_rows:
        context.say(
            "Keeping every query row: tensor files grow with layers x heads x rows x units "
            "(17 MB an item for an 8B model at 128 frames, 104 MB at 768)."
        )
    with ExitStack() as stack:
        measure_pairs(context, pairs, Measurement(context, config, stack), "Capturing attention")
    return finish(context, config, pairs)


class Measurement:
    """What is done to one item. Keeps between items only what saves work or is checked once."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self.context = context
        self.config = config
        self.stack = stack
        self.checked = False
        self.own_probes = load_probes(config.probes)
        self.sinks: hooks.Sinks | None = None
        self.held: list[torch.Tensor] = []

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields, tensors and thumbnails of one item; raises `ObservationError`."""
        try:
            return self._measure(pair, source)
        except hooks.HooksError as error:
            raise ObservationError(error.problem, remedy=error.remedy, path=pair.item.video) from error

    def _measure(self, pair: Pair, source: Source) -> Measured:
        loaded, item, frames = self.context.model, pair.item, source.frames
        seconds: dict[str, float] = {}
        with _timed(seconds, "prepare"):
            prompt, inputs, tokens = self._prepare(loaded, item, frames)
        if not self.checked:
            self._check_once(loaded, inputs, tokens)
        with _timed(seconds, "generate"):
            reply, captured, features = self._observe(loaded, inputs, tokens, item)
        with _timed(seconds, "control"):
            control = self._control(loaded, item, frames)
        fields: dict[str, Any] = {
            **prompt_fields(prompt, tokens),
            **answer_fields(item, reply),
            "measures": choice_measure(item, reply),
            "seconds": seconds,
            "warnings": [*prompt.notices, *position_warnings(loaded, inputs)],
        }
        shown = ShownUnits.of(frames.selection, tokens.unit_slots, item)
        if self.config.role not in captured.roles:
            fields["warnings"].append(f"no_rows: the item has no {self.config.role}, so nothing was measured")
            tensors = self._tensors(pair, shown, tokens, captured, control, None, reply)
            return Measured(fields, tensors)
        with _timed(seconds, "probe"):
            redundancy = self._redundancy(captured, features, tokens, shown)
            measures = self._measures(item, captured, control, tokens, shown)
            fields["measures"] |= measures | dict(redundancy.measures) | dict(redundancy.variants)
            if self.own_probes:
                seen = Seen.of(item, shown, self.config.headline, captured, features, tokens)
                fields["measures"] |= own_measures(self.own_probes, seen, fields["measures"])
        tensors = self._tensors(pair, shown, tokens, captured, control, redundancy, reply)
        return Measured(fields, tensors, self._most_attended_slots(captured, tokens))

    # -- forward passes

    def _prepare(self, loaded: LoadedModel, item: Item, frames: Frames) -> tuple[Prompt, Any, hooks.TokenMap]:
        backend = self.context.config.backend
        prompt = prepare_inputs(
            loaded, item, frames, instruction=backend.instruction, max_new_tokens=backend.max_new_tokens
        )
        tokens = hooks.token_map(
            loaded.model,
            loaded.processor,
            prompt.inputs,
            question=prompt.question,
            options=prompt.options or None,
            n_frames=len(frames.selection),
        )
        inputs = prompt.inputs.to(loaded.device)
        # Families that encode frames as images have them under the images' name.
        for name in ("pixel_values_videos", "pixel_values"):
            if name in inputs:
                inputs[name] = self._shared(inputs[name])
        return prompt, inputs, tokens

    def _shared(self, pixels: torch.Tensor) -> torch.Tensor:
        """The tensor held from an earlier question with the same pixels: vision runs once for both."""
        for held in self.held:
            if held.shape == pixels.shape and torch.equal(held, pixels):
                return held
        self.held = [pixels, *self.held][:_HELD_VIDEOS]
        return pixels

    def _rows(self, tokens: hooks.TokenMap) -> dict[str, np.ndarray]:
        rows = {role: tokens.rows(role) for role in self.config.all_roles}
        return {role: positions for role, positions in rows.items() if len(positions)}

    def _check_once(self, loaded: LoadedModel, inputs: Any, tokens: hooks.TokenMap) -> None:
        """The forward with capture gives the logits of the forward without; into the manifest.

        Raises:
            ConfigError: the model is too shallow for the headline's set of layers, or for a feature.
        """
        n_layers = loaded.provenance["layers"]
        for feature in self.config.all_features:
            if feature.startswith("layer:") and int(feature.removeprefix("layer:")) >= n_layers:
                raise ConfigError(
                    f"There is no {feature}: {loaded.config.name} has layers 0 to {n_layers - 1}.",
                    remedy="Choose one of them for exp.feature and exp.features.",
                )
        attending = len(loaded.family.attention_layers(loaded.model))
        if not layer_mask(self.config.layers, attending).any():
            raise ConfigError(
                f"exp.layers={self.config.layers} is empty: {attending} layers of {loaded.config.name}"
                " attend.",
                remedy="Choose all or last.",
            )
        if self.config.sinks:
            self.sinks = hooks.find_sinks(loaded.model, int(tokens.input_ids[0]))
            self.context.folder.note("sinks", asdict(self.sinks))
        check = hooks.verify_capture(loaded.model, inputs, tokens, self._rows(tokens))
        self.context.folder.note("capture", asdict(check))
        self.stack.enter_context(hooks.reuse_vision(loaded.model, entries=_HELD_VIDEOS))
        self.checked = True

    def _observe(
        self, loaded: LoadedModel, inputs: Any, tokens: hooks.TokenMap, item: Item
    ) -> tuple[Reply, hooks.Captured, hooks.VisualFeatures]:
        with (
            hooks.visual_features(loaded.model, tokens, self.config.all_features) as features,
            hooks.attention_rows(
                loaded.model,
                tokens,
                rows=self._rows(tokens),
                generated=True,
                keep_rows=self.config.keep_rows,
                value_weighted=self.config.value_weighted,
                sinks=self.sinks,
            ) as captured,
        ):
            reply = answer(loaded, inputs, item, self.context.config.backend.max_new_tokens)
        return reply, captured, features

    def _control(self, loaded: LoadedModel, item: Item, frames: Frames) -> hooks.Captured | None:
        if self.config.control == "none":
            return None
        if self.config.control == "blank":
            shown = blank_frames(frames)
        else:
            shown = permuted_frames(frames, self.config.seed)
        _, inputs, tokens = self._prepare(loaded, item, shown)
        rows = self._rows(tokens)
        with torch.inference_mode(), hooks.attention_rows(loaded.model, tokens, rows=rows) as captured:
            loaded.model(**inputs, logits_to_keep=1)
        return captured

    # -- from arrays to numbers

    def _token_attention(self, captured: hooks.Captured) -> np.ndarray:
        """Attention of the headline role on each visual token, over the headline's layers and *all* heads."""
        tokens = captured.token_mass(self.config.role)
        return tokens[layer_mask(self.config.layers, len(tokens))].mean(axis=0)

    def _redundancy(
        self,
        captured: hooks.Captured,
        features: hooks.VisualFeatures,
        tokens: hooks.TokenMap,
        shown: ShownUnits,
    ) -> Redundancy:
        visual = tokens.visual
        return redundancy_of(
            self._token_attention(captured),
            {name: features[name] for name in self.config.all_features},
            (tokens.unit[visual], tokens.row[visual], tokens.col[visual]),
            shown.seconds,
            self.config.all_key_fractions,
        )

    def _measures(
        self,
        item: Item,
        captured: hooks.Captured,
        control: hooks.Captured | None,
        tokens: hooks.TokenMap,
        shown: ShownUnits,
    ) -> dict[str, float]:
        headline, role = self.config.headline, self.config.role
        localised = item.local_evidence is not None
        mass = RoleMass(captured.unit_mass(role), captured.rest_mass(role))
        taken = head_mask(headline, mass.units)

        uniform = probes.uniform_reference(tokens.n_units)
        reference = {f"{probes.fraction_name(a)}_uniform": value for a, value in uniform.items()}

        def measured(of: RoleMass, suffix: str = "") -> dict[str, float]:
            summary = measure_definition(headline, of, taken, shown, tokens.tokens_per_unit, localised)
            return {f"{name}{suffix}": value for name, value in summary.measures().items()}

        measures = measured(mass) | reference
        if self.config.value_weighted:
            weighted = RoleMass(captured.value_mass(role), captured.value_rest_mass(role))
            measures |= measured(weighted, "_value_weighted")
        if self.sinks is not None:
            on_sinks = captured.sink_unit_mass(role)
            measures |= measured(
                RoleMass(*probes.without_sinks(mass.units, captured.rest_mass(role), on_sinks)),
                "_without_sinks",
            )
            measures |= sink_measures(
                mass.units[taken], on_sinks[taken], self.sinks.of(captured.sink_score())
            )
        if control is not None:
            baseline = RoleMass(control.unit_mass(role), control.rest_mass(role))
            measures |= measured(baseline, "_position_only")
            measures |= control_measures(headline, mass, baseline, taken, shown, localised)
        return measures

    def _most_attended_slots(self, captured: hooks.Captured, tokens: hooks.TokenMap) -> list[int]:
        headline, mass = self.config.headline, captured.unit_mass(self.config.role)
        share = pooled_share(headline, mass[head_mask(headline, mass)], tokens.tokens_per_unit)
        ranked = np.argsort(-share, kind="stable")
        slots = tokens.unit_slots[ranked[: self.config.top_units]].ravel()
        return sorted(int(slot) for slot in slots if slot >= 0)

    def _tensors(
        self,
        pair: Pair,
        shown: ShownUnits,
        tokens: hooks.TokenMap,
        captured: hooks.Captured,
        control: hooks.Captured | None,
        redundancy: Redundancy | None,
        reply: Reply,
    ) -> parts.PairTensors:
        return parts.PairTensors(
            item_id=pair.item.id,
            condition=pair.condition,
            units=units_part(shown),
            tokens=tokens_part(tokens),
            layer=np.array(captured.layers, np.int32),
            role=captured.roles,
            option=pair.item.letters if reply.option_logits else (),
            attention=attention_part(
                captured, value_weighted=self.config.value_weighted, sinks=self.config.sinks
            ),
            rows=kept_rows(captured, sinks=self.config.sinks) if self.config.keep_rows else None,
            similarity=None if redundancy is None else similarity_part(redundancy),
            control=None if control is None else control_part(captured, control, self.config.control),
            answer=parts.Answer(np.array(reply.option_logits, np.float32), reply.text),
            definitions=_definitions(self.config),
            versions=package_versions(),
        )


def _definitions(config: Config) -> dict[str, Any]:
    """What the numbers were measured by: written into every tensor file."""
    return {
        **config.headline.as_columns(),
        "key_fraction": config.key_fraction,
        "feature": config.feature,
        # Attention by token is kept as a mean over heads.
        "redundancy_heads": "all",
        "control": config.control,
    }


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def _among(value: Any, known: Sequence[str]) -> Any:
    for name in (value,) if isinstance(value, str) else value:
        if name not in known:
            raise ValueError(f"{name!r} is not one of {', '.join(known)}. {near_match(name, tuple(known))}")
    return value
