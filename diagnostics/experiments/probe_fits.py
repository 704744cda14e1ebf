"""From the kept states of a run to its probes: which units are samples of what, and one layer at a time.

States of one layer of all items are in memory at once, no more: tensor files are cut along layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

import probes
from diagnostics.data.items import Item
from diagnostics.experiments.context import Context
from diagnostics.experiments.write_up import Asked
from diagnostics.store.records import Record
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_layer, read_tensors

if TYPE_CHECKING:
    from diagnostics.experiments.probing import Config

__all__ = ["PLACELESS", "TARGETS", "Fits", "Samples", "fit_all"]

TARGETS: Mapping[str, str] = {
    "evidence": "the unit shows evidence of what is asked",
    "time": "when in the video the unit was filmed, 0 to 1, shown forward or backward",
    "order": "which of two units was filmed first, shown forward or backward",
    "direction": "whether the video runs forward or backward",
    "phase": "the right option of questions about a phase, at their evidence",
    "place": "where in the prompt the unit stands, 0 to 1: what positions alone give away",
    "coin": "a coin tossed for each video: nothing to read",
}
"""What a probe may read, and what it is."""

PLACELESS = frozenset({"time", "order", "direction"})
"""Targets of videos shown forward and backward, so that a place in the prompt does not tell them."""

_RIDGE = frozenset({"time", "place"})


@dataclass(frozen=True, eq=False)
class _Shown:
    """One measured pair: its record, the item asked, and what its units show."""

    record: Record
    item: Item
    seconds: Float[np.ndarray, " unit"]
    evidence: Shaped[np.ndarray, " unit"]
    forward: bool

    @property
    def n_units(self) -> int:
        return len(self.seconds)

    @property
    def place(self) -> Float[np.ndarray, " unit"]:
        """Of each unit in the prompt, 0 to 1."""
        return np.arange(self.n_units) / max(1, self.n_units - 1)

    @property
    def time(self) -> Float[np.ndarray, " unit"]:
        """Of each unit in the video, 0 to 1; NaN where it shows no frame of it."""
        whole = self.record.source_seconds
        return self.seconds / whole if whole else np.full(self.n_units, np.nan)


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of one target: a unit each, or the difference of two.

    Attributes:
        pair: which measured pair each is of.
        unit: its unit; other: the unit whose state is subtracted, -1 for none.
        label: what is to be read.
        place: in the prompt, 0 to 1; of a difference, the difference.
    """

    pair: Int[np.ndarray, " sample"]
    unit: Int[np.ndarray, " sample"]
    other: Int[np.ndarray, " sample"]
    label: Shaped[np.ndarray, " sample"]
    place: Float[np.ndarray, " sample"]

    def states(
        self, by_pair: Sequence[Float[np.ndarray, "unit feature"]]
    ) -> Float[np.ndarray, "sample feature"]:
        """One row a sample, from the states of each measured pair."""
        rows = np.stack([by_pair[pair][unit] for pair, unit in zip(self.pair, self.unit, strict=True)])
        for row in np.flatnonzero(self.other >= 0).tolist():
            rows[row] -= by_pair[self.pair[row]][self.other[row]]
        return rows

    def some(self, most: int, seed: int) -> Samples:
        """At most so many, drawn."""
        if len(self.pair) <= most:
            return self
        chosen = np.sort(np.random.default_rng(seed).permutation(len(self.pair))[:most])
        return Samples(*(getattr(self, name)[chosen] for name in ("pair", "unit", "other", "label", "place")))


@dataclass(frozen=True, eq=False)
class Fits:
    """The table of probes by layer and target, and the targets that could not be fitted, with why."""

    table: pd.DataFrame
    unfit: Mapping[str, str]

    @property
    def unfit_table(self) -> pd.DataFrame:
        """Target and reason."""
        return pd.DataFrame({"target": list(self.unfit), "reason": list(self.unfit.values())})


def fit_all(context: Context, asked: Asked, config: Config) -> Fits:
    """Fit every target at every layer that was kept; those that the items do not allow are told."""
    shown, layers = _measured(context, asked)
    samples: dict[str, Samples] = {}
    unfit: dict[str, str] = {}
    for target in config.targets:
        found = _samples(target, shown, config)
        if found is None:
            unfit[target] = "no unit is a sample of it"
        else:
            samples[target] = found.some(config.samples, config.seed)
    rows: list[dict[str, Any]] = []
    paths = [tensor_path(context.folder.path, one.record) for one in shown]
    with context.progress("Fitting probes", total=len(layers) * len(samples)) as advance:
        for place, layer in enumerate(layers):
            states = [read_layer(path, "states/unit_state", place) for path in paths if path is not None]
            for target, some in samples.items():
                if target not in unfit:
                    try:
                        rows.append(_fit(target, layer, some, states, shown, config))
                    except ValueError as error:  # one class, one video: the same at every layer
                        unfit[target] = str(error)
                advance()
    return Fits(pd.DataFrame(rows), unfit)


