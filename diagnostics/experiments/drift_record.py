"""What one measured item leaves behind: the fields of its record and the parts of its tensor file."""

from __future__ import annotations

from typing import Any

import numpy as np

import hooks
from diagnostics.experiments.drift_measures import Redundancy, ShownUnits
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, past_training
from diagnostics.store import tensor_parts as parts

__all__ = [
    "attention_part",
    "control_part",
    "kept_rows",
    "position_warnings",
    "prompt_fields",
    "similarity_part",
    "tokens_part",
    "units_part",
]


def prompt_fields(prompt: Prompt, tokens: hooks.TokenMap) -> dict[str, Any]:
    """Grid, counts and hash of the prompt."""
    sizes = set(tokens.tokens_per_unit.tolist())
    return {
        "grid": [list(grid) for grid in prompt.grids],
        "n_units": tokens.n_units,
        "tokens_per_unit": sizes.pop() if len(sizes) == 1 else None,
        "n_visual_tokens": tokens.n_visual,
        "n_prompt_tokens": prompt.n_tokens,
        "prompt_sha256": prompt.sha256,
    }


def position_warnings(loaded: LoadedModel, inputs: Any) -> list[str]:
    """Whether the last token's position lies past those the model was trained on."""
    return [*past_training(loaded, loaded.family.largest_position(loaded.model, inputs))]


def units_part(shown: ShownUnits) -> parts.Units:
    """The map from units to frames, seconds and evidence."""
    return parts.Units(shown.frame_index, shown.true_seconds, shown.shown_seconds, shown.evidence)


def tokens_part(tokens: hooks.TokenMap) -> parts.Tokens:
    """Where each visual token is."""
    visual = tokens.visual
    places = (visual, tokens.unit[visual], tokens.row[visual], tokens.col[visual])
    return parts.Tokens(*(array.astype(np.int32) for array in places))


def attention_part(captured: hooks.Captured, *, value_weighted: bool, sinks: bool = False) -> parts.Attention:
    """Attention of every layer, head and role."""
    return parts.Attention(
        captured.unit_mass(),
        captured.rest_mass(),
        captured.token_mass(),
        captured.value_mass() if value_weighted else None,
        captured.value_rest_mass() if value_weighted else None,
        captured.sink_score() if sinks else None,
        captured.sink_unit_mass() if sinks else None,
    )


def similarity_part(redundancy: Redundancy) -> parts.Similarity:
    """The headline's similarity of units and patches."""
    key = redundancy.headline
    return parts.Similarity(
        redundancy.unit_cosine.astype(np.float32),
        key.is_key,
        key.similarity.keyframe,
        key.similarity.similarity.astype(np.float32),
        redundancy.mean_direction.astype(np.float32),
    )


def kept_rows(captured: hooks.Captured, *, sinks: bool = False) -> parts.Rows:
    """Every query row by itself."""
    return parts.Rows(
        captured.row_positions.astype(np.int32),
        captured.row_unit_mass(),
        captured.row_rest_mass(),
        captured.row_sink_unit_mass() if sinks else None,
    )


def control_part(captured: hooks.Captured, control: hooks.Captured, kind: str) -> parts.Control:
    """The control's attention along the file's role axis; roles it has no rows for are undefined."""
    units = np.full_like(captured.unit_mass(), np.nan)
    rest = np.full_like(captured.rest_mass(), np.nan)
    for position, role in enumerate(captured.roles):
        if role in control.roles:
            units[:, :, position] = control.unit_mass(role)
            rest[:, :, position] = control.rest_mass(role)
    return parts.Control(units, rest, kind)
