"""Heads that look at the evidence, and whether the answer needs them.

Two phases in one run. First every item's heads are scored: how much more the rows of one role move from the
evidence than from as many other units, less the same on a blank video (`probes.heads`; after "Can Retrieval
Heads See Images?", arXiv 2605.27243). Then each item is asked again with the top heads silenced, and with as
many random other heads of the same layers, in several draws. The videos are cut in two: an item's heads are
chosen on the other half's items, so that no item takes part in a choice it is judged by.

Which heads were chosen is part of the second phase's condition: where the scores become others, those
pairs are other pairs and are measured. Cut into shards, the first command of each shard scores; when all
have, the same commands again silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.experiments.asking import log_odds
from diagnostics.experiments.context import Context
from diagnostics.experiments.drift_record import (
    attention_part,
    control_part,
    position_warnings,
    prompt_fields,
)
from diagnostics.experiments.head_tables import finish
from diagnostics.experiments.inside import (
    Look,
    answered,
    look_inside,
    option_logits,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.store import tensor_parts as parts
from diagnostics.store.atomic import write_text
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors
from diagnostics.strict import STRICT
from diagnostics.video.perturb import blank_frames

__all__ = ["SCORE", "SCORES", "Chosen", "Config", "Scored", "run"]

SCORE: Mapping[str, Any] = {"phase": "score"}
"""The condition of the first phase."""

SCORES: Mapping[str, probes.HeadScore] = {
    "moved": probes.evidence_excess,
    "log_lift": probes.bounded_log_lift,
}
"""From one item's attention and evidence to a score of each head, by name."""

Head = tuple[int, int]

_CHOSEN = "chosen_heads.json"


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        role: whose rows' attention scores a head: `question`, `options` or `last`.
        score: `moved`: attention times the length of the values it moves, on the evidence beyond the
            evidence's share of the units; `log_lift`: of attention's shares, whatever their size. Both less
            the same on a blank video.
        within: heads are chosen on items of the same `task`, or on `all`.
        shares: of all heads, silenced; at least one head each.
        draws: of random heads for each share.
        null_draws: of the null of the largest score.
        sinks: also score sink tokens, and say which heads look at the video and not at its sinks.
        seed: of the halves, the random heads and the null.
    """

    role: Literal["question", "options", "last"] = "question"
    score: Literal["moved", "log_lift"] = "moved"
    within: Literal["all", "task"] = "all"
    shares: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.05, 0.1, 0.2)
    draws: PositiveInt = 5
    null_draws: PositiveInt = 500
    sinks: bool = True
    seed: NonNegativeInt = 0


def run(context: Context, config: Config) -> Outcome:
    """Score the heads on all items, silence the chosen ones, then write summary, tables and figure."""
    asked, reasons = with_local_evidence(context.items, scored=True)
    score_pairs = [Pair(item, SCORE) for item in asked]
    with ExitStack() as stack:
        scoring = _Scoring(context, config)
        if not context.complete and (context.config.shard.count == 1 or _missing(context, score_pairs)):
            measure_pairs(context, score_pairs, scoring, "Scoring heads")  # a shard ends here
        chosen = _choose(context, config, score_pairs)
        condition = {"phase": "mask", "heads": chosen.digest}
        context.folder.note("chosen_heads", chosen.told())
        masking = _Masking(context, config, chosen, stack)

        def measure(pair: Pair, source: Source) -> Measured:
            return (scoring if pair.condition["phase"] == "score" else masking)(pair, source)

        pairs = [*score_pairs, *(Pair(item, condition) for item in asked)]
        measure_pairs(context, pairs, measure, "Silencing heads")
    return finish(context, config, pairs, reasons, chosen, condition)


def _missing(context: Context, pairs: Sequence[Pair]) -> bool:
    """Whether some pair has no record yet in any shard."""
    known = {record.pair for record in context.folder.records()}
    return any(pair.key not in known for pair in pairs)


class _Scoring:
    """Attention of one item's rows, on its video and on blank pictures in its place."""

    def __init__(self, context: Context, config: Config) -> None:
        self._context, self._config = context, config
        self._sinks: hooks.Sinks | None = None

    def __call__(self, pair: Pair, source: Source) -> Measured:
        loaded, role = self._context.model, self._config.role
        look = look_inside(self._context, source.item, source.frames)
        gold = look.gold
        blank = look_inside(self._context, source.item, blank_frames(source.frames))
        if self._config.sinks and self._sinks is None:
            self._sinks = hooks.find_sinks(loaded.model, int(look.tokens.input_ids[0]))
            self._context.folder.note("sinks", asdict(self._sinks))
        with reported(pair.item):
            with hooks.attention_rows(
                loaded.model,
                look.tokens,
                {role: look.tokens.rows(role)},
                value_weighted=True,
                sinks=self._sinks,
            ) as captured:
                reply = answered(self._context, look)
            with (
                torch.inference_mode(),
                hooks.attention_rows(
                    loaded.model, blank.tokens, {role: blank.tokens.rows(role)}, value_weighted=True
                ) as control,
            ):
                loaded.model(**blank.inputs, logits_to_keep=1, use_cache=False)
        fields = record_fields(self._context, look, reply)
        fields["measures"]["gold_log_odds"] = log_odds(np.array(reply.option_logits, np.float64), gold)
        tensors = parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(captured.layers, np.int32),
            role=captured.roles,
            attention=attention_part(captured, value_weighted=True, sinks=self._sinks is not None),
            control=replace(control_part(captured, control, "blank"), value_mass=control.value_mass()),
            definitions={"role": role},
        )
        return Measured(fields, tensors)


