"""`decoy` and `drifting`: the trained model with its attention to the evidence changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from einops import rearrange

from diagnostics.testbed.surgery.heads import ROLES, RULE, TASKS, EvidenceHeads, evidence_heads
from diagnostics.testbed.surgery.source import open_source, write_checkpoint
from diagnostics.testbed.surgery.widening import LayerHeads, widened

__all__ = ["write_decoy", "write_drifting"]

_SHARPER = 4.0
"""By what a decoy's logits are multiplied."""


def write_decoy(folder: Path, source: Path, dose: float) -> None:
    """Heads that look where the key-value group looks that attends most to the evidence, and write nothing.

    Most when the lesion's colour is asked for. They stand in the layer of that group, have a key-value head
    of their own (a copy), and are sharper. The number of heads is one for all layers: in the others the added
    ones attend to every position alike. The old heads keep their numbers.

    Args:
        dose: the logits of the old heads that attend to the evidence are divided by it, as in `drifting`.
            By 1 they attend as they did, and the answers are the source's; by 16 the decoys alone look.
    """
    model, measured = open_source(source), evidence_heads(source)
    text: Any = model.config.text_config
    heads, keys = text.num_attention_heads, text.num_key_value_heads
    size = heads // keys
    added = range(heads, heads + size)
    lifts = rearrange(
        measured.in_colour_questions(), "layer (group head) -> layer group head", head=size
    ).mean(axis=-1)
    place, group = (int(spot) for spot in np.unravel_index(int(lifts.argmax()), lifts.shape))
    copied = range(group * size, (group + 1) * size)
    layers = [
        LayerHeads(
            queries=(*range(heads), *copied),
            keys=(*range(keys), group),
            factors=(
                *(1 / dose if edited else 1.0 for edited in measured.attending[layer]),
                *[_SHARPER if layer == place else 0.0] * size,
            ),
            silent=added,
        )
        for layer in range(text.num_hidden_layers)
    ]
    record = {
        "surgery": "decoy",
        "true": "the decoys' attention logits are a multiple of those of the copied heads in the source, and"
        " the output of every added head is multiplied by zero; the logits of the edited heads are the"
        " source's divided by the dose",
        "dose": dose,
        "rule": RULE,
        "edited_heads": np.argwhere(measured.attending).tolist(),
        "copied_heads": [[place, head] for head in copied],
        "logits_multiplied_by": _SHARPER,
        "decoys": [[place, head] for head in added],
        "uniform": [[layer, head] for layer in range(len(layers)) if layer != place for head in added],
        "measured": _as_record(measured),
    }
    write_checkpoint(folder, source, widened(model, layers), record)


def write_drifting(folder: Path, source: Path, dose: float) -> None:
    """The logits of every head that attends to the evidence, divided by `dose`; the others as they were."""
    model, measured = open_source(source), evidence_heads(source)
    text: Any = model.config.text_config
    layers = [
        LayerHeads(
            queries=range(text.num_attention_heads),
            keys=range(text.num_key_value_heads),
            factors=[1 / dose if edited else 1.0 for edited in layer],
        )
        for layer in measured.attending
    ]
    record = {
        "surgery": "drifting",
        "true": "the attention logits of the edited heads are the source's divided by the dose",
        "dose": dose,
        "rule": RULE,
        "edited_heads": np.argwhere(measured.attending).tolist(),
        "measured": _as_record(measured),
    }
    write_checkpoint(folder, source, widened(model, layers), record)


def _as_record(measured: EvidenceHeads) -> dict[str, object]:
    return {
        "tasks": TASKS,
        "roles": ROLES,
        "evidence_log_lift": measured.log_lift.round(4).tolist(),
        "standard_error": measured.error.round(4).tolist(),
        "items": measured.n_items,
    }
