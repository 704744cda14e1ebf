"""A split's annotation tracks, in the form that `diagnostics.data.build` takes (docs/build.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnostics.data.minihorizon.plan import LESION_COLOURS, PLACES, Interval
from diagnostics.data.minihorizon.procedure import (
    INSTRUMENTS,
    LESION_SIZES,
    PHASES,
    STEPS,
    Procedure,
)
from diagnostics.data.minihorizon.settings import Config

__all__ = ["as_tracks"]


def as_tracks(config: Config, procedures: Sequence[Procedure]) -> dict[str, Any]:
    """One object for all procedures: label spaces, and what is seen when, in seconds.

    A lesion's colour stands for its histology, its place in the picture for its site.
    """
    return {
        "source": f"minihorizon-{config.split}",
        "spaces": {
            "phases": list(PHASES),
            "steps": list(STEPS),
            "instruments": list(INSTRUMENTS),
            "sites": list(PLACES),
            "sizes": list(LESION_SIZES),
            "histologies": list(LESION_COLOURS),
        },
        "procedures": [_procedure(config, procedure) for procedure in procedures],
    }


def _procedure(config: Config, procedure: Procedure) -> dict[str, Any]:
    rate = float(config.rate)

    def rows(seen: Sequence[Interval]) -> list[dict[str, Any]]:
        return [
            {"start": one.start_frame / rate, "end": one.end_frame / rate, "label": one.name} for one in seen
        ]

    phases = [
        Interval(name, phase.start_frame, phase.end_frame)
        for name, phase in zip(procedure.phase_names, procedure.phases, strict=True)
    ]
    return {
        "procedure": procedure.name,
        "video": procedure.video,
        "fps": rate,
        "frames": procedure.n_frames,
        "phases": rows(phases),
        "steps": rows(procedure.steps),
        "instruments": rows(procedure.instruments),
        "lesions": [
            {
                "lesion": f"L{number}",
                "windows": [[lesion.start_frame / rate, lesion.end_frame / rate]],
                "site": lesion.place,
                "size": lesion.size,
                "histology": lesion.colour,
            }
            for number, lesion in enumerate(procedure.lesions, start=1)
        ],
    }
