"""A tiny GLM-4.1V: units of two frames as images inside a video's pair of markers, whole seconds between."""

from __future__ import annotations

from typing import Any

from transformers import (
    Glm4vConfig,
    Glm4vImageProcessor,
    Glm4vProcessor,
    Glm4vVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = [
    "MINIATURE",
    "NAMED",
    "SIZES",
    "SPECIAL",
    "TEMPLATE",
    "placeholder_ids",
    "text_shape",
    "vision_shape",
]

_IDS = {
    "image_start_token": "<|begin_of_image|>",
    "image_end_token": "<|end_of_image|>",
    "video_start_token": "<|begin_of_video|>",
    "video_end_token": "<|end_of_video|>",
    "image_token": "<|image|>",
    "video_token": "<|video|>",
}
SPECIAL = tuple(_IDS.values())
NAMED = {name: _IDS[name] for name in ("image_token", "video_token")}
TEMPLATE = chat_template(
    video="<|begin_of_video|><|video|><|end_of_video|>",
    image="<|begin_of_image|><|image|><|end_of_image|>",
)
SIZES: dict[str, Any] = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}


def placeholder_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The configuration's ids of placeholders and delimiters."""
    return {f"{name}_id": tokenizer.convert_tokens_to_ids(token) for name, token in _IDS.items()}


def text_shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The language model: three narrow layers; half of each head is rotated."""
    return {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 65_536,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
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
        "out_hidden_size": 64,
        "num_heads": 2,
        "image_size": 112,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }


def _processor(tokenizer: PreTrainedTokenizerFast) -> Glm4vProcessor:
    # The class's limits, but for the lower one of videos: frames of one or two tokens keep their size.
    video: Any = {"shortest_edge": 1_568, "longest_edge": 47_040_000}
    image: Any = {"shortest_edge": 784, "longest_edge": 9_633_792}
    return Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=image, **SIZES),
        video_processor=Glm4vVideoProcessor(size=video, **SIZES),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
    )


def _config(tokenizer: PreTrainedTokenizerFast) -> Glm4vConfig:
    return Glm4vConfig(
        text_config=text_shape(tokenizer),
        vision_config=vision_shape(),
        tie_word_embeddings=False,
        **placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="glm4v",
    special_tokens=SPECIAL,
    named=NAMED,
    config=_config,
    processor=_processor,
    model_class="Glm4vForConditionalGeneration",
)
