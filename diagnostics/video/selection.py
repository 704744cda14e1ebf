"""What the model is shown: slots, in order, and the frames that fill them.

A foil, an oracle image, a blank picture and a shuffled frame are all just slots, so that a
perturbation is a function from `Selection` to `Selection` and the record of what was shown is
always complete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from diagnostics.data.items import Evidence, Window

__all__ = ["BLANK", "Frames", "Selection", "Slot", "in_window"]

BLANK = "blank"
"""The `source` of a slot that shows a uniform grey picture instead of a frame."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One picture of the sequence the model sees.

    Attributes:
        source: the video's id, or `BLANK`.
        frame_index: the source frame in presentation order, from 0; -1 for a synthetic picture.
        true_seconds: presentation time of that frame, from the first frame; NaN for a synthetic picture.
        shown_seconds: the time the model is told. Differs from `true_seconds` only under a perturbation.
    """

    source: str
    frame_index: int
    true_seconds: float
    shown_seconds: float


@dataclass(frozen=True, slots=True)
class Selection:
    """The slots of one item, in the order shown, and where they came from.

    Attributes:
        slots: at least one.
        rule: the rule that chose them, with its parameters, as one line for the record.
        source_fps: average frame rate of the source video.
        source_frames: number of frames the source holds.
        source_seconds: duration of the source.
        requested: how many slots were asked for (fewer come back from a video with fewer frames).
    """

    slots: tuple[Slot, ...]
    rule: str
    source_fps: float
    source_frames: int
    source_seconds: float
    requested: int

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def frame_indices(self) -> Int[np.ndarray, " slot"]:
        """Source frame index of each slot; -1 for a synthetic picture."""
        return np.array([slot.frame_index for slot in self.slots], dtype=np.int64)

    @property
    def true_seconds(self) -> Float[np.ndarray, " slot"]:
        """Presentation time of each slot's frame in seconds."""
        return np.array([slot.true_seconds for slot in self.slots], dtype=np.float64)

    @property
    def shown_seconds(self) -> Float[np.ndarray, " slot"]:
        """The time the model is told for each slot, in seconds."""
        return np.array([slot.shown_seconds for slot in self.slots], dtype=np.float64)

    def holds(self, evidence: Evidence | None, source: str | None = None) -> Bool[np.ndarray, " slot"]:
        """Which slots show evidence: their frame lies in one of the windows.

        Frame indices decide where a window has them, times where it has none. All False for
        evidence that is None or global.

        Args:
            source: the video that the evidence is of: frames of another one, which stand in some slots of a
                swap, hold none of it. By default every slot is taken for that video.
        """
        held = np.zeros(len(self.slots), dtype=bool)
        if evidence is None or evidence.kind == "global":
            return held
        frames, seconds = self.frame_indices, self.true_seconds
        for window in evidence.windows:
            held |= in_window(window, frames, seconds)
        return held if source is None else held & np.array([slot.source == source for slot in self.slots])


def in_window(
    window: Window, frames: Int[np.ndarray, " n"], seconds: Float[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Which frames, given by number and time, lie in the window; synthetic pictures (-1) never do.

    The window's frame numbers decide where it has them, its times where it has none.
    """
    if window.start_frame is not None and window.end_frame is not None:
        return (frames >= window.start_frame) & (frames < window.end_frame)
    inside = (seconds >= window.start_seconds) & (seconds < window.end_seconds)
    return (frames >= 0) & inside


@dataclass(frozen=True, slots=True)
class Frames:
    """Decoded pictures and the selection they fill, slot by slot."""

    pixels: UInt8[np.ndarray, "slot height width 3"]
    selection: Selection
