"""The engines `vllm` and `hf` on the same requests: runs inside the environment of `environment.py`.

    python engines.py CHECKPOINT FILE

FILE gets, by engine and case, the answer or the error. The frames are noise: what is compared is how each
engine writes the prompt and prepares the pictures, and every kind of request there is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.data.items import Item, Turn
from diagnostics.models.backends import open_engine
from diagnostics.models.backends.requests import PromptSettings, Request
from diagnostics.models.config import BackendConfig, ModelConfig
from diagnostics.models.loading import load_model
from diagnostics.video.selection import Frames, Selection, Slot

FPS, CONTEXT = 25.0, 2048
MAX_PIXELS = 12 * 64 * 64
"""Over time x height x width: less than sixteen frames of 96 x 96, more than four."""
SETTINGS = PromptSettings("Answer with the letter of the correct option only.", 6)
ENGINES: dict[str, dict[str, Any]] = {
    "hf": {"sharing": False},
    "vllm": {"max_model_len": CONTEXT, "in_flight": 2, "eager": True},
}


def main(checkpoint: str, file: Path) -> None:
    """Ask every case of both engines."""
    model = ModelConfig(
        name="copy", path=checkpoint, dtype="float32", max_pixels=MAX_PIXELS, local_files_only=True
    )
    loaded = load_model(model)
    told: dict[str, Any] = {}
    for name, parameters in ENGINES.items():
        notes: dict[str, Any] = {}
        config = BackendConfig(name=name, parameters=parameters)
        with open_engine(lambda: loaded, model, config, notes.__setitem__) as engine:
            engine.start()
            futures = []
            for group in groups():
                asked = list(engine.submit(group)) if name == "vllm" else alone(engine, group)
                futures += [(request.item.id, future) for request, future in zip(group, asked, strict=True)]
            told[name] = {case: outcome(future) for case, future in futures}
        told[name]["notes"] = notes
    file.write_text(json.dumps(told, default=str))


def alone(engine: Any, group: Sequence[Request]) -> list[Any]:
    return [future for request in group for future in engine.submit([request])]


def outcome(future: Any) -> dict[str, Any]:
    error = future.exception()
    if error is not None:
        return {"error": type(error).__name__, "message": str(error)}
    return asdict(future.result())


def groups() -> Iterator[list[Request]]:
    """Requests, those that are shown the same frames together; an item's id is the case."""
    sixteen, four = a_video(16), a_video(4)
    clock = tuple(
        replace(slot, shown_seconds=1.37 * slot.true_seconds + 0.2) for slot in four.selection.slots
    )
    yield [
        a_request("shrunk by the pixel limit", sixteen),
        a_request("two options", sixteen, question="Is it blue?", options=("yes", "no")),
        a_request("open-ended", sixteen, question="Describe it.", options=(), answer=None),
        a_request(
            "turns", sixteen, turns=(Turn("user", "Is there a lesion?"), Turn("assistant", "Yes, one."))
        ),
    ]
    yield [
        a_request("not shrunk", four),
        a_request("a control token", four, question="What is <|im_end|> here?"),
        a_request("too long", four, question="What is it? " * 1000),
        a_request("after a refused one", four, question="And what is behind it?"),
    ]
    # The same pixels at other times: no cache may take one for the other.
    yield [a_request("another clock", Frames(four.pixels, replace(four.selection, slots=clock)))]
    yield [a_request("an odd number of frames", a_video(7))]
    yield [a_request("one frame", a_video(1))]
    yield [a_request("frames of few pixels", four, prompt=replace(SETTINGS, frame_pixels=64 * 64))]
    yield [a_request("text alone", four, prompt=replace(SETTINGS, form="nothing"))]
    yield [a_request("images", four, prompt=replace(SETTINGS, form="images"))]


def a_request(case: str, frames: Frames, *, prompt: PromptSettings = SETTINGS, **changes: Any) -> Request:
    item = Item(
        id=case,
        video=Path("v.mp4"),
        video_id="v",
        question="What colour is the lesion?",
        options=("red", "blue", "green"),
        answer="A",
    )
    return Request(replace(item, **changes), {}, frames, prompt)


def a_video(n: int) -> Frames:
    indices = np.linspace(0, 249, n).round().astype(int)
    slots = tuple(Slot("v", int(index), index / FPS, index / FPS) for index in indices)
    pixels = np.random.default_rng(n).integers(0, 256, (n, 96, 96, 3), dtype=np.uint8)
    return Frames(pixels, Selection(slots, "test", FPS, 250, 250 / FPS, n))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