@plain_dataclass(frozen=True, eq=False)
class Scored:
    """What the first phase left, item by item; items without a defined score are not here.

    Attributes:
        items, videos, tasks: of each item.
        half: which half of the videos it is in.
        score: of each head, less that on a blank video.
        raw, blank: the two.
        masses, blanks, evidence: what they were made from.
        layers: decoder layers by number, along the `layer` axis: in hybrid models those that attend.
        image_centric: heads that look at the video and not at its sinks; None where sinks were not scored.
    """

    items: tuple[str, ...]
    videos: tuple[str, ...]
    tasks: tuple[str, ...]
    half: Bool[np.ndarray, " item"]
    score: Float[np.ndarray, "item layer head"]
    raw: Float[np.ndarray, "item layer head"]
    blank: Float[np.ndarray, "item layer head"]
    masses: tuple[Float[np.ndarray, "layer head unit"], ...]
    blanks: tuple[Float[np.ndarray, "layer head unit"], ...]
    evidence: tuple[Bool[np.ndarray, " unit"], ...]
    layers: tuple[int, ...]
    image_centric: Float[np.ndarray, "item layer head"] | None


@plain_dataclass(frozen=True, eq=False)
class Chosen:
    """The heads to silence for an item: by the half that it is in, group of tasks, and share.

    Attributes:
        scored: what they were chosen from.
        half_of: the half of each item of the run, by id.
        top, like: chosen on the *other* half; `like` holds several draws, none where a layer has too few
            other heads.
    """

    scored: Scored
    half_of: Mapping[str, bool]
    top: Mapping[tuple[bool, str, float], list[Head]]
    like: Mapping[tuple[bool, str, float], list[list[Head]]]

    @classmethod
    def of(cls, scored: Scored, half_of: Mapping[str, bool], told: Sequence[Mapping[str, Any]]) -> Chosen:
        """What `told` was made from."""
        keys = [(bool(one["silenced_in_half"]), str(one["group"]), float(one["share"])) for one in told]
        top = {key: [(int(a), int(b)) for a, b in one["top"]] for key, one in zip(keys, told, strict=True)}
        like = {
            key: [[(int(a), int(b)) for a, b in draw] for draw in one["like"]]
            for key, one in zip(keys, told, strict=True)
        }
        return cls(scored, half_of, top, like)

    @property
    def digest(self) -> str:
        """Names the choice: equal choices have equal digests."""
        return hashlib.sha256(json.dumps(self.told(), sort_keys=True).encode()).hexdigest()[:12]

    def told(self) -> list[dict[str, Any]]:
        """The choice as plain data, for the manifest: heads silenced in a half were chosen on the other."""
        return [
            {"silenced_in_half": int(half), "group": group, "share": share, "top": top}
            | {"like": self.like[half, group, share]}
            for (half, group, share), top in self.top.items()
        ]


