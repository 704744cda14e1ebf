"""What the miniatures of MiniCPM-V 4.6 and 4.7 share: frames in slices, layers without attention rows."""

from __future__ import annotations

from typing import Any

from transformers import (
    MiniCPMV4_6ImageProcessor,
    MiniCPMV4_6VideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import chat_template

__all__ = ["NAMED", "TEMPLATE", "TOKENS", "pictures", "text_config", "token_ids", "vision_config"]

NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "image_start_token": "<image>",
    "image_end_token": "</image>",
    "slice_start_token": "<slice>",
    "slice_end_token": "</slice>",
    "image_id_start_token": "<image_id>",
    "image_id_end_token": "</image_id>",
}
TOKENS = tuple(NAMED.values())
_BREAK = "{{ '\\n' }}"
TEMPLATE = chat_template(video=NAMED["video_token"] + _BREAK, image=NAMED["image_token"] + _BREAK)
_SIDE = 112
"""Pixels of a slice's side where its shape is square: 8 patches, 2 tokens; the checkpoints' is 448."""


def token_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The id of each of the family's control tokens by its name."""
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in NAMED.items()}


def text_config(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Qwen3.5's language model: of four layers the second and the last have attention rows."""
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": 640,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "max_position_embeddings": 65_536,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def vision_config() -> dict[str, Any]:
    """Two layers, the windows merged after the first."""
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": _SIDE,
        "patch_size": 14,
    }


def pictures() -> dict[str, Any]:
    """Image and video processor: at most four slices beside the whole picture."""
    limits: dict[str, Any] = {"scale_resolution": _SIDE, "max_slice_nums": 4}
    return {
        "image_processor": MiniCPMV4_6ImageProcessor(**limits),
        "video_processor": MiniCPMV4_6VideoProcessor(**limits),
    }
