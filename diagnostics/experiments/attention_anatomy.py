"""What becomes of the evidence on its way to the answer: not shown, not looked at, not used, or used?

MedHorizon (arXiv 2605.06537, section 4.4) calls it attention drift that models look at redundant frames. Here
each item, at each frame budget, has one of four outcomes:

    not sampled      no frame of the evidence is among those shown
    unattended       shown, and its attention is within that of other such stretches of the video
                     (`probes.attended_test`): attention drifted away, the paper's claim
    without effect   attended, and blocking every road out of its units moves the answer no more than blocking
                     other such stretches does: the read-out fails
    effective        attended, and the answer rests on it; right, or wrong by interpretation

Beside the outcomes stand, by budget, all that is called drift: concentration, redundancy, the evidence's
log-lift with and without sinks, and what blocking the evidence, the most attended and random units does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass
from scipy.special import softmax

import hooks
import probes
from diagnostics.experiments.anatomy_tables import OUTCOMES, anatomy_table, drift_table, headline
from diagnostics.experiments.context import Context
from diagnostics.experiments.definitions import Definition, head_mask
from diagnostics.experiments.drift_measures import RoleMass, measure_definition, redundancy_of
from diagnostics.experiments.drift_record import control_part
from diagnostics.experiments.inside import (
    Look,
    answered,
    knockout_notices,
    look_inside,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends.requests import Reply
from diagnostics.report.anatomy import anatomy_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.strict import STRICT
from diagnostics.video.perturb import blank_frames

__all__ = ["Config", "run"]

_ROLES = ("question", "options", "last")
"""Heads look while one of them is read and not while another is, so each head counts once for each."""
_KEY_FRACTION = 0.25


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budgets: frames, uniform over the video; ascending.
        heads: share of the heads that count as looking, the best for each set of units.
        level: share of false alarms at which evidence counts as attended (`probes.attended_test`).
        null_draws: sets of other units that its attention is compared with, as long and as close together as
            the evidence.
        unit_draws: such sets that are blocked: evidence has to move the answer more than every one of them.
        least_effect: and at least so far: total variation of the options' probabilities before and after.
        blocked: the roads out of the units in every head, or only in the `looking_heads`: does the attention
            that is seen matter by itself?
        position_control: subtract the attention on blank pictures in the same places. For evidence that lies
            where models look anyway; elsewhere it costs power, for blanks are looked at in ways of their own.
        delimiters: times and delimiters beside a unit belong to it, and are blocked with it.
        seed: of the random sets.
    """

    budgets: tuple[PositiveInt, ...] = (32, 64, 128, 256)
    heads: Annotated[float, Field(gt=0, le=1)] = 0.1
    level: Annotated[float, Field(gt=0, lt=1)] = 0.1
    null_draws: PositiveInt = 200
    unit_draws: PositiveInt = 8
    least_effect: Annotated[float, Field(ge=0, le=1)] = 0.05
    blocked: Literal["everywhere", "looking_heads"] = "everywhere"
    position_control: bool = False
    delimiters: bool = True
    seed: NonNegativeInt = 0

    @field_validator("budgets")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or list(value) != sorted(set(value)):
            raise ValueError(f"budgets are numbers, ascending, each once: not {list(value)}")
        return value


