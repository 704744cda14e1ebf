"""From reading the prompt to writing the reply: attention on the video and on the evidence, row by row.

Row 0 is the last one of the prefill, which writes the first token of the reply; row k is that of the k-th
token, which writes the next. Models that reason first are reported to look at the picture less the longer
they write (TVC, arXiv 2503.13360, section 1), and rows that write to look at the evidence less than rows
that read (TG-Heads, arXiv 2605.21954). Every row has more keys than the one before it: uniform attention on
the video falls too, and `visual_log_lift` is what is left beside that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import logit

__all__ = ["DecodeCourse", "RowDrift", "decode_course", "row_drift"]


@dataclass(frozen=True, eq=False)
class DecodeCourse:
    """Attention of the rows that write a reply; row 0 is the last of the prefill.

    Attributes:
        visual_mass: attention on the video, a fraction of all attention of the row.
        visual_log_lift: its log-odds less those of the video's share of the row's keys, in nats: 0 where
            attention is uniform; NaN where the mass is 0 or 1.
        evidence_mass: attention on the evidence, a fraction of all attention.
        evidence_share: the same as a share of the attention on the video; NaN where there is none.
        evidence_log_lift: its log-odds less those of the evidence's share of the units, in nats; NaN where
            the share is 0 or 1, or where no unit, or every one, is evidence.
    """

    visual_mass: Float[np.ndarray, "*batch row"]
    visual_log_lift: Float[np.ndarray, "*batch row"]
    evidence_mass: Float[np.ndarray, "*batch row"]
    evidence_share: Float[np.ndarray, "*batch row"]
    evidence_log_lift: Float[np.ndarray, "*batch row"]

    def measures(self) -> dict[str, Float[np.ndarray, "*batch row"]]:
        """The measures by the names they have in records, summary and tables."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class RowDrift:
    """How one measure of a course differs between the prefill's last row and rows of the reply.

    Attributes:
        prefill: of row 0; NaN where `decode` is.
        decode: mean over the reply's rows where it is defined; NaN where it is in none of them, or in row 0.
        drift: `decode` less `prefill`.
        slope: of a straight line through the reply's rows by least squares, per row.
        rows: how many of the reply's rows are defined.
    """

    prefill: Float[np.ndarray, "*batch"]
    decode: Float[np.ndarray, "*batch"]
    drift: Float[np.ndarray, "*batch"]
    slope: Float[np.ndarray, "*batch"]
    rows: Int[np.ndarray, "*batch"]


def decode_course(
    visual_mass: Float[np.ndarray, "*batch row"],
    keys: Int[np.ndarray, " row"],
    visual_tokens: int,
    *,
    evidence_mass: Float[np.ndarray, "*batch row"] | None = None,
    evidence_units: float = 0.0,
    units: int = 1,
) -> DecodeCourse:
    """The measures of each row, from its attention on the video and on the evidence.

    Args:
        visual_mass: fraction of all attention of the row, 0 to 1.
        keys: how many positions each row may look at.
        visual_tokens: how many of them are the video's.
        evidence_mass: the part of `visual_mass` on units with evidence; None where there is none to speak of.
        evidence_units, units: how many units show evidence (fractions count), of how many.

    Raises:
        ValueError: shapes that differ, fewer keys than visual tokens, or evidence beyond the video.
    """
    visual = np.asarray(visual_mass, dtype=np.float64)
    n_keys = np.asarray(keys)
    if visual.shape[-1:] != n_keys.shape:
        raise ValueError(f"{visual.shape[-1:]} rows of attention belong to {n_keys.shape} numbers of keys")
    if n_keys.size and not 1 <= visual_tokens <= n_keys.min():
        raise ValueError(f"{visual_tokens} visual tokens are not among {int(n_keys.min())} keys")
    nothing = np.full(visual.shape, np.nan)
    lift = _log_odds(visual) - _log_odds(visual_tokens / n_keys)
    if evidence_mass is None or not 0 < evidence_units <= units:
        return DecodeCourse(visual, lift, nothing, nothing, nothing)
    mass = np.asarray(evidence_mass, dtype=np.float64)
    if mass.shape != visual.shape:
        raise ValueError(f"evidence has shape {mass.shape}, the video {visual.shape}")
    if (mass > visual * (1 + 1e-6) + 1e-9).any():
        raise ValueError("attention on the evidence is more than that on the video")
    share = np.divide(mass, visual, out=nothing.copy(), where=visual > 0)
    elsewhere = _log_odds(np.float64(evidence_units / units)) if evidence_units < units else np.nan
    return DecodeCourse(visual, lift, mass, share, _log_odds(share) - elsewhere)


def row_drift(
    values: Float[np.ndarray, "*batch row"], rows: slice | None = None, *, least: int = 4
) -> RowDrift:
    """One measure of the reply's rows against that of the prefill's last one.

    Args:
        values: of `DecodeCourse`; row 0 is the prefill's.
        rows: which rows of the reply; all after the first by default.
        least: rows that a slope needs; NaN where fewer are defined.

    Raises:
        ValueError: `least` under 2.

    Example:
        >>> found = row_drift(np.array([0.5, 0.4, 0.3, 0.2]), least=3)
        >>> round(float(found.drift), 3), round(float(found.slope), 3)
        (-0.2, -0.1)
    """
    if least < 2:
        raise ValueError(f"a slope needs at least 2 rows, not {least}")
    table = np.asarray(values, dtype=np.float64)
    taken = np.arange(table.shape[-1])[rows or slice(1, None)]
    own = table[..., taken]
    defined = np.isfinite(own)
    count = defined.sum(axis=-1)
    prefill = table[..., 0] if table.shape[-1] else np.full(table.shape[:-1], np.nan)
    decode = _over(np.where(defined, own, 0.0).sum(axis=-1), count, count > 0)
    both = np.isfinite(prefill) & np.isfinite(decode)
    return RowDrift(
        prefill=np.where(both, prefill, np.nan),
        decode=np.where(both, decode, np.nan),
        drift=np.asarray(decode - prefill),
        slope=_slope(own, taken.astype(np.float64), defined, least),
        rows=np.asarray(count),
    )


def _slope(
    values: Float[np.ndarray, "*batch row"],
    places: Float[np.ndarray, " row"],
    defined: np.ndarray,
    least: int,
) -> Float[np.ndarray, "*batch"]:
    """Least squares through the defined values, row by row of the leading axes."""
    count = defined.sum(axis=-1)
    enough = count >= least
    known = np.where(defined, values, 0.0)
    centre = _over((defined * places).sum(axis=-1), count, enough)[..., None]
    mean = _over(known.sum(axis=-1), count, enough)[..., None]
    away = np.where(defined, places - centre, 0.0)
    return _over((away * (known - mean)).sum(axis=-1), (away**2).sum(axis=-1), enough)


def _over(top: ArrayLike, bottom: ArrayLike, where: Any) -> np.ndarray:
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=where)


def _log_odds(share: np.ndarray | np.float64) -> np.ndarray:
    inside = np.where((share > 0) & (share < 1), share, np.nan)
    return np.asarray(logit(inside))
