"""transformers, with a pause before each question: a run lasts as long as a test needs, on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from pydantic.dataclasses import dataclass

from diagnostics.models.backends import hf
from diagnostics.models.backends.requests import Answer, Request
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel
from diagnostics.strict import STRICT

__all__ = ["Config", "engine"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the engine.

    Attributes:
        pause: seconds before each question.
    """

    pause: float = 1.0


class _Slow(hf.HfEngine):
    pause = 0.0

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        time.sleep(self.pause)
        return super().submit(group)


def engine(
    load: Callable[[], LoadedModel], model: ModelConfig, settings: Config, note: Callable[[str, Any], None]
) -> _Slow:
    """See `diagnostics.models.backends`."""
    del model
    opened = _Slow(load, hf.Config(sharing=False), note)
    opened.pause = settings.pause
    return opened
