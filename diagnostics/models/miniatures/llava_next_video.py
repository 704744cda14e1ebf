"""A tiny LLaVA-NeXT-Video: CLIP over the middle square of each frame, on a Llama text model."""

from __future__ import annotations

from typing import Any

from transformers import (
    LlavaNextImageProcessor,
    LlavaNextVideoConfig,
    LlavaNextVideoProcessor,
    LlavaNextVideoVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO = "<image>", "<video>"
_PATCH = 14
_SIDE = 6 * _PATCH  # 6 x 6 patches; pooling makes 3 x 3 tokens of a frame
_TILINGS = [[_SIDE, 2 * _SIDE], [2 * _SIDE, _SIDE], [2 * _SIDE, 2 * _SIDE]]


def _config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextVideoConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in (_IMAGE, _VIDEO)}
    return LlavaNextVideoConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 704,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            # The last but one layer's output is what the checkpoints read: one more than is looked at.
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": _PATCH,
        },
        image_token_index=ids[_IMAGE],
        video_token_index=ids[_VIDEO],
        image_grid_pinpoints=_TILINGS,
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> LlavaNextVideoProcessor:
    size, crop = {"shortest_edge": _SIDE}, {"height": _SIDE, "width": _SIDE}
    return LlavaNextVideoProcessor(
        video_processor=LlavaNextVideoVideoProcessor(size=size, crop_size=crop),
        image_processor=LlavaNextImageProcessor(size=size, crop_size=crop, image_grid_pinpoints=_TILINGS),
        tokenizer=tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=_IMAGE,
        video_token=_VIDEO,
        chat_template=chat_template(video="{{ '" + _VIDEO + "\\n' }}", image="{{ '" + _IMAGE + "\\n' }}"),
    )


MINIATURE = Miniature(
    model_type="llava_next_video",
    special_tokens=(_IMAGE, _VIDEO),
    config=_config,
    processor=_processor,
    model_class="LlavaNextVideoForConditionalGeneration",
    named={"image_token": _IMAGE, "video_token": _VIDEO},
)
