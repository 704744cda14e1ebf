"""A tiny InternVL3.5: square frames of one tile, nine tokens each, on a Qwen3 text model."""

from __future__ import annotations

from typing import Any

from transformers import (
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_NAMED = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
_PATCH = 14
_SIDE = 6 * _PATCH  # 6 x 6 patches; the pixel shuffle makes 3 x 3 tokens of them
_TOKENS = 9


def _config(tokenizer: PreTrainedTokenizerFast) -> InternVLConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in _NAMED.values()}
    return InternVLConfig(
        text_config={
            "model_type": "qwen3",
            "vocab_size": 704,
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": [_SIDE, _SIDE],
            "patch_size": [_PATCH, _PATCH],
            # The checkpoints' own: attention biases, and no norm after the last layer.
            "attention_bias": True,
            "use_mean_pooling": True,
        },
        image_token_id=ids[_NAMED["context_image_token"]],
        image_seq_length=_TOKENS,
        downsample_ratio=0.5,
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> InternVLProcessor:
    size = {"height": _SIDE, "width": _SIDE}
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size, crop_to_patches=True, min_patches=1, max_patches=6),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size),
        image_seq_length=_TOKENS,
        chat_template=chat_template(
            video="{{ '" + _NAMED["video_token"] + "\\n' }}",
            image="{{ '" + _NAMED["context_image_token"] + "\\n' }}",
        ),
    )


MINIATURE = Miniature(
    model_type="internvl",
    special_tokens=tuple(_NAMED.values()),
    config=_config,
    processor=_processor,
    model_class="InternVLForConditionalGeneration",
    named=_NAMED,
)