def _fit(
    target: str,
    layer: int,
    samples: Samples,
    states: Sequence[Float[np.ndarray, "unit feature"]],
    shown: Sequence[_Shown],
    config: Config,
) -> dict[str, Any]:
    videos = [shown[pair].record.video_id for pair in samples.pair.tolist()]
    found = probes.fit_probe(
        samples.states(states),
        samples.label,
        videos,
        kind="ridge" if target in _RIDGE else "logistic",
        position=samples.place,
        folds=config.folds,
        shuffles=config.shuffles,
        penalty=config.penalty,
        seed=config.seed,
    )
    row: dict[str, Any] = {
        "target": target,
        "layer": layer,
        "kind": found.kind,
        "chance": found.chance,
        "classes": found.classes,
        "exchanged": found.exchanged,
    }
    for name in ("score", "shuffled", "position_only", "selectivity", "beyond_position"):
        told = asdict(getattr(found, name))
        row |= {name: told["mean"], f"{name}_low": told["ci_low"], f"{name}_high": told["ci_high"]}
    return row | {"n": found.score.n, "videos": found.score.n_groups}


def _measured(context: Context, asked: Asked) -> tuple[list[_Shown], list[int]]:
    """Every finished pair with what its units show, and the layers that were kept."""
    shown: list[_Shown] = []
    layers: list[int] = []
    for record in asked.done:
        path = tensor_path(context.folder.path, record)
        if path is None:
            continue
        tensors = read_tensors(path, only=("units", "tokens"))
        layers = tensors.layer.tolist()
        known = np.isfinite(tensors.units.true_seconds)
        sums = np.where(known, tensors.units.true_seconds, 0.0).sum(axis=1)
        counts = known.sum(axis=1)
        seconds = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        shown.append(
            _Shown(
                record,
                asked.items[record.item_id],
                seconds,
                np.asarray(tensors.units.evidence.any(axis=1)),
                forward=record.condition["order"] == "original",
            )
        )
    return shown, layers


def _samples(target: str, shown: Sequence[_Shown], config: Config) -> Samples | None:
    """The samples of a target; None where there is none."""
    if target == "order":
        return _pairs(shown, config)
    label = _LABELS[target](shown, config)
    pair, unit, labels, place = [], [], [], []
    for number, one in enumerate(shown):
        own = None if not one.forward and target not in PLACELESS else label(one)
        if own is None:
            continue
        values, kept = own
        units = np.flatnonzero(kept)
        pair.append(np.full(len(units), number))
        unit.append(units)
        labels.append(np.asarray(values)[units])
        place.append(one.place[units])
    if not sum(map(len, unit)):
        return None
    units = np.concatenate(unit)
    return Samples(
        np.concatenate(pair), units, np.full(len(units), -1), np.concatenate(labels), np.concatenate(place)
    )


_Label = Callable[[_Shown], "tuple[Any, Any] | None"]
"""From a measured pair to a value for each unit and which units are samples; None where none is."""


def _coin(shown: Sequence[_Shown], config: Config) -> _Label:
    """As many heads as tails, up to one."""
    videos = sorted({one.record.video_id for one in shown})
    order = np.random.default_rng(config.seed).permutation(len(videos))
    heads = {videos[place] for place in order[: len(videos) // 2].tolist()}
    return lambda one: (np.full(one.n_units, one.record.video_id in heads), np.ones(one.n_units, bool))


def _phase(_: Sequence[_Shown], config: Config) -> _Label:
    def label(one: _Shown) -> tuple[Any, Any] | None:
        item = one.item
        if item.task not in config.phase_tasks or not item.options or item.answer is None:
            return None
        text = item.options[item.letters.index(item.answer)]
        return np.full(one.n_units, text), one.evidence

    return label


def _evidence(_: Sequence[_Shown], config: Config) -> _Label:
    def label(one: _Shown) -> tuple[Any, Any] | None:
        if one.item.local_evidence is None or one.item.task not in (
            config.evidence_tasks or (one.item.task,)
        ):
            return None
        return one.evidence, np.ones(one.n_units, bool)

    return label


_LABELS: Mapping[str, Callable[[Sequence[_Shown], Config], _Label]] = {
    "evidence": _evidence,
    "time": lambda _shown, _config: lambda one: (one.time, np.isfinite(one.time)),
    "direction": lambda _shown, _config: (
        lambda one: (np.full(one.n_units, one.forward), np.ones(one.n_units, bool))
    ),
    "phase": _phase,
    "place": lambda _shown, _config: lambda one: (one.place, np.ones(one.n_units, bool)),
    "coin": _coin,
}


def _pairs(shown: Sequence[_Shown], config: Config) -> Samples | None:
    """Two units of a video, drawn; the label says whether the first was filmed first."""
    columns: list[tuple[int, int, int, bool, float]] = []
    for number, one in enumerate(shown):
        drawn = probes.unit_pairs(one.n_units, config.pairs_per_video, [config.seed, number])
        for first, second in drawn.tolist():
            if one.time[first] != one.time[second] and np.isfinite(one.time[[first, second]]).all():
                earlier = bool(one.time[first] < one.time[second])
                columns.append((number, first, second, earlier, one.place[first] - one.place[second]))
    if not columns:
        return None
    pair, first, second, label, place = map(np.array, zip(*columns, strict=True))
    return Samples(pair, first, second, label, place)
