"""Where a prompt's visual tokens are, as far as answering needs it: counts, and what its times misstate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hooks
from diagnostics.models.loading import LoadedModel
from diagnostics.video.selection import Frames
from hooks.layout import Layout, lay_out

__all__ = ["mapped", "placeholder_count", "time_faults", "unit_sizes"]

_VISUAL = (hooks.Kind.VIDEO, hooks.Kind.IMAGE)


def placeholder_count(loaded: LoadedModel, inputs: Any) -> int:
    """How many of the prompt's tokens stand for something visual, line breaks among them."""
    ids = loaded.family.placeholders(loaded.model)
    visual = [token for kind, token in ids.items() if kind in _VISUAL]
    return int(np.isin(inputs["input_ids"].numpy(), visual).sum())


def mapped(loaded: LoadedModel, inputs: Any, n_frames: int | None) -> tuple[Layout | None, tuple[str, ...]]:
    """Where the prompt's visual tokens are; or nothing, and what is to be said of it."""
    try:
        return lay_out(loaded.family, loaded.model, loaded.processor, inputs, row=0, n_frames=n_frames), ()
    except hooks.TokenMapError as error:  # an answer needs no map; what does will raise this again
        return None, (f"layout_unknown: {error.problem}",)


def unit_sizes(layout: Layout) -> tuple[int, ...]:
    """Visual tokens of each temporal unit, images among them."""
    visual = np.isin(layout.kind, _VISUAL)
    sizes: list[int] = np.bincount(layout.unit[visual], minlength=len(layout.unit_grid)).tolist()
    return tuple(sizes)


def time_faults(
    loaded: LoadedModel, inputs: Any, frames: Frames, layout: Layout | None, said: Sequence[str]
) -> list[str]:
    """What the inputs misstate about the frames' times, whatever the family, of kinds not yet `said`."""
    if layout is None:
        return []
    kinds = {notice.partition(":")[0] for notice in said}
    faults = hooks.layout_faults(loaded.family, loaded.model, inputs, layout, frames.selection)
    return [fault for fault in faults if fault.partition(":")[0] not in kinds]
