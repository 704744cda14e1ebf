"""A tiny LLaVA-OneVision: SigLIP whose patches do not fill the picture, on a Qwen2 text model.

As in the checkpoints (384 pixels, 27 patches of 14, 14 x 14 tokens after pooling) the number of patches
along a side is odd and some pixels at the right and lower edge belong to no patch: here 74 pixels, 5
patches, 3 x 3 tokens. Pictures larger than two tiles are scaled down before they are packed.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO = "<image>", "<video>"
_PATCHES, _SIDE = 5, 74
_TILINGS = [[_SIDE * rows, _SIDE * cols] for rows, cols in product((1, 2), (1, 2))]
_MOST_TILES = "anyres_max_2"


def _config(tokenizer: PreTrainedTokenizerFast) -> LlavaOnevisionConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in (_IMAGE, _VIDEO)}
    return LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2",
            "vocab_size": 704,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": 14,
            "vision_use_head": False,
        },
        image_token_index=ids[_IMAGE],
        video_token_index=ids[_VIDEO],
        image_grid_pinpoints=_TILINGS,
        vision_aspect_ratio=_MOST_TILES,
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> LlavaOnevisionProcessor:
    size = {"height": _SIDE, "width": _SIDE}
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=_TILINGS),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=_PATCHES**2,
        vision_feature_select_strategy="full",
        vision_aspect_ratio=_MOST_TILES,
        image_token=_IMAGE,
        video_token=_VIDEO,
        chat_template=chat_template(video="{{ '" + _VIDEO + "\\n' }}", image="{{ '" + _IMAGE + "\\n' }}"),
    )


MINIATURE = Miniature(
    model_type="llava_onevision",
    special_tokens=(_IMAGE, _VIDEO),
    config=_config,
    processor=_processor,
    model_class="LlavaOnevisionForConditionalGeneration",
    named={"image_token": _IMAGE, "video_token": _VIDEO},
)
