"""The evidence itself: what a perfect sampler would show.

MedHorizon, section 7 (RQ2), shows the annotated evidence images, however many an item has
(`short=fewer`). Its windows share the budget evenly, each is covered evenly, and a short one leaves the
rest of its share to the others. A window shorter than the distance of two frames gives the frame that is
on screen while it lasts. Where the evidence has fewer frames than the budget, `short` decides:

- `fill` (default): other frames, evenly spaced, make up the budget;
- `fewer`: the evidence alone, as in the paper, and the record says how many were asked for;
- `refuse`: the item fails by name.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int
from pydantic import PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Evidence, Item
from diagnostics.errors import NoEvidenceError
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, fill_up, per_window
from diagnostics.video.selection import in_window

__all__ = ["NEEDS", "Config", "choose", "remark"]

NEEDS: frozenset[str] = frozenset()
CHOOSES_BY_EVIDENCE = True


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the oracle.

    Attributes:
        budget: how many frames.
        short: what to do where the evidence has fewer.
        candidate_fps: candidates a second; null for every frame.
    """

    budget: PositiveInt = 64
    short: Literal["fill", "fewer", "refuse"] = "fill"
    candidate_fps: PositiveFloat | None = None


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """Evidence frames, and others where the budget asks for more and `short` allows it.

    Raises:
        NoEvidenceError: the item has no window of evidence, or too few frames of it under `refuse`.
    """
    evidence = _evidence(config, candidates, item)
    if config.short == "refuse" and len(evidence) < config.budget:
        raise NoEvidenceError(
            f"its evidence has {len(evidence)} frames and {config.budget} were asked for.",
            remedy="Lower sampling.budget, or set sampling.short=fill or fewer.",
            item_id=item.id,
        )
    return fill_up(evidence, len(candidates), config.budget) if config.short == "fill" else evidence


def remark(config: Config, candidates: Candidates, item: Item, chosen: Int[np.ndarray, " chosen"]) -> str:
    """How many of the frames are evidence."""
    evidence = len(_evidence(config, candidates, item))
    return f"{evidence} evidence frames, {len(chosen) - evidence} others"


def _evidence(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " n"]:
    windows = item.evidence
    if windows is None or windows.kind == "global" or not windows.windows:
        raise NoEvidenceError(
            "it has no evidence window to show.",
            remedy="Leave such items out of an oracle setting (data.tasks=...).",
            item_id=item.id,
        )
    on_screen = _on_screen(candidates, windows)[: config.budget]
    inside = per_window(candidates, windows, config.budget - len(on_screen))
    return np.union1d(inside, on_screen).astype(np.int64)


def _on_screen(candidates: Candidates, evidence: Evidence) -> Int[np.ndarray, " n"]:
    """For each window without a candidate, the one that is on screen when it begins."""
    frames, seconds = candidates.frame_index, candidates.seconds
    places = []
    for window in evidence.windows:
        if len(frames) and not in_window(window, frames, seconds).any():
            if window.start_frame is not None and window.end_frame is not None:
                after = int(np.searchsorted(frames, window.start_frame, side="right"))
            else:
                after = int(np.searchsorted(seconds, window.start_seconds, side="right"))
            places.append(max(0, after - 1))
    return np.unique(np.array(places, dtype=np.int64))
