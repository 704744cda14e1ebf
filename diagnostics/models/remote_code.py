"""Code that comes with a checkpoint: whether it may be run, and whether all of it is the checkpoint's own.

A checkpoint's files may name classes of another repository (`owner/name--module.Class`), which transformers
downloads and runs at whatever it holds by now. Trust in one checkpoint is none in another: such a checkpoint
is refused before anything is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from diagnostics.errors import CheckpointError, ConfigError
from diagnostics.models.config import ModelConfig

__all__ = ["refuse_code_elsewhere", "trusts_code"]

_FILES = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "tokenizer_config.json",
)
"""Where transformers looks for the names of classes."""


def trusts_code(config: ModelConfig) -> bool:
    """Whether code that comes with the checkpoint may be run.

    Raises:
        ConfigError: another checkpoint than the model's is named as trusted.
    """
    if config.trust_remote_code not in (None, config.path):
        raise ConfigError(
            f"model.trust_remote_code names {config.trust_remote_code!r}, the model is {config.path!r}.",
            remedy="Name the checkpoint whose code may run, as in model.path, or set it to null.",
        )
    return config.trust_remote_code is not None


def refuse_code_elsewhere(config: ModelConfig, path: str) -> None:
    """See that a trusted checkpoint names no class of another repository.

    Args:
        path: what `model.path` stands for.

    Raises:
        CheckpointError: it does.
    """
    if not trusts_code(config):
        return
    for name in _FILES:
        found = cached_file(
            path,
            name,
            revision=config.revision,
            local_files_only=config.local_files_only,
            _raise_exceptions_for_missing_entries=False,
        )
        told = json.loads(Path(found).read_text(encoding="utf-8")) if found else {}
        for reference in _references(told):
            owner, elsewhere, _ = reference.partition("--")
            if elsewhere and owner != path:
                raise CheckpointError(
                    f"{name} of {path!r} names code of another checkpoint, {owner!r}, which is not run.",
                    remedy="Read that code, copy its files beside the weights, and name them without "
                    f"'{owner}--' in {name}.",
                )


def _references(told: Any) -> Iterator[str]:
    """What stands below any `auto_map`, at whatever depth."""
    if isinstance(told, dict):
        for key, value in told.items():
            yield from _strings(value) if key == "auto_map" else _references(value)
    elif isinstance(told, list):
        for value in told:
            yield from _references(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)
