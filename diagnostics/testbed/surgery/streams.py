"""`first_stream`: the trained model without DeepStack's later streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diagnostics.testbed.surgery.source import open_source, write_checkpoint

__all__ = ["write_first_stream"]


def write_first_stream(folder: Path, source: Path) -> None:
    """Of what DeepStack adds, the first alone: every other weight is the source's, bit for bit.

    The trained model reads the evidence before its last stream has entered, so that no layer is both after
    the injections and before the answer is read. In this one the first layer after the injections is.
    """
    model = open_source(source)
    vision: Any = model.config.vision_config
    streams, tower = list(vision.deepstack_visual_indexes), model.model.visual
    tower.deepstack_visual_indexes = streams[:1]
    tower.deepstack_merger_list = tower.deepstack_merger_list[:1]
    vision.deepstack_visual_indexes = streams[:1]
    record = {
        "surgery": "first_stream",
        "true": "DeepStack adds its first stream alone; every weight that is left is the source's",
        "vision_layers_kept": streams[:1],
        "vision_layers_dropped": streams[1:],
    }
    write_checkpoint(folder, source, model, record)
