"""A tiny Qwen2.5-VL: one run of tokens a video, windowed attention in the vision tower."""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from diagnostics.models.miniatures import qwen3_vl
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE", "processors", "text_shape"]


def text_shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The language model: three narrow layers of four query heads on two key/value heads.

    The class takes the head's width from the hidden size: 16.
    """
    shape = qwen3_vl.text_shape(tokenizer) | {
        "hidden_size": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]},
    }
    del shape["head_dim"]
    return shape


def processors(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """What the processor is made of; frames and images down to one token keep their size."""
    size: Any = {"shortest_edge": 784, "longest_edge": 12_845_056}
    shape: Any = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "size": size}
    return {
        "image_processor": Qwen2VLImageProcessor(**shape),
        "video_processor": Qwen2VLVideoProcessor(**shape),
        "tokenizer": tokenizer,
        "chat_template": qwen3_vl.TEMPLATE,
    }


def _processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLProcessor:
    return Qwen2_5_VLProcessor(**processors(tokenizer))


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    return Qwen2_5_VLConfig(
        text_config=text_shape(tokenizer),
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
            "tokens_per_second": 2,
        },
        tie_word_embeddings=False,
        **qwen3_vl.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen2_5_vl",
    special_tokens=qwen3_vl.SPECIAL,
    named=qwen3_vl.NAMED,
    config=_config,
    processor=_processor,
    model_class="Qwen2_5_VLForConditionalGeneration",
)
