"""Make a finished run's page again: `report.html` from its files alone, no model and no video.

Every run writes its page at its end; this is for runs of older versions, or after this program has changed.
"""

from __future__ import annotations

from typing import Any

from pydantic import field_validator
from pydantic.dataclasses import dataclass
from rich.console import Console

from diagnostics.experiments.outcome import Outcome
from diagnostics.progress import Watch
from diagnostics.store.finished import find_run, load_summary
from diagnostics.strict import STRICT

__all__ = ["USES", "Config", "on_run"]

USES = ("exp",)
"""Groups of the configuration that this experiment reads."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        run: the folder of the run.
        beside: other runs, as `+exp=compare` names them: what they measured of the same items shown the same
            frames (attention, knockout, patching, faithfulness) stands on the same axis, with each item.
    """

    run: str
    beside: tuple[str, ...] = ()

    @field_validator("beside", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


def on_run(config: Config, console: Console) -> Outcome:
    """Write the page into the run's own folder; the run is not opened for writing.

    Raises:
        RunError: there is no run, more than one, or it has no summary.
        DamagedRunError: a file of it cannot be read.
    """
    from diagnostics.report.page import write_page

    folder = find_run(config.run, "run")
    with Watch(console).waiting("writing the page"):
        path = write_page(folder, beside=config.beside)
    return Outcome(load_summary(folder), {"report": path}, ())