def _choose(context: Context, config: Config, pairs: Sequence[Pair]) -> Chosen:
    """From the records of the first phase, in the order of the items: the same in every process.

    What was chosen once stays chosen (`chosen_heads.json` in the run's folder): an item that failed to be
    scored and is scored later would change the choice under records that were made by it.
    """
    videos = [pair.item.video_id for pair in pairs]
    halves = probes.video_halves(videos, seed=config.seed).tolist()
    half_of = {pair.item.id: half for pair, half in zip(pairs, halves, strict=True)}
    scored = _scored(context, config, [pair.item for pair in pairs], half_of)
    kept = context.folder.path / _CHOSEN
    if kept.exists():
        return Chosen.of(scored, half_of, json.loads(kept.read_text()))
    chosen = Chosen(scored, half_of, *_ranked(config, pairs, scored))
    write_text(kept, json.dumps(chosen.told()), shard=context.config.shard.index)
    return chosen


def _ranked(
    config: Config, pairs: Sequence[Pair], scored: Scored
) -> tuple[dict[tuple[bool, str, float], list[Head]], dict[tuple[bool, str, float], list[list[Head]]]]:
    """Top heads and random ones, chosen on each half for the other."""
    top: dict[tuple[bool, str, float], list[Head]] = {}
    like: dict[tuple[bool, str, float], list[list[Head]]] = {}
    for half in (False, True):
        for group in dict.fromkeys(_group(config, pair.item.task) for pair in pairs):
            own = [_group(config, task) == group for task in scored.tasks]
            there = np.array(own, dtype=bool) & (scored.half != half)
            if not there.any():
                continue
            mean = _defined_mean(scored.score[there])
            if not np.isfinite(mean).any():
                continue
            for place, share in enumerate(config.shares):
                key = half, group, share
                best = probes.top_heads(mean, share)
                top[key] = [(scored.layers[row], head) for row, head in best]
                try:
                    like[key] = [
                        probes.heads_like(top[key], mean.shape[1], seed=[config.seed, place, draw])
                        for draw in range(config.draws)
                    ]
                except ValueError:  # a layer without as many other heads: told in the table `masking`
                    like[key] = []
    return top, like


def _defined_mean(scores: Float[np.ndarray, "item layer head"]) -> Float[np.ndarray, "layer head"]:
    """Over the items where a head's score is defined; NaN where it is nowhere."""
    known = np.isfinite(scores)
    total = np.where(known, scores, 0.0).sum(axis=0)
    return np.divide(total, known.sum(axis=0), out=np.full(total.shape, np.nan), where=known.any(axis=0))


def _group(config: Config, task: str) -> str:
    return task if config.within == "task" else "all"


