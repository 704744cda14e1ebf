"""Rotary positions of prompts in which a video is one block over time, height and width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._sources import REPORT

__all__ = ["positions_over_time"]

_TEXT, _IMAGE, _VIDEO = 0, 1, 2
"""Values of the processor's `mm_token_type_ids`."""


def positions_over_time(
    inputs: Mapping[str, Any], merge_size: int, steps: Iterable[float]
) -> Int[Tensor, "axis one position"]:
    """Positions of one unpadded prompt; text goes on after the largest position before it.

    Transformers 5.3 to 5.24 lets text go on `max(rows, columns)` after a video's start, which puts the
    question of a long video before most of its frames; the Qwen2-VL models were trained otherwise.

    Args:
        inputs: what the processor returned, with `mm_token_type_ids`.
        merge_size: patches a side of a token.
        steps: positions from unit to unit, of each video.

    Raises:
        TokenMapError: a batch, or a video or image without grid or step.
    """
    if len(inputs["mm_token_type_ids"]) != 1:
        raise TokenMapError("Positions are made of one prompt at a time.", remedy="Give rows one by one.")
    grids = {
        kind: iter(inputs[name].tolist() if name in inputs else ())
        for kind, name in ((_IMAGE, "image_grid_thw"), (_VIDEO, "video_grid_thw"))
    }
    of_video = iter(steps)
    parts: list[Tensor] = []
    start = 0
    for kind, run in groupby(inputs["mm_token_type_ids"][0].tolist()):
        length = sum(1 for _ in run)
        if kind == _TEXT:
            part = torch.arange(length).expand(3, -1)
        else:
            grid, step = next(grids[kind], None), next(of_video, None) if kind == _VIDEO else 1
            if grid is None or step is None:
                raise TokenMapError(
                    "The prompt holds more videos or images than grids, or a video without its time step.",
                    remedy=REPORT,
                )
            units, rows, cols = grid
            axes = (
                (torch.arange(units) * step).long(),
                torch.arange(rows // merge_size),
                torch.arange(cols // merge_size),
            )
            part = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        parts.append(part + start)
        start = int(parts[-1].max()) + 1
    return torch.cat(parts, dim=1)[:, None]
