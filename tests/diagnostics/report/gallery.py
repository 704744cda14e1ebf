"""The pictures of `docs/figures.md`: `python -m tests.diagnostics.report.gallery docs/images/figures`.

Drawn from made-up numbers, small and in few colours.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image

from diagnostics.report.drift import time_figure, two_panel_figure
from diagnostics.report.drift_comparison import comparison_figure
from diagnostics.report.item import AttendedFrames, ItemAttention, contact_sheet, item_attention_figure
from diagnostics.report.style import save_figure
from tests.diagnostics.report.conftest import _run
from tests.diagnostics.report.figure_cases import CASES

__all__ = ["figures"]

_WIDTH = 700
_COLOURS, _OF_IMAGES = 40, 200


def figures() -> dict[str, Figure]:
    """Every figure by name."""
    runs = [
        _run(name, seeds=range(place, place + 6), units=16) for place, name in enumerate(("one", "another"))
    ]
    drawn = {name: case("many")[0] for name, case in CASES.items()}
    return drawn | {
        "attention_drift": two_panel_figure(runs[0]),
        "attention_over_time": time_figure(runs[:1]),
        "compare_attention_drift": comparison_figure(runs),
        "item_time": item_attention_figure(_item()),
        "item_frames": contact_sheet(_frames()),
    }


def _item() -> ItemAttention:
    random = np.random.default_rng(3)
    share = random.dirichlet(np.full(24, 2.0))
    seconds = np.arange(48.0).reshape(24, 2) * 5
    return ItemAttention(
        "made/up", "What is shown before the marker turns red?", "B", "B", True, share, seconds, 240.0,
        head_low=share * 0.6, head_high=share * 1.5, control_share=np.full(24, 1 / 24),
        evidence_windows=[(95.0, 120.0)], is_key=np.arange(24) % 6 == 0,
    )  # fmt: skip


def _frames() -> AttendedFrames:
    y, x = np.mgrid[:72, :128]
    pictures = [np.stack([2 * x, 3 * y + 8 * n, np.full_like(x, 90 + 20 * n)], axis=-1) for n in range(4)]
    row, column = np.mgrid[:9, :16]
    heat = [0.02 * np.exp(-((row - 4) ** 2 + (column - 4 * n) ** 2) / 9) for n in range(4)]
    return AttendedFrames(
        "made/up", np.stack(pictures).clip(0, 255).astype(np.uint8), heat, np.linspace(0.21, 0.07, 4),
        np.array([97.0, 12.0, 203.0, 55.0]), np.arange(4) == 0,
    )  # fmt: skip


def main(folder: Path) -> None:
    """Write every figure into `folder` as a small PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as large:
        for name, figure in figures().items():
            with Image.open(save_figure(figure, Path(large) / name)[0]) as opened:
                picture = opened.convert("RGB")
            small = picture.resize(
                (_WIDTH, round(picture.height * _WIDTH / picture.width)), Image.Resampling.LANCZOS
            )
            colours = _OF_IMAGES if figure.findobj(AxesImage) else _COLOURS
            small.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                folder / f"{name}.png", optimize=True
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
