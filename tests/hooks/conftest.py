"""Tiny random models of the real architectures, a tokenizer trained on the spot, the real processors."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% for part in message.content -%}
{%- if part.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- else -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
QUESTION = "Which colour is the lesion near the end?"
OPTIONS = ("A. red", "B. deep green", "C. blue", "D. none")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen's special tokens, trained on a few sentences."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [QUESTION, "user assistant seconds <0.5 seconds> <12.0 seconds>", " ".join(OPTIONS)] * 3
    bpe.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_start_token": "<|vision_start|>",
            "vision_end_token": "<|vision_end|>",
        },
    )


def _ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def qwen3_config(tokenizer: PreTrainedTokenizerFast, **text: Any) -> Qwen3VLConfig:
    """Three narrow layers, four query heads on two key/value heads, DeepStack after two layers."""
    shape = {
        "vocab_size": 448,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 65_536,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    return Qwen3VLConfig(
        text_config=shape | text,
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": (shape | text)["hidden_size"],
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        tie_word_embeddings=False,
        **_ids(tokenizer),
    )


def qwen2_5_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    """Three narrow layers, four query heads on two key/value heads, windowed vision attention."""
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 448,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]},
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 64,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        tie_word_embeddings=False,
        **_ids(tokenizer),
    )


def sharpen(model: Any) -> Any:
    """Make attention far from uniform: a random tiny model would otherwise attend everywhere alike."""
    with torch.no_grad():
        for layer in model.model.language_model.layers:
            attention = layer.self_attn
            if hasattr(attention, "q_norm"):
                attention.q_norm.weight.mul_(4.0)
            else:
                attention.q_proj.weight.mul_(30.0)
                attention.k_proj.weight.mul_(10.0)
    return model.eval()


@dataclass
class Bench:
    """A model, its processor, and the pixels one patch of it takes."""

    name: str
    model: Any
    processor: Any
    patch: int

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

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


def make_bench(name: str, tokenizer: PreTrainedTokenizerFast, attention: str = "sdpa") -> Bench:
    """A fresh model with fixed weights, and its processor with a pixel budget that keeps small frames."""
    torch.manual_seed(7)
    patch = 16 if name == "qwen3_vl" else 14
    image = Qwen2VLImageProcessor(
        patch_size=patch,
        temporal_patch_size=2,
        merge_size=2,
        size={"shortest_edge": patch * patch, "longest_edge": 10**8},
    )
    if name == "qwen3_vl":
        model = Qwen3VLForConditionalGeneration._from_config(
            qwen3_config(tokenizer), attn_implementation=attention
        )
        video = Qwen3VLVideoProcessor(
            size={"shortest_edge": 256, "longest_edge": 10**9}, cap_pixels_per_frame=False
        )
        processor: Any = Qwen3VLProcessor(
            image_processor=image, tokenizer=tokenizer, video_processor=video, chat_template=TEMPLATE
        )
    else:
        model = Qwen2_5_VLForConditionalGeneration._from_config(
            qwen2_5_config(tokenizer), attn_implementation=attention
        )
        video = Qwen2VLVideoProcessor(
            patch_size=14,
            temporal_patch_size=2,
            merge_size=2,
            size={"shortest_edge": 14 * 14, "longest_edge": 10**8},
        )
        processor = Qwen2_5_VLProcessor(
            image_processor=image, tokenizer=tokenizer, video_processor=video, chat_template=TEMPLATE
        )
    return Bench(name, sharpen(model), processor, patch)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="session")
def qwen3(tokenizer: PreTrainedTokenizerFast) -> Bench:
    return make_bench("qwen3_vl", tokenizer)


@pytest.fixture(scope="session")
def qwen2_5(tokenizer: PreTrainedTokenizerFast) -> Bench:
    return make_bench("qwen2_5_vl", tokenizer)


@pytest.fixture(scope="session", params=["qwen3_vl", "qwen2_5_vl"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Each family in turn."""
    return request.getfixturevalue({"qwen3_vl": "qwen3", "qwen2_5_vl": "qwen2_5"}[request.param])


@pytest.fixture
def fresh(tokenizer: PreTrainedTokenizerFast) -> Callable[..., Bench]:
    """A new model that a test may break, or one with another attention implementation."""

    def make(name: str = "qwen3_vl", attention: str = "sdpa") -> Bench:
        return make_bench(name, tokenizer, attention)

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
