"""One file an architecture family: how selected frames become the processor's arguments.

A module is named like the configuration's `model_type` (or lists others in `MODEL_TYPES`) and has

- `video_arguments(selection)`: keyword arguments for the processor's call, beside the frames;
- `size_limits(min_pixels, max_pixels, current)`: the video processor's `size` under pixel limits;
- `frame_limit(frame_pixels, n_frames, current)`: the video processor's `size` that bounds each frame;
- `pixels_left(n_frames, current)`: pixels that `size` leaves each frame; None where it makes no difference;
- `notices(selection, model)`: what the family cannot express about this selection, as `kind: details`;
- `positions(model, inputs)`: rotary positions [axis, 1, position] of a prompt where the library's differ from
  those the family was trained with; None where they don't;
- `largest_position(model, inputs)`: the largest rotary position of a prompt;
- `vision_pairs(vision, grid)`: pairs of query and key in the vision tower, for what a prompt costs;
- `TOLD_BY_METADATA = True` where `video_metadata` alone tells the frames' times, so that an engine with a
  processor of its own can be given it (`backends.vllm`).
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from diagnostics.errors import CheckpointError
from diagnostics.strict import near_match

__all__ = ["family_of", "known_families"]


def known_families() -> dict[str, str]:
    """Each supported `model_type` and the module that serves it."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found |= dict.fromkeys(loaded.MODEL_TYPES, module.name)
    return found


def family_of(model_type: str) -> ModuleType:
    """The adapter of an architecture.

    Raises:
        CheckpointError: the architecture has none.
    """
    families = known_families()
    if model_type not in families:
        raise CheckpointError(
            f"No prompt adapter for the architecture {model_type!r}.",
            remedy=f"{near_match(model_type, list(families))} "
            "An adapter is one file in diagnostics/models/families.",
        )
    return importlib.import_module(f"{__name__}.{families[model_type]}")
