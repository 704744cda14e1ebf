"""A tiny Qwen3-VL: three layers, DeepStack after the first two, frames in units of two."""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = [
    "MINIATURE",
    "NAMED",
    "SPECIAL",
    "TEMPLATE",
    "placeholder_ids",
    "processor",
    "text_shape",
    "vision_shape",
]

SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}
TEMPLATE = chat_template(
    video="<|vision_start|><|video_pad|><|vision_end|>",
    image="<|vision_start|><|image_pad|><|vision_end|>",
)


def placeholder_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The configuration's ids of placeholders and delimiters."""
    return {f"{name}_id": tokenizer.convert_tokens_to_ids(token) for name, token in NAMED.items()}


def text_shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The language model: three narrow layers of four query heads on two key/value heads."""
    return {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
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


def vision_shape() -> dict[str, Any]:
    """The vision tower: two layers, the published patch, merge and temporal sizes."""
    return {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 48,
        "num_position_embeddings": 64,
    }


def processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLProcessor:
    """The real processor under the published checkpoints' limits, with which small frames stay small."""
    size: Any = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=16,
            temporal_patch_size=2,
            merge_size=2,
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            size={"shortest_edge": 1_024, "longest_edge": 16_777_216},
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=False),
        chat_template=TEMPLATE,
    )


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    return Qwen3VLConfig(
        text_config=text_shape(tokenizer),
        vision_config=vision_shape() | {"deepstack_visual_indexes": [0, 1]},
        tie_word_embeddings=False,
        **placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen3_vl",
    special_tokens=SPECIAL,
    named=NAMED,
    config=_config,
    processor=processor,
    model_class="Qwen3VLForConditionalGeneration",
)
