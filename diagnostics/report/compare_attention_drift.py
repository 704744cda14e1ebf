"""What `+exp=compare` shows of attention-drift runs: the measures worth a line, the figures, the sentences.

An experiment whose runs are drawn together has a module `diagnostics/report/compare_<experiment>.py` with
`HEADLINE` and `draw(runs, ...) -> Drawn`; of the others accuracy is drawn, by condition and task
(`diagnostics.report.merged`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from diagnostics.report.comparison import Drawing, Drawn
from diagnostics.report.drift import time_figure
from diagnostics.report.drift_comparison import comparison_figure, similarity_claims
from diagnostics.report.from_run import load_drift
from diagnostics.report.style import MAX_RUNS, save_figure
from diagnostics.store import FinishedRun

__all__ = ["HEADLINE", "draw"]

HEADLINE = (
    "accuracy",
    "none_rate",
    "visual_mass",
    "unit_fraction_90",
    "unit_fraction_90_position_only",
    "evidence_covered",
    "evidence_log_lift",
    "unit_similarity",
    "unit_similarity_between",
    "patch_similarity",
    "redundancy_preference",
)


def draw(runs: Mapping[str, FinishedRun], drawing: Drawing, figures: Path) -> Drawn:
    """The merged figures, below `figures`, and what the first of them says.

    More runs than a figure can tell apart are not drawn, and that is said.

    Raises:
        RunError: runs of several conditions and none chosen.
        IncompleteRunError, DamagedRunError: a tensor file is missing or cannot be read.
    """
    if len(runs) > MAX_RUNS:
        return Drawn([f"{len(runs)} runs are not drawn: one figure tells {MAX_RUNS} apart."], {})
    curves = [
        load_drift(run.folder, name=name, pooling=drawing.pooling, condition=drawing.condition)
        for name, run in runs.items()
    ]
    paths = {
        "figure": save_figure(comparison_figure(curves, drawing.band), figures / "attention_drift")[0],
        "over time": save_figure(time_figure(curves, drawing.band), figures / "attention_over_time")[0],
    }
    return Drawn(similarity_claims(curves), paths)
