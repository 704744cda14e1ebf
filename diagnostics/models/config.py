"""What can be said about a model on the command line or in `conf/model/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.strict import STRICT

__all__ = ["BackendConfig", "ModelConfig"]


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """One checkpoint and how it is loaded.

    Attributes:
        name: what the run folder and the tables call it.
        path: a local folder or a hub id; `tiny` for the bundled trained model, `tiny_random` for its
            architecture with random weights, `tiny/NAME` or `tiny/NAME@DOSE` for a model that differs from it
            by exact surgery (`diagnostics.testbed.surgery`); `miniature/MODEL_TYPE` for a tiny random
            model of that family's class (`diagnostics.models.miniatures`).
        revision: branch, tag or commit of a hub id; the resolved commit goes into the manifest.
        dtype: `auto` takes the checkpoint's own.
        device: `auto` takes CUDA, then MPS, then the CPU.
        device_map: passed to `from_pretrained` (`auto` spreads layers over GPUs); overrides `device`.
        attention: the kernel of the uncaptured forward. Capture needs `sdpa` in the text model.
        min_pixels: lower pixel limit of the video processor; null keeps the checkpoint's.
        max_pixels: upper pixel limit. Qwen3-VL: a budget over time x height x width. Qwen2.5-VL: per frame.
        cap_pixels_per_frame: the extra cap some transformers versions apply. Pinned here because the
            library's default is announced to change.
        trained_positions: the largest position the checkpoint was trained on, for the warning on hour-long
            videos; null takes the configuration's own limit.
        local_files_only: never ask the hub.
        seed: of the weights of `path=tiny_random`; nothing else depends on it.
        sound: whether the sound of a video is heard with it, of families that hear (the whole sound,
            whichever frames are shown).
        family: dotted path of a family of one's own (`hooks.families.Family`, docs/families.md); null finds
            it by the checkpoint's model type.
        trust_remote_code: the checkpoint, as in `path`, whose own code may be run; null runs none. A name and
            not a switch, so that an override does not carry over to another checkpoint.
    """

    name: str
    path: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    device_map: str | None = None
    attention: Literal["sdpa", "eager"] = "sdpa"
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    cap_pixels_per_frame: bool = False
    trained_positions: int | None = None
    local_files_only: bool = False
    seed: int = 0
    sound: bool = False
    family: str | None = None
    trust_remote_code: str | None = None


@dataclass(frozen=True, config=STRICT)
class BackendConfig:
    """How answers are generated: greedily, with this engine.

    Attributes:
        name: the engine, a module of `diagnostics.models.backends`; `hf` is transformers.
        max_new_tokens: upper limit of the reply's length.
        instruction: the line that follows the options of a multiple-choice question, or a whole template of
            such a question that holds `{question}` and `{options}`. A data set may bring its published one.
        parameters: what else the engine is told, a plain mapping until it converts it (`engine_settings`).
    """

    name: str = "hf"
    max_new_tokens: PositiveInt = 16
    instruction: str = "Answer with the letter of the correct option only."
    parameters: Mapping[str, Any] = field(default_factory=dict)
