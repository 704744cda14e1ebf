"""From a request to the body of a chat-completions call: what is shown, what is asked.

The wording of the question is that of every engine (`prompting.question_text`); what stands around it is the
server's own chat template. Pictures are JPEGs with colour at full resolution (4:4:4: halved colour would blur
small things), shown in one of two ways:

- `images`: one `image_url` a frame, its time as text before it, `<12.3 seconds>` as Qwen3-VL writes it;
- `video`: one `video_url` of type `video/jpeg`, JPEGs in base64 joined by commas, and `media_io_kwargs` with
  the source's frame rate and frame numbers. vLLM's server takes it, started with `--trust-request-mm-kwargs`;
  `num_frames` is -1 since it would keep the first 32 pictures otherwise.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from diagnostics.data.items import Item
from diagnostics.errors import ModelError
from diagnostics.models.prompting import Form, question_text
from diagnostics.video.selection import Frames, Selection

__all__ = ["Pictures", "Visual", "chat_messages", "media_clock", "merged", "pictures"]

Visual = Literal["images", "video"]
"""How the frames of a video are shown."""

_CLOCK_TOLERANCE = 5e-4
"""Seconds within which frame number / frame rate counts as the shown time."""

_MILLISECONDS = 1000.0
"""Ticks a second of the clock for times that no frame number gives: the server takes whole numbers."""


@dataclass(frozen=True)
class Pictures:
    """What opens the conversation, and the keys of the body that belong to it."""

    parts: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] = field(default_factory=dict)


def pictures(frames: Frames, form: Form, visual: Visual, quality: int, detail: str | None) -> Pictures:
    """Encode what is shown.

    Args:
        form: `nothing` shows nothing; `images` are pictures by themselves, without times.
        quality: of the JPEGs, 1 to 100.
        detail: of each `image_url`, for endpoints that have such levels.

    Raises:
        ModelError: a video holds a picture that has no time.
    """
    if form == "nothing":
        return Pictures()
    encoded = [_jpeg(picture, quality) for picture in frames.pixels]
    if form == "video" and visual == "video":
        url = f"data:video/jpeg;base64,{','.join(encoded)}"
        told = {"num_frames": -1, **media_clock(frames.selection)}
        part = {"type": "video_url", "video_url": {"url": url}}
        return Pictures((part,), {"media_io_kwargs": {"video": told}})
    parts: list[Mapping[str, Any]] = []
    level = {} if detail is None else {"detail": detail}
    for slot, picture in zip(frames.selection.slots, encoded, strict=True):
        if form == "video" and math.isfinite(slot.shown_seconds):
            parts.append({"type": "text", "text": f"<{slot.shown_seconds:.1f} seconds>"})
        url = f"data:image/jpeg;base64,{picture}"
        parts.append({"type": "image_url", "image_url": {"url": url, **level}})
    return Pictures(parts)


def _jpeg(picture: UInt8[np.ndarray, "height width 3"], quality: int) -> str:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="JPEG", quality=quality, subsampling=0)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def media_clock(selection: Selection) -> dict[str, Any]:
    """Frame rate (1/s), whole frame numbers, their total and the duration (s) that give the shown times.

    The source's own, as every published pipeline passes them; where they don't give the shown times (variable
    frame rate, a start offset, a perturbed clock, blanks), those times in milliseconds.

    Raises:
        ModelError: a picture has no time.
    """
    shown, fps, indices = selection.shown_seconds, selection.source_fps, selection.frame_indices
    total = selection.source_frames
    if not np.all(np.isfinite(shown)):
        raise ModelError(
            "A picture of the video has no time, and a video is told by its times.",
            remedy="Set backend.frames=images.",
        )
    if np.any(indices < 0) or np.max(np.abs(indices / fps - shown)) > _CLOCK_TOLERANCE:
        fps, indices = _MILLISECONDS, np.rint(shown * _MILLISECONDS).astype(np.int64)
        total = max(math.ceil(selection.source_seconds * _MILLISECONDS), int(indices.max()) + 1)
    return {
        "fps": float(fps),
        "frames_indices": indices.tolist(),
        # Not below the number of pictures, which the server refuses: a frame may be shown more than once.
        "total_num_frames": max(total, len(indices)),
        "duration": selection.source_seconds,
    }


def chat_messages(item: Item, instruction: str, shown: Pictures) -> list[dict[str, Any]]:
    """The conversation: what is shown opens it, later turns ask about what was shown before."""
    _, _, text = question_text(item, instruction)
    turns = [(turn.role, turn.text) for turn in item.turns] + [("user", text)]
    messages: list[dict[str, Any]] = [{"role": role, "content": said} for role, said in turns]
    if shown.parts:
        messages[0]["content"] = [*shown.parts, {"type": "text", "text": messages[0]["content"]}]
    return messages


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with the keys of `extra`: mappings are merged in turn, and null takes a key away."""
    found = dict(body)
    for key, value in extra.items():
        before = found.get(key)
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            found[key] = value
    return found
