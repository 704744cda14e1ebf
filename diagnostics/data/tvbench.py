"""TVBench (arXiv 2410.07752; released as FunAILab/TVBench): `data=tvbench data.root=FOLDER`.

Ten tasks in the layout of `diagnostics.data.task_files`, each with a folder of videos of its own. Action
Sequence and Action Localization bound a clip.
"""

from __future__ import annotations

from pathlib import Path

from diagnostics.data.task_files import Config, TaskFile, load_tasks
from diagnostics.data.validation import Loaded

__all__ = ["FILES", "TASKS", "Config", "load"]

_BOUNDED = ("action_sequence", "action_localization")
FILES = tuple(
    TaskFile(stem.replace("_", " ").title(), stem, stem, stem in _BOUNDED)
    for stem in (
        "action_count",
        "object_count",
        "action_sequence",
        "object_shuffle",
        "scene_transition",
        "action_localization",
        "action_antonym",
        "unexpected_action",
        "egocentric_sequence",
        "moving_direction",
    )
)
TASKS = tuple(entry.task for entry in FILES)


def load(config: Config) -> Loaded:
    """The items of all tasks.

    Raises:
        DataFileError, ConfigError: see `load_tasks`.
    """
    return load_tasks(Path(config.root), FILES, config.folders, what="TVBench")
