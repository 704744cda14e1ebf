"""Compare finished attention-drift runs: `python -m diagnostics.report RUN [RUN ...] --out DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from diagnostics.errors import DiagnosticsError
from diagnostics.report.closing import paths_list
from diagnostics.report.drift import time_figure, two_panel_figure
from diagnostics.report.from_run import load_drift
from diagnostics.report.style import save_figure

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the comparison and print where it lies.

    Returns:
        0, or 1 with a message on the error stream where a folder is no run.
    """
    chosen = _parser().parse_args(arguments)
    try:
        names = chosen.name or [None] * len(chosen.run)
        if len(names) != len(chosen.run):
            _parser().error(f"{len(chosen.run)} runs, but {len(names)} names")
        runs = [
            load_drift(run, name=name, pooling=chosen.pooling, condition=chosen.condition)
            for run, name in zip(chosen.run, names, strict=True)
        ]
        drawn = [
            save_figure(two_panel_figure(runs, chosen.band), chosen.out / "attention_drift"),
            save_figure(time_figure(runs, chosen.band), chosen.out / "attention_over_time"),
        ]
    except DiagnosticsError as error:
        Console(stderr=True).print(Text(str(error)), soft_wrap=True)
        return 1
    paths = {path.suffix[1:] + f" {path.stem}": path for pair in drawn for path in pair}
    Console().print(paths_list(paths), soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m diagnostics.report", description=__doc__)
    parser.add_argument("run", nargs="+", type=Path, help="folder of a finished run")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    parser.add_argument(
        "--name", action="append", help="a run's name in legends; once for each run, in order"
    )
    parser.add_argument(
        "--pooling",
        choices=["per_head", "pooled"],
        default="per_head",
        help="rank units in each head and average the curves, or rank them by the pooled attention",
    )
    parser.add_argument(
        "--band",
        choices=["mean", "items"],
        default="mean",
        help="shade the 95%% interval of the mean, or the middle 95%% of the items",
    )
    parser.add_argument("--condition", help="id of the condition to draw, where runs have several")
    return parser


if __name__ == "__main__":
    sys.exit(main())
