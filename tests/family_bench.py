"""A tiny random model of each family's real class, its real processor, and prompts made by both."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int, UInt8

import hooks
from diagnostics.models.miniatures import miniature

__all__ = [
    "OPTIONS",
    "QUESTION",
    "SIZE",
    "Clip",
    "FamilyBench",
    "clip",
    "make_bench",
    "picture",
    "sharpened",
    "sound",
]

QUESTION = "What colour is the lesion in this video?"
OPTIONS = ("A. white", "B. deep green")
SIZE = (64, 96)
"""Height and width of frames, in pixels."""


@dataclass(frozen=True, eq=False)
class Clip:
    """The frames of one video, and what its processor is told of them (`hooks.families.Shown`)."""

    pixels: UInt8[np.ndarray, "slot height width channel"]
    frame_indices: Int[np.ndarray, " slot"]
    source_fps: float
    source_frames: int

    @property
    def shown_seconds(self) -> Float[np.ndarray, " slot"]:
        return self.frame_indices / self.source_fps

    @property
    def source_seconds(self) -> float:
        return self.source_frames / self.source_fps

    def __len__(self) -> int:
        return len(self.pixels)

    def at_least(self, frames: int) -> Clip:
        """A single frame given so many times, as `diagnostics.models.prompting` does."""
        if len(self) >= frames:
            return self
        return replace(
            self,
            pixels=np.repeat(self.pixels, frames, axis=0),
            frame_indices=np.repeat(self.frame_indices, frames),
        )


def clip(
    frames: int,
    size: tuple[int, int] = SIZE,
    *,
    seed: int = 0,
    fps: float = 3.0,
    stride: int = 10,
    pixels: UInt8[np.ndarray, "slot height width channel"] | None = None,
) -> Clip:
    """Frames of random pixels, or those given, evenly spaced from the start of their source."""
    if pixels is None:
        pixels = np.random.default_rng(seed).integers(0, 256, (frames, *size, 3), dtype=np.uint8)
    return Clip(pixels, np.arange(frames) * stride, fps, frames * stride)


def picture(size: tuple[int, int] = SIZE, *, seed: int = 0) -> UInt8[np.ndarray, "height width channel"]:
    """One image of random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def sound(seconds: float, *, seed: int = 0) -> Float[np.ndarray, " sample"]:
    """Noise at 16,000 samples a second."""
    return np.random.default_rng(seed).standard_normal(int(seconds * 16_000)).astype(np.float32)


@dataclass(eq=False)
class FamilyBench:
    """One miniature: its model with attention far from uniform, its processor, its family."""

    name: str
    model: Any
    processor: Any
    family: hooks.Family

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    @cached_property
    def eager(self) -> Any:
        """The same weights under the eager implementation."""
        model = copy.deepcopy(self.model)
        model.set_attn_implementation("eager")
        return model

    def inputs(
        self,
        *clips: Clip,
        images: Sequence[np.ndarray] = (),
        sounds: Sequence[np.ndarray] = (),
        question: str = QUESTION,
    ) -> dict[str, Any]:
        """One prompt: images, then videos, then sounds, then the question and its options."""
        return self.batch([(clips, images, question)], sounds)

    def batch(
        self,
        prompts: Sequence[tuple[Sequence[Clip], Sequence[np.ndarray], str]],
        sounds: Sequence[np.ndarray] = (),
    ) -> dict[str, Any]:
        """Several prompts of (videos, images, question), padded by the processor; each has all sounds."""
        texts = [
            self._chat(len(clips), len(images), len(sounds), question) for clips, images, question in prompts
        ]
        told = [[one.at_least(self.family.least_frames) for one in clips] for clips, _, _ in prompts]
        pictures = [[_channels_first(one) for one in images] for _, images, _ in prompts]
        visual: dict[str, Any] = {}
        if any(told):
            visual["videos"] = [[_channels_first(one.pixels) for one in clips] for clips in told]
            for one in chain.from_iterable(told):
                visual = _joined(visual, self.family.video_arguments(one))
            if self.family.takes_pixel_cap:
                visual["cap_pixels_per_frame"] = False
        if sounds:
            visual["audio"] = list(sounds) * len(prompts)
        if any(pictures):
            one = len(prompts) == 1
            visual |= self.family.image_arguments(pictures[0]) if one else {"images": pictures}
        if len(texts) > 1:
            visual["padding"] = True  # also of sounds, which say how to be padded themselves
        return dict(self.processor(text=texts, return_tensors="pt", **visual))

    def _chat(self, videos: int, images: int, sounds: int, question: str) -> str:
        kinds = ["image"] * images + ["video"] * videos + ["audio"] * sounds
        content = [
            *({"type": kind} for kind in kinds),
            {"type": "text", "text": "\n".join([question, *OPTIONS])},
        ]
        return self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )

    def map(self, inputs: Mapping[str, Any], *frames: int, row: int = 0, **roles: Any) -> hooks.TokenMap:
        """The verified map of one prompt, told how many frames each of its videos was given."""
        return hooks.token_map(
            self.model, self.processor, inputs, n_frames=list(frames) if frames else None, row=row, **roles
        )

    def roles(self, inputs: Mapping[str, Any], *frames: int, row: int = 0) -> hooks.TokenMap:
        """As `map`, with the question and the options found by their text."""
        return self.map(inputs, *frames, row=row, question=QUESTION, options=list(OPTIONS))

    def run(self, inputs: Mapping[str, Any], **options: Any) -> Any:
        """One forward without gradients."""
        with torch.no_grad():
            return self.model(**inputs, **options)


def _channels_first(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(pixels, -1, -3))


def _joined(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of one video added to those of the videos before it: lists grow, all else must agree."""
    joined = dict(known)
    for name, value in more.items():
        if isinstance(value, list):
            joined[name] = [*joined.get(name, []), *value]
        else:
            assert joined.get(name, value) == pytest.approx(value), f"two videos disagree about {name}"
            joined[name] = value
    return joined


@cache
def make_bench(name: str) -> FamilyBench:
    """The miniature of a model type, once a session, sharpened so that attention tells positions apart."""
    model, processor = miniature(name).make(seed=7)
    return FamilyBench(name, sharpened(model), processor, hooks.family_of(model))


def sharpened(model: Any) -> Any:
    """The model with attention far from uniform: a random tiny one would attend everywhere alike."""
    family = hooks.family_of(model)
    layers = family.layers(model)
    with torch.no_grad():
        for layer in family.attention_layers(model):
            attention = family.attention(layers[layer])
            if hasattr(attention, "q_norm"):
                # Where normed queries and keys are not scaled down (Gemma 4), scores are sharp as they are,
                # and sharper ones would make rounding of 1e-7 a difference of 1e-5 in attention.
                attention.q_norm.weight.add_(3.0 if attention.scaling < 1 else -0.5)
            else:
                attention.q_proj.weight.mul_(20.0)
                attention.k_proj.weight.mul_(10.0)
    return model
