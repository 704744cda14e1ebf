"""How alike the units are, which of them are keyframes, and how alike each patch is to its keyframe.

The redundancy analysis of ViLAMP (arXiv 2504.02438) in MedHorizon's form (arXiv 2605.06537, section 4.4 and
figure 9): similarity of random pairs of units; the most attended units as keyframes; every other patch
against the patch at the same place in the nearest preceding keyframe. Both are silent about the feature
(choose it, and write it into the result), about units before the first keyframe (undefined here, and
counted) and about pairs (all of them up to 256 units here). Raw cosines of one encoder sit on a high
common floor, so they are read beside the mean-centred ones and those between two videos.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from probes.layout import TokenLayout

__all__ = [
    "KeyframeSimilarity",
    "PairSimilarity",
    "keyframes",
    "nearest_preceding",
    "pair_similarity",
    "patch_to_keyframe",
    "unit_cosine",
]

# A vector shorter than this part of the longest raw one is rounding left over from float32: no direction.
VANISHED = 1e-6


@dataclass(frozen=True)
class PairSimilarity:
    """Cosines over pairs of units."""

    mean: float
    """Mean cosine; NaN where no pair has one."""
    std: float
    """Standard deviation over pairs."""
    n_pairs: int
    """Pairs it is the mean of."""
    n_undefined: int
    """Pairs dropped because one of the two has no direction (zero, or all units equal once centred)."""
    sampled: bool
    """Whether the pairs are a random sample and not all."""


def unit_cosine(
    unit_embeddings: Float[np.ndarray, "unit dim"],
    *,
    others: Float[np.ndarray, "unit_other dim"] | None = None,
    centre: bool | Float[np.ndarray, " dim"] = False,
) -> Float[np.ndarray, "unit unit_other"]:
    """Cosine of every pair of units; NaN where one of the two has no direction (or is NaN).

    Args:
        unit_embeddings: one vector a unit (see `unit_embeddings`).
        others: the units of another video; the same units where None.
        centre: subtract a mean first. True takes the mean over the given units (with `others`, the mean of
            the two videos' means, so that both share one origin); a vector is subtracted as it is, for
            instance the mean of a data set. U independent units centred on their own mean have a mean cosine
            of about -1/(U-1), not zero.

    Raises:
        ValueError: embeddings of different dimension.
    """
    first = np.asarray(unit_embeddings, dtype=np.float64)
    second = first if others is None else np.asarray(others, dtype=np.float64)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ValueError(f"embeddings need axes [unit, dim], got shapes {first.shape} and {second.shape}")
    known = [part[np.isfinite(part).all(axis=1)] for part in (first, second)]
    longest = max(float(np.linalg.norm(part, axis=1).max(initial=0.0)) for part in known)
    if isinstance(centre, np.ndarray):
        origin = centre.astype(np.float64)
    elif centre and all(len(part) for part in known):
        origin = (known[0].mean(axis=0) + known[1].mean(axis=0)) / 2
    else:
        origin = np.zeros(first.shape[1])
    directions = [_directions(part - origin, VANISHED * longest) for part in (first, second)]
    return np.clip(directions[0] @ directions[1].T, -1.0, 1.0)


def pair_similarity(
    unit_embeddings: Float[np.ndarray, "unit dim"],
    *,
    others: Float[np.ndarray, "unit_other dim"] | None = None,
    centre: bool | Float[np.ndarray, " dim"] = False,
    max_units: int | None = 256,
    seed: int = 0,
) -> PairSimilarity:
    """Mean cosine of pairs of different units of one video, or of pairs across two videos.

    Args:
        unit_embeddings, others, centre: see `unit_cosine`.
        max_units: above this many units (in either video) as many distinct pairs are drawn as that number of
            units would have; None takes all pairs always.
        seed: of the draw.

    Example:
        >>> round(pair_similarity(np.array([[1.0, 0.0], [1.0, 1.0]])).mean, 4)
        0.7071
    """
    cosine = unit_cosine(unit_embeddings, others=others, centre=centre)
    if others is None:
        pairs = cosine[np.triu_indices(len(cosine), k=1)]
        limit = None if max_units is None else max_units * (max_units - 1) // 2
    else:
        pairs = cosine.ravel()
        limit = None if max_units is None else max_units**2
    sampled = limit is not None and max(cosine.shape) > (max_units or 0) and len(pairs) > limit
    if sampled:
        pairs = np.random.default_rng(seed).choice(pairs, size=limit, replace=False)
    defined = pairs[np.isfinite(pairs)]
    return PairSimilarity(
        mean=float(defined.mean()) if defined.size else float("nan"),
        std=float(defined.std()) if defined.size else float("nan"),
        n_pairs=int(defined.size),
        n_undefined=int(pairs.size - defined.size),
        sampled=sampled,
    )


def keyframes(
    unit_share: Float[np.ndarray, " unit"], key_fraction: float = 0.25
) -> Bool[np.ndarray, " unit"]:
    """The ceil(key_fraction * U) most attended units; of two equal ones the earlier.

    MedHorizon takes 32 of 128 frames; where a unit is two frames that is read here as a quarter of the units.
    No unit is one where attention is undefined (a NaN share).

    Raises:
        ValueError: no units, or a fraction outside (0, 1].
    """
    share = np.asarray(unit_share, dtype=np.float64)
    if share.ndim != 1 or share.size == 0:
        raise ValueError(f"unit_share needs the axis [unit], got shape {share.shape}")
    if not 0 < key_fraction <= 1:
        raise ValueError(f"key_fraction lies in (0, 1], got {key_fraction}")
    is_key = np.zeros(share.size, dtype=bool)
    if np.isnan(share).any():
        return is_key
    # 1e-12: 0.07 * 100 is a little more than 7 in float64.
    count = int(np.ceil(share.size * (key_fraction - 1e-12)))
    is_key[np.argsort(-share, kind="stable")[:count]] = True
    return is_key


def nearest_preceding(is_key: Bool[np.ndarray, " unit"]) -> Int[np.ndarray, " unit"]:
    """The last keyframe before each unit, int32; -1 where none precedes and for keyframes themselves."""
    key = np.asarray(is_key, dtype=bool)
    latest = np.maximum.accumulate(np.where(key, np.arange(key.size), -1)) if key.size else np.array([])
    return np.where(key, -1, latest).astype(np.int32)


@dataclass(frozen=True, eq=False)
class KeyframeSimilarity:
    """Cosine of each patch to the same place in its keyframe, and why it is missing where it is."""

    similarity: Float[np.ndarray, " token"]
    """Cosine [token]; NaN where undefined and in keyframes."""
    keyframe: Int[np.ndarray, " unit"]
    """The keyframe of each unit (-1 where none, and for keyframes)."""
    n_no_keyframe: int
    """Patches of units before the first keyframe."""
    n_grid_mismatch: int
    """Patches of units whose grid is not their keyframe's."""
    n_no_direction: int
    """Patches dropped because they or their counterpart are zero."""


def patch_to_keyframe(
    token_features: Float[np.ndarray, "token dim"],
    unit: Int[np.ndarray, " token"],
    row: Int[np.ndarray, " token"],
    col: Int[np.ndarray, " token"],
    is_key: Bool[np.ndarray, " unit"],
) -> KeyframeSimilarity:
    """Cosine of each patch of a unit that is no keyframe to the same (row, col) of the nearest preceding one.

    Works unit by unit in the features' own precision (float32 for shorter ones): no copy of all of them.

    Raises:
        ValueError: lengths that differ, a unit out of range, or two tokens in one place.
    """
    key = np.asarray(is_key, dtype=bool)
    layout = TokenLayout.of(unit, row, col, n_units=len(key))
    if len(token_features) != len(layout.order):
        raise ValueError(f"features are given for {len(token_features)} tokens of {len(layout.order)}")
    keyframe = nearest_preceding(key)
    similarity = np.full(len(layout.order), np.nan)
    n_no_keyframe = n_grid_mismatch = n_no_direction = 0
    held, held_block, held_norm = -1, np.empty((0, 0)), np.empty(0)
    for index in np.flatnonzero(~key).tolist():
        own, tokens, other = layout.grid(index), layout.tokens(index), int(keyframe[index])
        if other < 0:
            n_no_keyframe += len(own)
            continue
        if not np.array_equal(own, layout.grid(other)):
            n_grid_mismatch += len(own)
            continue
        if other != held:
            held, held_block = other, _floating(token_features[layout.tokens(other)])
            held_norm = np.linalg.norm(held_block, axis=1)
        block = _floating(token_features[tokens])
        length = np.linalg.norm(block, axis=1) * held_norm
        product = np.einsum("pd,pd->p", block, held_block)
        cosine = np.divide(product, length, out=np.full(len(own), np.nan), where=length > 0)
        n_no_direction += int(np.count_nonzero(length == 0))
        similarity[tokens] = np.clip(cosine, -1.0, 1.0)
    return KeyframeSimilarity(similarity, keyframe, n_no_keyframe, n_grid_mismatch, n_no_direction)


def _directions(vectors: Float[np.ndarray, "unit dim"], shortest: float) -> Float[np.ndarray, "unit dim"]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.full_like(vectors, np.nan), where=length > shortest)


def _floating(block: Float[np.ndarray, "place dim"]) -> Float[np.ndarray, "place dim"]:
    """Half precision as float32: its squares overflow. Others as they are, without a copy."""
    return block.astype(np.promote_types(block.dtype, np.float32), copy=False)
