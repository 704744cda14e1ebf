"""Qwen's two layouts as miniatures (`family_bench`), with prompts laid out by merged rows and columns."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from diagnostics.models.miniatures import miniature

from ..family_bench import FamilyBench, sharpened

QUESTION = "Which colour is the lesion near the end?"
OPTIONS = ("A. red", "B. deep green", "C. blue", "D. none")


@dataclass(eq=False)
class Bench(FamilyBench):
    """A model of frame pairs on a grid, with prompts laid out by merged rows and columns."""

    @property
    def patch(self) -> int:
        """Pixels a side of a patch, four of which are one token."""
        return int(self.processor.video_processor.patch_size)

    def prompt(
        self,
        frames: int | list[int] = 7,
        size: tuple[int, int] = (2, 3),
        sizes: list[tuple[int, int]] | None = None,
        question: str = QUESTION,
        options: tuple[str, ...] = OPTIONS,
        fps: float = 3.0,
        stride: int = 10,
        images: int = 0,
    ) -> dict[str, Any]:
        """One prompt of videos of random pixels, `size` merged rows and columns each, then the question."""
        counts = [frames] if isinstance(frames, int) else frames
        sizes = sizes or [size] * len(counts)
        generator = np.random.default_rng(sum(counts))
        videos = [self.pixels(generator, n, grid) for n, grid in zip(counts, sizes, strict=True)]
        pictures = [self.pixels(generator, 1, size)[0] for _ in range(images)]
        content: list[dict[str, str]] = [{"type": "image"} for _ in pictures]
        content += [{"type": "video"} for _ in videos]
        content += [{"type": "text", "text": f"{question}\n" + "\n".join(options)}]
        text = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        metadata = [
            {
                "fps": fps,
                "frames_indices": np.arange(n) * stride,
                "total_num_frames": int(n * stride),
                "duration": n * stride / fps,
            }
            for n in counts
        ]
        return dict(
            self.processor(
                text=[text],
                videos=videos or None,
                images=pictures or None,
                video_metadata=metadata if videos else None,
                do_sample_frames=False,
                return_tensors="pt",
            )
        )

    def pixels(self, generator: np.random.Generator, frames: int, grid: tuple[int, int]) -> np.ndarray:
        side = 2 * self.patch
        shape = (frames, grid[0] * side, grid[1] * side, 3)
        return generator.integers(0, 256, shape, dtype=np.uint8)


def make_bench(name: str, attention: str = "sdpa") -> Bench:
    """A fresh miniature with fixed weights; its processor keeps small frames as they are."""
    model, processor = miniature(name).make(seed=7)
    model.set_attn_implementation(attention)
    for part in (processor.image_processor, processor.video_processor):
        part.size = {"shortest_edge": part.patch_size**2, "longest_edge": 10**9}
    return Bench(name, sharpened(model), processor, hooks.family_of(model))


@pytest.fixture(scope="session")
def qwen3() -> Bench:
    return make_bench("qwen3_vl")


@pytest.fixture(scope="session")
def qwen2_5() -> Bench:
    return make_bench("qwen2_5_vl")


@pytest.fixture(scope="session", params=["qwen3_vl", "qwen2_5_vl"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Each family in turn."""
    return request.getfixturevalue({"qwen3_vl": "qwen3", "qwen2_5_vl": "qwen2_5"}[request.param])


@pytest.fixture
def fresh() -> Callable[..., Bench]:
    """A new model that a test may break, or one with another attention implementation."""

    def make(name: str = "qwen3_vl", attention: str = "sdpa") -> Bench:
        return make_bench(name, attention)

    return make


def _padded_batch(bench: Bench) -> dict[str, Any]:
    """Two prompts of different length, the shorter one first."""
    short, long = bench.prompt(frames=2, size=(1, 2)), bench.prompt(frames=6, size=(2, 3))
    batch: dict[str, Any] = {}
    for name, pad in (("input_ids", bench.tokenizer.pad_token_id), ("attention_mask", 0)):
        rows = [short[name][0], long[name][0]]
        batch[name] = torch.nn.utils.rnn.pad_sequence(rows, True, pad, padding_side="left")
    types = [short["mm_token_type_ids"][0], long["mm_token_type_ids"][0]]
    batch["mm_token_type_ids"] = torch.nn.utils.rnn.pad_sequence(types, True, 0, padding_side="left")
    for name in ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts"):
        if name in short:
            batch[name] = torch.cat([torch.as_tensor(short[name]), torch.as_tensor(long[name])])
    return batch


@pytest.fixture
def padded_batch() -> Callable[[Bench], dict[str, Any]]:
    """Makes a left-padded batch of two prompts for a model."""
    return _padded_batch
