"""Attention with its sinks taken out: the twin of every measure.

A sink draws attention by a few huge dimensions of its state and not by what it shows (See What You Are
Told, arXiv 2503.03321, section 3; which tokens are sinks, `hooks.sinks` says by a score). The twin counts
the attention on sinks as attention that is not on the video, so that rows still sum to one.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from probes.shares import attention_fraction, checked_mass, unit_sums

__all__ = ["image_centric", "sink_mask", "sink_share", "units_without_sinks", "without_sinks"]


def sink_mask(
    score: Float[np.ndarray, "layer token"], threshold: float, *, first_layer: int = 2
) -> Bool[np.ndarray, "layer token"]:
    """Which tokens are sinks in each layer: their score is above the threshold; none before `first_layer`."""
    found = np.asarray(score) > threshold
    found[:first_layer] = False
    return found


def without_sinks(
    unit_mass: Float[np.ndarray, "*batch unit"],
    rest_mass: Float[np.ndarray, "*batch"],
    sink_unit_mass: Float[np.ndarray, "*batch unit"],
) -> tuple[Float[np.ndarray, "*batch unit"], Float[np.ndarray, "*batch"]]:
    """Attention on each unit less that on its sinks, and all the rest, that on sinks included.

    Raises:
        ValueError: shapes that differ, or sinks with more attention than their unit.
    """
    units, sinks = checked_mass(unit_mass), checked_mass(sink_unit_mass)
    if units.shape != sinks.shape:
        raise ValueError(f"attention has shape {units.shape}, that on sinks {sinks.shape}")
    left = units - sinks
    if np.nanmin(left, initial=0.0) < -1e-5:
        raise ValueError(f"sinks have {-np.nanmin(left):.3g} more attention than their unit")
    # Two float32 sums of the same terms: where all of a unit is sink they differ by rounding.
    left = np.maximum(left, 0.0)
    return left, np.asarray(rest_mass, dtype=np.float64) + sinks.sum(axis=-1)


def units_without_sinks(
    token_mass: Float[np.ndarray, "layer *role token"],
    sink: Bool[np.ndarray, "layer token"],
    unit: Int[np.ndarray, " token"],
    n_units: int | None = None,
) -> Float[np.ndarray, "layer *role unit"]:
    """Attention on each unit less that on its sinks, from attention by token: a mean over heads.

    This twin can be made at any threshold from a tensor file with `token_mass` and `sink_score`. The twin
    of single heads needs the capture's own `sink_unit_mass`, at the threshold it was captured with.
    """
    tokens, mask = np.asarray(token_mass), np.asarray(sink, dtype=bool)
    if tokens.shape[0] != mask.shape[0] or tokens.shape[-1] != mask.shape[-1]:
        raise ValueError(f"attention has shape {tokens.shape}, sinks {mask.shape}")
    mask = mask.reshape(len(mask), *[1] * (tokens.ndim - 2), mask.shape[-1])
    return unit_sums(np.where(mask, 0.0, tokens), unit, n_units)


def sink_share(
    unit_mass: Float[np.ndarray, "*batch unit"], sink_unit_mass: Float[np.ndarray, "*batch unit"]
) -> Float[np.ndarray, "*batch"]:
    """Share of the attention on the video that goes to sinks; NaN where the video has none."""
    total = checked_mass(unit_mass).sum(axis=-1)
    sinks = checked_mass(sink_unit_mass).sum(axis=-1)
    share = np.divide(sinks, total, out=np.full_like(total, np.nan), where=total > 0)
    return np.asarray(np.minimum(share, 1.0))


def image_centric(
    unit_mass: Float[np.ndarray, "*batch unit"],
    rest_mass: Float[np.ndarray, "*batch"],
    sink_unit_mass: Float[np.ndarray, "*batch unit"],
    *,
    least_visual: float = 0.2,
    most_sink: float = 0.5,
) -> Bool[np.ndarray, "*batch"]:
    """Heads that look at the video and not at its sinks: See What You Are Told, section 4.

    At least `least_visual` of all attention on the video, of which at most `most_sink` on sinks.
    """
    visual = attention_fraction(checked_mass(unit_mass).sum(axis=-1), unit_mass, rest_mass)
    share = sink_share(unit_mass, sink_unit_mass)
    return np.asarray((visual >= least_visual) & (share <= most_sink))
