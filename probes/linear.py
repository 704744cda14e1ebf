"""Linear probes on states: what a layer's state of a temporal unit says, and what it does not.

A ridge or a logistic regression reads a target from states (Alain & Bengio, arXiv 1610.01644), always fitted
on some videos and scored on others: units of one video are alike, and a probe that has seen the video has
seen the answer. Two numbers stand beside every score. *Shuffled*: the same probe on labels that were
exchanged among samples, the control task of selectivity (Hewitt & Liang, arXiv 1909.03368, section 2).
*Position only*: a probe that sees the place of the unit and nothing else, through a cubic spline, since
rotary positions and times in the prompt leak order into every state.

Scores are made from the videos that were held out, all folds together. `logistic`: balanced accuracy, the
mean over classes of the part recognised (chance: 1 / classes). `ridge`: R2, 1 less the squared error over
that of the training folds' mean (chance: 0 or a little below). Intervals resample videos.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Shaped

from probes.intervals import Estimate
from probes.resampling import group_draws, group_index, percentile_interval

__all__ = ["ProbeKind", "ProbeScore", "fit_probe", "probe_layers", "unit_pairs"]

ProbeKind = Literal["logistic", "ridge"]

_KNOTS = 6
"""Of the spline through which the position-only probe sees a place: it bends four times between the ends."""

_PLACE_PENALTY = 1e-3
"""Of that probe: it has eight numbers to weigh, and is to find what a place can tell."""


@dataclass(frozen=True)
class ProbeScore:
    """One probe, its controls, and how far it is above them; each with its interval over videos.

    Attributes:
        kind: `logistic` (balanced accuracy) or `ridge` (R2).
        score: of the probe.
        shuffled: of the same probe on exchanged labels, the mean over the exchanges.
        position_only: of the probe that sees the place alone; None where no place was given.
        selectivity: score less shuffled, on the same videos.
        beyond_position: score less position only, likewise; None where no place was given.
        chance: 1 / classes, or 0.
        classes: how many classes; 0 for `ridge`.
        exchanged: labels were exchanged among the samples of a video (`within`), or, where a video has one
            label, among videos (`across`).
    """

    kind: ProbeKind
    score: Estimate
    shuffled: Estimate
    position_only: Estimate | None
    selectivity: Estimate
    beyond_position: Estimate | None
    chance: float
    classes: int
    exchanged: Literal["within", "across"]


def fit_probe(
    states: Float[np.ndarray, "sample feature"],
    labels: Shaped[np.ndarray, " sample"] | Sequence[Any],
    videos: Sequence[Hashable],
    *,
    kind: ProbeKind = "logistic",
    position: Float[np.ndarray, " sample"] | Float[np.ndarray, "sample place"] | None = None,
    folds: int = 5,
    shuffles: int = 5,
    penalty: float = 0.1,
    n_resamples: int = 2000,
    seed: int = 0,
) -> ProbeScore:
    """Fit and score one probe with its controls.

    Args:
        states: one row a sample; standardised inside each fold.
        labels: classes of any kind for `logistic`, numbers for `ridge`.
        videos: the video of each sample; no video is in two folds.
        kind: which probe.
        position: the place of each sample (of both units of a pair), for the position-only probe.
        folds: at most so many; fewer where there are fewer videos.
        shuffles: how often labels are exchanged for the control.
        penalty: for each sample, on standardised states: ridge's alpha is this times the samples, C of the
            logistic the inverse. Directions along which states vary much less than this are not used.
        n_resamples, seed: of the intervals; the seed also draws the exchanges.

    Raises:
        ValueError: before any fit: one video, one class (or a constant), a class that only one video has,
            numbers that are not finite, lengths that differ, no exchange.
    """
    data = _Data.of(states, labels, videos, kind)
    if shuffles < 1:
        raise ValueError(f"the control needs at least one exchange of labels, got {shuffles}")
    if folds < 2:
        raise ValueError(f"scoring on videos held out needs at least 2 folds, got {folds}")
    place = None if position is None else _rows(position, "position", data.n)
    split = _Split(data, min(folds, data.n_videos), seed)
    random = np.random.default_rng(seed)
    own = _sums(data, data.y, split, penalty)
    mixed = [_exchanged(data, random) for _ in range(shuffles)]
    control = np.stack([_sums(data, y, split, penalty) for y in mixed])
    placed = None
    if place is not None:
        other = _Data(place, data.y, data.of_video, data.n_videos, kind)
        placed = _sums(other, data.y, split, _PLACE_PENALTY, spline=True)
    drawn = group_draws(data.n_videos, n_resamples, np.random.default_rng(seed)).astype(np.float64)
    scorer = _Scorer(kind, drawn, data.n)
    return ProbeScore(
        kind=kind,
        score=scorer.estimate(own[None]),
        shuffled=scorer.estimate(control),
        position_only=None if placed is None else scorer.estimate(placed[None]),
        selectivity=scorer.estimate(own[None], control),
        beyond_position=None if placed is None else scorer.estimate(own[None], placed[None]),
        chance=1.0 / data.classes if kind == "logistic" else 0.0,
        classes=data.classes if kind == "logistic" else 0,
        exchanged=_exchange(data),
    )


def probe_layers(
    states: Float[np.ndarray, "layer sample feature"],
    labels: Shaped[np.ndarray, " sample"] | Sequence[Any],
    videos: Sequence[Hashable],
    **options: Any,
) -> list[ProbeScore]:
    """`fit_probe` at each layer, on the same folds and exchanges; raises as it does, before any fit."""
    stacked = np.asarray(states)
    if stacked.ndim != 3:
        raise ValueError(f"states by layer have 3 axes, layer, sample and feature, not {stacked.ndim}")
    return [fit_probe(layer, labels, videos, **options) for layer in stacked]


def unit_pairs(n_units: int, count: int, seed: int | Sequence[int] = 0) -> Int[np.ndarray, "pair 2"]:
    """Pairs of different units, either one first, drawn without repetition.

    The probe of order reads the difference of two states and says which unit is earlier: each pair is drawn
    in one of its two directions, so that neither is the commoner.

    Args:
        n_units: of the video.
        count: pairs at most.
        seed: of the drawing.
    """
    first, second = np.triu_indices(n_units, k=1)
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(first))[:count]
    pairs = np.stack([first[chosen], second[chosen]], axis=1)
    turned = np.arange(len(pairs)) % 2 == 1
    pairs[turned] = pairs[turned][:, ::-1]
    return pairs


@dataclass(frozen=True, eq=False)
class _Data:
    """Checked samples: states, labels (classes as numbers), and the number of each one's video."""

    x: Float[np.ndarray, "sample feature"]
    y: Shaped[np.ndarray, " sample"]
    of_video: Int[np.ndarray, " sample"]
    n_videos: int
    kind: ProbeKind

    @classmethod
    def of(cls, states: Any, labels: Any, videos: Sequence[Hashable], kind: ProbeKind) -> _Data:
        x = _rows(states, "states", len(videos))
        given = np.asarray(labels)
        if given.shape != (len(videos),):
            raise ValueError(f"{len(given)} labels belong to {len(videos)} samples")
        of_video, n_videos = group_index(videos)
        if n_videos < 2:
            raise ValueError(f"a probe is scored on videos it has not seen: {n_videos} video is too few")
        if kind == "ridge":
            y = given.astype(np.float64)
            if not np.isfinite(y).all():
                raise ValueError("ridge needs finite labels")
            if np.ptp(y) == 0:
                raise ValueError("every label is the same number: there is nothing to read")
            return cls(x, y, of_video, n_videos, kind)
        names, classes = np.unique(given, return_inverse=True)
        if len(names) < 2:
            raise ValueError(
                f"every label is {names[0]!r}: a probe needs two classes" if len(names) else "no samples"
            )
        for number, name in enumerate(names.tolist()):
            if len(np.unique(of_video[classes == number])) < 2:
                raise ValueError(f"only one video has the class {name!r}: it cannot be held out")
        return cls(x, classes, of_video, n_videos, kind)

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


