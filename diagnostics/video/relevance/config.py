"""Which relevance scorer, and from where: a part of the configuration of samplers that need one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.strict import STRICT

__all__ = ["ScorerConfig"]


@dataclass(frozen=True, config=STRICT)
class ScorerConfig:
    """A scorer and its checkpoint.

    Attributes:
        name: a module of `diagnostics.video.relevance`: `novelty` (offline, ignores the question), `clip`,
            `siglip`, `blip_itm`, `file`; or the dotted name of a module.
        path: the checkpoint's folder or hub id, or the file of scores; null for the scorer's own default.
        revision: of a hub checkpoint.
        local_files_only: never ask the network.
        device: `auto` (a GPU where there is one), or a torch device.
        batch: pictures a forward.
        text: what is compared with the pictures. AKS and ViLAMP take the question, WFS-SB on
            LongVideoBench the options too.
    """

    name: Annotated[str, Field(min_length=1)] = "novelty"
    path: str | None = None
    revision: str | None = None
    local_files_only: bool = False
    device: str = "auto"
    batch: PositiveInt = 32
    text: Literal["question", "question_and_options"] = "question"
