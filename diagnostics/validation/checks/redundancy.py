"""Similarity of units and patches: closed forms on vectors made by hand, an ordering on real pictures.

On vectors the cosines are chosen and the measures are arithmetic on them. On pictures through a vision
tower no number is known beforehand, only an order: the same frame throughout is more redundant than a video
of which half stands still, and that more than frames of different videos.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import probes
from diagnostics.data.items import Item
from diagnostics.experiments.drift_measures import redundancy_of
from diagnostics.models.loading import LoadedModel
from diagnostics.validation.bench import UNIT, Asked, Bench, share
from diagnostics.validation.rows import Row
from diagnostics.video.selection import Frames, Selection, Slot

__all__ = ["rows", "videos_of"]

_ROUNDING = 1e-6
_WHY = "closed form: only rounding of square roots"
_UNITS, _PLACES = 16, 9
_SETS = 36
_STANDING = 4
"""Sets of films, and films that stand still in turn in each: a film that happens to be like the others, or
unlike them, moves the half-static video by more than standing still does, so that one film is no measure."""
_KINDS = ("static", "half static", "independent")
_FEATURES = ("projector", "vit")


def rows(bench: Bench) -> Iterable[Row]:
    """By hand, then through the vision tower."""
    yield from _similarity_by_hand()
    yield from _patches_by_hand()
    yield from _pictures(bench)


def _exact(name: str, planted: str, target: float, measured: float, tolerance: float = _ROUNDING) -> Row:
    return Row.exact(name, planted, float(target), float(measured), tolerance=tolerance, why=_WHY)


def _similarity_by_hand() -> Iterator[Row]:
    """U units, half of them along one direction, half along another at an angle."""
    angle = math.radians(70)
    units = np.array([[1.0, 0.0]] * 4 + [[math.cos(angle), math.sin(angle)]] * 4)
    same, across = 2 * math.comb(4, 2), 16
    target = (same + across * math.cos(angle)) / math.comb(8, 2)
    found = probes.pair_similarity(units).mean
    yield _exact("unit_similarity, two groups of 4 units at 70°", "(12 + 16 cos 70°)/28", target, found)
    centred = probes.pair_similarity(units, centre=True).mean
    target = (same - across) / math.comb(8, 2)
    yield _exact("unit_similarity_centred, the same: opposite groups", "(12 - 16)/28", target, centred)
    frozen = probes.pair_similarity(np.tile([[0.6, 0.8]], (8, 1))).mean
    yield _exact("unit_similarity, 8 equal units", "1", 1, frozen)
    for count in (4, 16):
        apart = probes.pair_similarity(np.eye(count), centre=True).mean
        name = f"unit_similarity_centred, {count} orthogonal units"
        yield _exact(name, "-1/(U-1)", -1 / (count - 1), apart)


def _patches_by_hand() -> Iterator[Row]:
    """8 units of 4 patches; units 0 and 4 are keyframes. Each other patch is turned by an angle of its
    own."""
    units, places = 8, 4
    angles = np.zeros((units, places))
    followers = [unit for unit in range(units) if unit not in (0, 4)]
    angles[followers] = np.linspace(0.1, 1.4, len(followers) * places).reshape(-1, places)
    features = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(-1, 2)
    attention = np.zeros((units, places))
    attention[followers] = np.arange(1.0, len(followers) * places + 1).reshape(-1, places)
    attention[[0, 4]] = 100.0
    unit, place = (grid.ravel() for grid in np.mgrid[:units, :places])
    layout = unit, place // 2, place % 2
    found = probes.patch_redundancy(features, attention.ravel(), *layout, key_fraction=0.25)
    # Planted: similarities are the cosines of the angles, weights are 1, 2, 3... in the same order.
    cosines = [math.cos(angle) for angle in angles[followers].ravel()]
    plain = math.fsum(cosines) / len(cosines)
    weighted = math.fsum(w * c for w, c in enumerate(cosines, start=1)) / sum(range(1, len(cosines) + 1))
    yield _exact(
        "patch_similarity, patches turned by known angles", "mean cosine", plain, found.patch_similarity
    )
    name = "redundancy_preference, attention 1, 2, 3... on them"
    yield _exact(name, "weighted - plain mean", weighted - plain, found.redundancy_preference)
    even = np.where(attention < 100, 1.0, attention)
    found = probes.patch_redundancy(features, even.ravel(), *layout, key_fraction=0.25)
    yield _exact("redundancy_preference, even attention", "0", 0, found.redundancy_preference)


def _pictures(bench: Bench) -> Iterator[Row]:
    """Static > half static > independent, by the unit and the patch similarity of two embeddings."""
    items = bench.items("Hist", "Site", "LLS")
    films = list({item.video_id: item for item in items}.values())
    # Each set begins with a film of its own, and shows others of its own where there are enough.
    sets = [
        films[place * _UNITS % len(films) :] + films[: place * _UNITS % len(films)] for place in range(_SETS)
    ]
    measured: dict[str, dict[str, list[float]]] = {kind: {} for kind in _KINDS}
    loaded = bench.model()
    for place, group in enumerate(sets):
        bench.say(f"redundancy: set {place + 1} of {len(sets)}")
        for kind in _KINDS:
            numbers = [
                _similarities(bench, loaded, group[0], frames) for frames in videos_of(bench, kind, group)
            ]
            for name in numbers[0]:
                measured[kind].setdefault(name, []).append(float(np.mean([one[name] for one in numbers])))
    asked = [Asked(group[0], None) for group in sets]
    details = {"split": bench.data.split, "units": _UNITS, "videos": len(sets), "standing_still": _STANDING}
    for name in measured["static"]:
        static, half, apart = (np.array(measured[kind][name]) for kind in _KINDS)
        yield Row.exact(
            f"{name}, one frame throughout",
            "1",
            1.0,
            share(static, asked).mean,
            tolerance=1e-5,
            why="equal pictures give equal embeddings, up to float32",
            n=int(np.isfinite(static).sum()),
            details=details,
        )
        for more, less, gap in (
            ("static", "half static", static - half),
            ("half static", "independent", half - apart),
        ):
            yield Row.above(
                f"{name}: {more} minus {less}",
                0.0,
                share(gap, asked),
                why="only the order is known",
                details=details,
            )


def _similarities(bench: Bench, loaded: LoadedModel, item: Item, frames: Frames) -> dict[str, float]:
    """Unit and patch similarity by the two embeddings, one quarter of the units being keyframes."""
    seen = bench.observe(loaded, item, frames, features=_FEATURES)
    visual = seen.tokens.visual
    layout = seen.tokens.unit[visual], seen.tokens.row[visual], seen.tokens.col[visual]
    mass = seen.captured.token_mass("question").mean(axis=0)
    found = {}
    for feature in _FEATURES:
        embedded = {feature: seen.features[feature]}
        numbers = redundancy_of(mass, embedded, layout, seen.shown.seconds, (0.25,)).measures
        for name in ("unit_similarity", "patch_similarity"):
            found[f"{name} ({feature})"] = numbers[name]
    return found


def videos_of(bench: Bench, kind: str, films: Sequence[Item]) -> Iterator[Frames]:
    """Videos of 16 units of two equal frames, all made of the same 16 films.

    `independent` shows one film a unit. In the others one of its own films stands still in the second half
    (`half static`) or throughout (`static`): several films in turn, all from the half that is replaced.
    """
    shown = [films[place % len(films)] for place in range(_UNITS)]
    first = {"independent": _UNITS, "half static": _UNITS // 2, "static": 0}[kind]
    standing = shown[_UNITS // 2 :: _UNITS // 2 // _STANDING] if first < _UNITS else shown[:1]
    for film in standing:
        yield _video(bench, kind, shown[:first] + [film] * (_UNITS - first))


def _video(bench: Bench, kind: str, sources: Sequence[Item]) -> Frames:
    """The middle frame of each film, twice."""
    middles = [bench.uniform(item, 3).slots[1].frame_index for item in sources]
    pixels = [
        np.repeat(bench.reader.read(item.video, [number]), UNIT, axis=0)
        for item, number in zip(sources, middles, strict=True)
    ]
    slots = tuple(
        Slot(sources[place // UNIT].video_id, middles[place // UNIT], float(place), float(place))
        for place in range(UNIT * _UNITS)
    )
    index = bench.reader.index(sources[0].video)
    selection = Selection(slots, f"validation: {kind}", index.fps, index.n_frames, index.duration, len(slots))
    return Frames(np.concatenate(pixels), selection)