def _scored(context: Context, config: Config, items: Sequence[Item], half_of: Mapping[str, bool]) -> Scored:
    records = {record.item_id: record for record in context.folder.records() if record.condition == SCORE}
    names = ("item", "mass", "blank", "evidence", "centric", "layers")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for item in items:
        record = records.get(item.id)
        path = None if record is None or record.error else tensor_path(context.folder.path, record)
        kept = None if path is None else read_tensors(path)
        if kept is None or kept.attention is None or kept.control is None or config.role not in kept.role:
            continue
        evidence = kept.units.evidence.any(axis=1)
        if evidence.all() or not evidence.any():
            continue  # nothing to tell evidence from: no score
        place, attention = kept.role.index(config.role), kept.attention
        mass = attention.unit_mass[:, :, place]
        name = "unit_mass" if config.score == "log_lift" else "value_mass"
        found["item"].append(item)
        found["mass"].append(getattr(attention, name)[:, :, place].astype(np.float64))
        found["blank"].append(getattr(kept.control, name)[:, :, place].astype(np.float64))
        found["evidence"].append(evidence)
        found["layers"].append(tuple(kept.layer.tolist()))
        if attention.sink_unit_mass is not None:
            rest, sinks = attention.rest_mass[:, :, place], attention.sink_unit_mass[:, :, place]
            found["centric"].append(probes.image_centric(mass, rest, sinks).astype(float))
    return _stacked(found, half_of, SCORES[config.score])


def _stacked(found: Mapping[str, list[Any]], half_of: Mapping[str, bool], score: probes.HeadScore) -> Scored:
    def lifts(masses: list[Any]) -> Float[np.ndarray, "item layer head"]:
        each = [score(m, e) for m, e in zip(masses, found["evidence"], strict=True)]
        return np.stack(each) if each else np.empty((0, 0, 0))

    raw, blank = lifts(found["mass"]), lifts(found["blank"])
    items: list[Item] = found["item"]
    return Scored(
        items=tuple(item.id for item in items),
        videos=tuple(item.video_id for item in items),
        tasks=tuple(item.task for item in items),
        half=np.array([half_of[item.id] for item in items], dtype=bool),
        score=raw - blank,
        raw=raw,
        blank=blank,
        masses=tuple(found["mass"]),
        blanks=tuple(found["blank"]),
        evidence=tuple(found["evidence"]),
        layers=found["layers"][0] if items else (),
        image_centric=np.stack(found["centric"]) if found["centric"] else None,
    )


class _Masking:
    """One item with nothing, the top heads, and random heads silenced; its picture is encoded once."""

    def __init__(self, context: Context, config: Config, chosen: Chosen, stack: ExitStack) -> None:
        self._context, self._config, self._chosen, self._stack = context, config, chosen, stack
        self._reusing = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        loaded = self._context.model
        look = look_inside(self._context, source.item, source.frames)
        if not self._reusing:
            self._stack.enter_context(hooks.reuse_vision(loaded.model))
            self._reusing = True
        measures = self._outcome(look, [], "none")
        half, group = self._chosen.half_of[pair.item.id], _group(self._config, pair.item.task)
        warnings = list(position_warnings(loaded, look.inputs))
        with reported(pair.item):
            for share in self._config.shares:
                top = self._chosen.top.get((half, group, share))
                if top is None:
                    warnings.append(f"no_heads: no item of {group} in the other half chose any")
                    continue
                measures |= self._outcome(look, top, f"top,share={share:g}")
                for draw, heads in enumerate(self._chosen.like[half, group, share]):
                    measures |= self._outcome(look, heads, f"random,share={share:g},draw={draw}")
        fields = {**prompt_fields(look.prompt, look.tokens), "measures": measures}
        return Measured(fields | {"warnings": [*look.prompt.notices, *dict.fromkeys(warnings)]})

    def _outcome(self, look: Look, heads: Sequence[Head], told: str) -> dict[str, float]:
        with ExitStack() as stack:
            if heads:
                stack.enter_context(hooks.scale_heads(self._context.model.model, dict.fromkeys(heads, 0.0)))
            logits = option_logits(self._context.model, look)
        others = np.delete(logits, look.gold)
        return {
            f"gold_log_odds@heads={told}": log_odds(logits, look.gold),
            f"choice_accuracy@heads={told}": float(logits[look.gold] > others.max()),
        }
