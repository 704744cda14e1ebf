"""`single_road` and `order_blind`: constructed models whose road from the video to the answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from diagnostics.testbed.surgery.circuit import CIRCUIT, COLOUR_ROAD, STEP_ROAD, construct
from diagnostics.testbed.surgery.layout import LAYOUT
from diagnostics.testbed.surgery.readout import VIDEOS, readout_of
from diagnostics.testbed.surgery.source import open_source, write_checkpoint

__all__ = ["write_constructed"]

_STEPS_ONLY = ("named_steps", "step_road")


def write_constructed(folder: Path, source: Path, *, steps: bool) -> None:
    """Fit the read-outs on the vision tower of `source`, write the language model, and say what it holds."""
    model = open_source(source)
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    constructed = construct(model, tokenizer, readout_of(source), steps=steps)
    circuit = {name: list(head) for name, head in CIRCUIT.items() if steps or name not in _STEPS_ONLY}
    visual = LAYOUT.visual
    record: dict[str, Any] = {
        "surgery": "order_blind" if steps else "single_road",
        "true": "the heads that read the video give every token a logit that does not depend on its position"
        if steps
        else "the road carries the colour from the video to the answer; every other head's output is the"
        " same whatever the video shows",
        "roads": {"colour": list(COLOUR_ROAD)} | ({"step": list(STEP_ROAD)} if steps else {}),
        "circuit": circuit,
        "visual_subspace": [visual.start, visual.stop],
        "fitted_on": {"split": VIDEOS.split, "videos": VIDEOS.videos, "content": VIDEOS.content_hash},
    }
    write_checkpoint(folder, source, constructed, record)
