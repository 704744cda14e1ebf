"""`python -m diagnostics.testbed`: train the tiny model, measure it, write it."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TimeElapsedColumn
from rich.table import Table

from diagnostics.data.minihorizon.settings import Config
from diagnostics.testbed.card import write_card
from diagnostics.testbed.checkpoint import save
from diagnostics.testbed.curriculum import CURRICULUM, scaled
from diagnostics.testbed.footage import Footage, shoot
from diagnostics.testbed.measure import MEASURED, Score, below_floor, held_out
from diagnostics.testbed.training import Progress, train
from diagnostics.threads import cores

_LOG_EVERY = 50


def main(given: Sequence[str] | None = None) -> None:
    """Parse the command line, train, measure on the test split, write checkpoint and card."""
    parser = argparse.ArgumentParser(
        prog="python -m diagnostics.testbed",
        description="Train the tiny model on MiniHorizon, measure it, and write it as a checkpoint.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the checkpoint; resumes what is there"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of every stage's steps; 1 is the whole recipe"
    )
    parser.add_argument(
        "--videos", type=int, default=None, help="training videos; by default the split's own"
    )
    parser.add_argument(
        "--test-videos", type=int, default=None, help="test videos; by default the split's own"
    )
    # A third one gains little on so small a model.
    parser.add_argument("--threads", type=int, default=min(2, cores()), help="of torch; by default two")
    arguments = parser.parse_args(given)
    torch.set_num_threads(arguments.threads)
    console = Console()
    arguments.out.mkdir(parents=True, exist_ok=True)
    curriculum = scaled(CURRICULUM, arguments.share)
    with Bar(*Bar.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        training = _shoot(bar, Config(split="train", n_videos=arguments.videos, seed=arguments.seed))
        teller = _Teller(bar, sum(stage.steps for stage in curriculum))
        trained = train(training, curriculum, arguments.seed, arguments.out / "training.pt", teller)
        save(arguments.out, trained.model)
        testing = _shoot(bar, Config(split="test", n_videos=arguments.test_videos, seed=arguments.seed))
        task = bar.add_task("measuring", total=len(MEASURED))
        scores = []
        for shown in MEASURED:
            scores += held_out(trained.model, testing, shown)
            bar.advance(task)
    console.print(_table(scores))
    write_card(arguments.out, curriculum, training.config, testing.config, scores, trained.seconds / 60)
    size = (arguments.out / "model.safetensors").stat().st_size
    console.print(f"{arguments.out}: {size / 1e6:.1f} MB, {trained.seconds / 60:.0f} minutes of training")
    for score in below_floor(scores):
        console.print(
            f"below its floor: {score.task}, {score.budget} {score.frames} frames, {score.share:.1%}"
        )


def _shoot(bar: Bar, config: Config) -> Footage:
    task = bar.add_task(f"videos of {config.split}", total=None)
    return shoot(config, lambda done, of: bar.update(task, completed=done, total=of))


class _Teller:
    """Shows each step in the bar, and writes a line now and then, for logs."""

    def __init__(self, bar: Bar, steps: int) -> None:
        self._bar = bar
        self._task = bar.add_task("training", total=steps)
        self._recent: deque[Progress] = deque(maxlen=_LOG_EVERY)

    def __call__(self, progress: Progress) -> None:
        self._recent.append(progress)
        self._bar.update(self._task, completed=progress.step, description=progress.stage)
        if progress.step % _LOG_EVERY == 0 or progress.step == progress.steps:
            same = [entry for entry in self._recent if entry.stage == progress.stage]
            loss = sum(entry.loss for entry in same) / len(same)
            right = [sum(share) / len(same) for share in zip(*(entry.right for entry in same), strict=True)]
            shares = ", ".join(f"{share:.0%}" for share in right)
            seconds = sum(entry.seconds for entry in same) / len(same)
            self._bar.console.print(
                f"{progress.step:5d}/{progress.steps} {progress.stage}: loss {loss:.3f}, right {shares}, "
                f"{seconds:.2f} s a step"
            )


def _table(scores: list[Score]) -> Table:
    table = Table("task", "form", "frames", "accuracy", "n", title="MiniHorizon, test split")
    for score in scores:
        shown = f"{score.budget} {score.frames}"
        table.add_row(score.task, score.form, shown, f"{score.share:.1%}", str(score.n))
    return table


if __name__ == "__main__":
    main()