def run(context: Context, config: Config) -> Outcome:
    """Sort every item with local evidence and a right option at every budget, then write it up."""
    asked, reasons = with_local_evidence(context.items, scored=True)
    conditions = [{"budget": budget} for budget in config.budgets]
    pairs = [Pair(item, condition) for item in asked for condition in conditions]

    def show(pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        return Shown(item, library.uniform(item, pair.condition["budget"]))

    with ExitStack() as stack:
        measure_pairs(context, pairs, _Measurement(context, config, stack), "Dissecting", show=show)
    found = asked_of(context, pairs)
    outcomes, drift = anatomy_table(found.answers, config.budgets), drift_table(found.answers, config.budgets)
    return write_up(
        context,
        found,
        metrics=headline(found.answers, config.budgets),
        tables={"outcomes": outcomes, "drift": drift},
        draw=lambda: anatomy_figure(outcomes, drift),
        baselines=conditions,
        left_out=reasons,
    )


class _Measurement:
    """One item at one budget."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self._context, self._config, self._stack = context, config, stack
        self._sinks: hooks.Sinks | None = None
        self._checked = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors; raises `ObservationError`, or `ItemError` without letters."""
        look = look_inside(self._context, source.item, source.frames)
        gold = look.gold
        with reported(source.item):
            if self._sinks is None:
                self._sinks = self._start(look)
            reply, captured, features = self._observe(look, self._sinks)
            control = self._control(source) if self._config.position_control else None
            test = probes.attended_test(
                captured.unit_mass(),
                look.evidence_units,
                baseline_mass=None if control is None else control.unit_mass(),
                top=self._config.heads,
                level=self._config.level,
                draws=self._config.null_draws,
                seed=self._seed(look, 0),
            )
            effects = self._effects(look, captured, test)
            self._checked = True
        fields = record_fields(self._context, look, reply)
        right = float(np.argmax(reply.option_logits) == gold)
        fields["warnings"] += knockout_notices(self._context.model)
        fields["measures"] |= _looked(look, captured, features, self._sinks)
        fields["measures"] |= {
            "evidence_units": float(look.evidence_units.sum()),
            "attended_log_lift": test.statistic,
            "attended_threshold": test.threshold,
            **effects,
            **self._outcome(look, test, effects, right),
        }
        tensors = parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(captured.layers, np.int32),
            role=captured.roles,
            attention=parts.Attention(
                captured.unit_mass(),
                captured.rest_mass(),
                captured.token_mass(),
                sink_score=captured.sink_score(),
            ),
            control=None if control is None else control_part(captured, control, "blank"),
            definitions={"budget": pair.condition["budget"], "heads": self._config.heads},
        )
        return Measured(fields, tensors)

    def _start(self, look: Look) -> hooks.Sinks:
        """Find the model's sinks and check the capture, before the first item."""
        model = self._context.model.model
        sinks = hooks.find_sinks(model, int(look.tokens.input_ids[0]))
        self._context.folder.note("sinks", asdict(sinks))
        check = hooks.verify_capture(model, look.inputs, look.tokens, _rows(look.tokens))
        self._context.folder.note("capture", asdict(check))
        self._stack.enter_context(hooks.reuse_vision(model, entries=2))
        return sinks

    def _seed(self, look: Look, purpose: int) -> list[int]:
        return [self._config.seed, purpose, *look.item.id.encode()]

    def _observe(self, look: Look, sinks: hooks.Sinks) -> tuple[Reply, hooks.Captured, hooks.VisualFeatures]:
        model = self._context.model.model
        with (
            hooks.visual_features(model, look.tokens, ("projector",)) as features,
            hooks.attention_rows(model, look.tokens, rows=_rows(look.tokens), sinks=sinks) as captured,
        ):
            reply = answered(self._context, look)
        return reply, captured, features

    @torch.inference_mode()
    def _control(self, source: Source) -> hooks.Captured:
        """Attention of the same rows where every picture is blank: what position alone explains."""
        model = self._context.model.model
        blank = look_inside(self._context, source.item, blank_frames(source.frames))
        rows = _rows(blank.tokens)
        with hooks.attention_rows(model, blank.tokens, rows=rows, token_mass=False) as captured:
            model(**blank.inputs, logits_to_keep=1, use_cache=False)
        return captured

    def _effects(self, look: Look, captured: hooks.Captured, test: probes.AttendedTest) -> dict[str, float]:
        """Total variation of the options' probabilities by blocking the evidence, the most attended and
        random units, as many of each; one unit where no evidence is shown."""
        if self._config.blocked == "looking_heads" and not len(test.best):
            return {}  # nobody was found looking
        evidence = np.flatnonzero(look.evidence_units)
        size = max(1, len(evidence))
        attended = np.argsort(-captured.unit_mass().sum(axis=(0, 1, 2)), kind="stable")[:size]
        alike = look.evidence_units if len(evidence) else np.arange(look.tokens.n_units) == attended[0]
        heads = _by_layer(test.best, captured.layers)
        drawn = [
            np.flatnonzero(one)
            for one in probes.sets_like(alike, self._config.unit_draws, self._seed(look, 1))
        ]
        model = self._context.model.model
        letters = list(look.letters)
        with hooks.prefix(model, look.inputs, layers=[0], check=not self._checked) as held:
            before = softmax(held.logits[letters].double().cpu().numpy())

            def moved(units: Int[np.ndarray, " unit"]) -> float:
                edges = hooks.units_to_everything(look.tokens, units, delimiters=self._config.delimiters)
                with self._blocked(look, edges, heads):
                    logits = held.rerun(int(edges.queries[0]))
                return float(np.abs(softmax(logits[letters].double().cpu().numpy()) - before).sum() / 2)

            random = [moved(units) for units in drawn]
            effects = {"effect_attended": moved(attended)}
            if len(evidence):
                effects["effect_evidence"] = moved(evidence)
        if random:
            effects |= {"effect_random": float(np.mean(random)), "effect_random_most": float(np.max(random))}
        return effects

    @contextmanager
    def _blocked(
        self, look: Look, edges: hooks.Edges, heads: Mapping[int, Int[np.ndarray, " head"]]
    ) -> Iterator[None]:
        """Block edges in every head, or in those that the test found looking at the evidence."""
        model = self._context.model.model
        with ExitStack() as stack:
            for layer, some in heads.items() if self._config.blocked == "looking_heads" else ():
                stack.enter_context(
                    hooks.knock_out(
                        model, look.tokens, [edges], layers=layer, heads=some, check=not self._checked
                    )
                )
            if self._config.blocked == "everywhere":
                stack.enter_context(hooks.knock_out(model, look.tokens, [edges], check=not self._checked))
            yield

    def _outcome(
        self, look: Look, test: probes.AttendedTest, effects: dict[str, float], right: float
    ) -> dict[str, float]:
        """One of the four, as ones and zeros; nothing where there are too few other units to compare with."""
        if not look.evidence_units.any():
            outcome, effective = "not_sampled", False
        elif not test.defined or "effect_random" not in effects:
            return {"undecided": 1.0, "right_where_undecided": right}
        else:
            needed = max(self._config.least_effect, effects["effect_random_most"])
            effective = effects["effect_evidence"] > needed
            outcome = "unattended" if not test.attended else "effective" if effective else "without_effect"
        found = {name: float(name == outcome) for name in OUTCOMES}
        found["effective_wrong"] = found["effective"] * (1.0 - right)
        # Read after all, by attention that does not stand out: said, for the four outcomes hide it.
        found["unattended_effective"] = float(outcome == "unattended" and effective)
        return found | {"undecided": 0.0, f"right_where_{outcome}": right}


