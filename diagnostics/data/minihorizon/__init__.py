"""MiniHorizon: simulated procedures with known evidence, as real H.264 files. `data=minihorizon`.

Homogeneous tissue drifts by for minutes or hours, its hue changing with the phase; instruments, steps
and lesions come and go. Their annotation tracks go through the pipeline of `diagnostics.data.build`,
and its questions are the data set.
"""

from __future__ import annotations

from diagnostics.data.minihorizon.files import content, ensure_files
from diagnostics.data.minihorizon.settings import Config
from diagnostics.data.validation import Loaded

__all__ = ["TASKS", "Config", "load"]

TASKS = ("PR", "IR", "RSR", "CPR", "LLS", "Site", "Hist", "Size", "LA")
"""In the order of MedHorizon's Table 2, whose tasks they are modelled on."""


def load(config: Config) -> Loaded:
    """The items; their videos are written on first use. None is ever rejected.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    folder = ensure_files(config)
    return Loaded(content(config, folder)[1], [])