def _rows(values: Any, name: str, n: int) -> Float[np.ndarray, "sample column"]:
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != n:
        raise ValueError(f"{name} of {n} samples have shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} hold numbers that are not finite")
    return array


class _Split:
    """Folds by video, the same for a probe and its controls; classes spread over them evenly.

    Where each video has one label, holding out one of a class leaves the other class the commoner one, and a
    probe of noise falls below chance: stratified folds keep that small.
    """

    def __init__(self, data: _Data, folds: int, seed: int) -> None:
        from sklearn.model_selection import GroupKFold, StratifiedGroupKFold  # seconds to import

        splitter = (GroupKFold if data.kind == "ridge" else StratifiedGroupKFold)(
            folds, shuffle=True, random_state=seed
        )
        split = splitter.split(np.zeros(data.n), data.y, groups=data.of_video)
        self.folds = [(train, test) for train, test in split if len(test)]


def _pipeline(kind: ProbeKind, alpha: float, *, spline: bool) -> Any:
    """Standardisation and the regression; behind a spline where it sees a place alone."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer, StandardScaler

    last = (
        Ridge(alpha=alpha)
        if kind == "ridge"
        else LogisticRegression(C=1.0 / alpha, class_weight="balanced", max_iter=1000)
    )
    before = [SplineTransformer(n_knots=_KNOTS, degree=3, extrapolation="constant")] if spline else []
    return make_pipeline(*before, StandardScaler(), last)


def _sums(
    data: _Data,
    y: Shaped[np.ndarray, " sample"],
    split: _Split,
    penalty: float,
    *,
    spline: bool = False,
) -> Float[np.ndarray, "video statistic"]:
    """What the score is made of, by video: hits and counts of each class, or the two squared errors."""
    sums = np.zeros((data.n_videos, 2 if data.kind == "ridge" else 2 * data.classes))
    for train, test in split.folds:
        of_video = data.of_video[test]
        model = _pipeline(data.kind, penalty * len(train), spline=spline)
        if data.kind == "ridge":
            error = y[test] - model.fit(data.x[train], y[train]).predict(data.x[test])
            np.add.at(sums[:, 0], of_video, error**2)
            np.add.at(sums[:, 1], of_video, (y[test] - y[train].mean()) ** 2)
            continue
        # A fold may have left the training videos one class: then that class is all a probe can say.
        known = np.unique(y[train])
        said = np.full(len(test), known[0])
        if len(known) > 1:
            said = model.fit(data.x[train], y[train]).predict(data.x[test])
        np.add.at(sums, (of_video, y[test]), said == y[test])
        np.add.at(sums, (of_video, data.classes + y[test]), 1.0)
    return sums


def _exchange(data: _Data) -> Literal["within", "across"]:
    """Whether labels differ within a video; where they do not, whole videos exchange theirs."""
    first = np.zeros(data.n_videos, dtype=data.y.dtype)
    first[data.of_video] = data.y
    return "across" if (first[data.of_video] == data.y).all() else "within"


def _exchanged(data: _Data, random: np.random.Generator) -> Shaped[np.ndarray, " sample"]:
    """Labels exchanged among the samples of each video, or among videos where each has one label."""
    if _exchange(data) == "across":
        first = np.zeros(data.n_videos, dtype=data.y.dtype)
        first[data.of_video] = data.y
        return first[random.permutation(data.n_videos)][data.of_video]
    mixed = data.y.copy()
    for video in range(data.n_videos):
        members = np.flatnonzero(data.of_video == video)
        mixed[members] = data.y[random.permutation(members)]
    return mixed


class _Scorer:
    """Scores from sums by video, and their intervals over the same resamples of videos."""

    def __init__(self, kind: ProbeKind, drawn: Float[np.ndarray, "resample video"], n: int) -> None:
        self._kind, self._drawn, self._n = kind, drawn, n

    def estimate(
        self,
        sums: Float[np.ndarray, "repeat video statistic"],
        less: Float[np.ndarray, "repeat video statistic"] | None = None,
    ) -> Estimate:
        """The score (mean over repeats), less another one on the same videos, with its interval."""
        n_videos = self._drawn.shape[1]
        whole = self._scores(sums, np.ones((1, n_videos)))
        resampled = self._scores(sums, self._drawn)
        if less is not None:
            whole = whole - self._scores(less, np.ones((1, n_videos)))
            resampled = resampled - self._scores(less, self._drawn)
        low, high = percentile_interval(resampled, 0.95)
        return Estimate(float(whole[0]), float(low), float(high), self._n, n_videos, 0)

    def _scores(self, sums: np.ndarray, drawn: np.ndarray) -> Float[np.ndarray, " resample"]:
        totals = np.einsum("rv,kvs->krs", drawn, sums)
        half = totals.shape[-1] // 2
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = totals[..., :half] / totals[..., half:]
        # A class that no video drawn has is left out of that resample's mean.
        found = 1.0 - parts[..., 0] if self._kind == "ridge" else _mean_defined(parts)
        return found.mean(axis=0)


def _mean_defined(parts: Float[np.ndarray, "*axes kind"]) -> Float[np.ndarray, "*axes"]:
    defined = ~np.isnan(parts)
    return np.where(defined, parts, 0.0).sum(axis=-1) / np.maximum(defined.sum(axis=-1), 1)