def _by_layer(
    best: Int[np.ndarray, "head axis"], layers: Sequence[int]
) -> dict[int, Int[np.ndarray, " head"]]:
    """Heads of each decoder layer by its number.

    Args:
        best: where they stand in captured rows, layer and head first.
        layers: the numbers of the layers captured, which in hybrid models are not all.
    """
    return {
        layers[place]: np.unique(best[best[:, 0] == place, 1]) for place in np.unique(best[:, 0]).tolist()
    }


def _rows(tokens: hooks.TokenMap) -> dict[str, Int[np.ndarray, " row"]]:
    rows = {role: tokens.rows(role) for role in _ROLES}
    return {role: positions for role, positions in rows.items() if len(positions)}


_HEADLINE = Definition("question")


def _looked(
    look: Look, captured: hooks.Captured, features: hooks.VisualFeatures, sinks: hooks.Sinks
) -> dict[str, float]:
    """Concentration, evidence alignment with and without sinks, redundancy: as `attention_drift` has them."""
    units, rest = captured.unit_mass("question"), captured.rest_mass("question")
    mass = RoleMass(units, rest)
    without = RoleMass(*probes.without_sinks(units, rest, captured.sink_unit_mass("question")))
    taken = head_mask(_HEADLINE, mass.units)

    def measured(of: RoleMass, suffix: str = "") -> dict[str, float]:
        found = measure_definition(_HEADLINE, of, taken, look.shown, look.tokens.tokens_per_unit, True)
        return {f"{name}{suffix}": value for name, value in found.measures().items()}

    visual = look.tokens.visual
    redundancy = redundancy_of(
        captured.token_mass("question").mean(axis=0),
        {"projector": features["projector"]},
        (look.tokens.unit[visual], look.tokens.row[visual], look.tokens.col[visual]),
        look.shown.seconds,
        (_KEY_FRACTION,),
    )
    reference = probes.uniform_reference(look.tokens.n_units)
    return (
        measured(mass)
        | measured(without, "_without_sinks")
        | dict(redundancy.measures)
        | {f"{probes.fraction_name(share)}_uniform": value for share, value in reference.items()}
        | {"sink_tokens": float(sinks.of(captured.sink_score()).mean())}
    )
