"""The prompt of an item before any frame is decoded, by the checkpoint's own processor.

Pictures stand in as arrays that hold no memory: the processor's resizing and patching run on torch's meta
device, where only shapes are computed. Token counts are therefore the processor's own and not ours.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from diagnostics.models.loading import LoadedModel
from diagnostics.video.selection import Frames, Selection

__all__ = ["unseen", "without_pixels"]


def without_pixels(loaded: LoadedModel) -> LoadedModel:
    """The same model with a processor that only computes the shapes of videos."""
    processor = copy.copy(loaded.processor)
    processor.video_processor = _Shapes(processor.video_processor)
    return replace(loaded, processor=processor)


def unseen(selection: Selection, height: int, width: int) -> Frames:
    """Frames of that size nobody has read: one zero, seen from everywhere."""
    pixels: UInt8[np.ndarray, "slot height width 3"] = np.broadcast_to(
        np.zeros((), np.uint8), (len(selection), height, width, 3)
    )
    return Frames(pixels, selection)


class _Shapes:
    """A video processor whose pictures have a shape and no content."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __call__(self, videos: Sequence[Any], **options: Any) -> Any:
        return self._plain(_without_content(videos), **options)


def _without_content(videos: Sequence[Any]) -> list[Any]:
    """Videos, or a list of them for each prompt, as shapes on the meta device."""
    return [
        _without_content(one)
        if isinstance(one, list)
        else torch.empty(one.shape, dtype=torch.uint8, device="meta")
        for one in videos
    ]
