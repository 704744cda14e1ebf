"""A tiny PerceptionLM: one square tile a frame, thumbnail and tiles a picture, on a Llama text model.

The checkpoints' vision tower comes from timm, which is no dependency of ours. Here a CLIP tower stands in
its place: same calls, same shape of output. Processor, projector with its pooling and text model are the
real classes.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    PerceptionLMConfig,
    PerceptionLMImageProcessor,
    PerceptionLMProcessor,
    PerceptionLMVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO = "<|image|>", "<|video|>"
_PATCH, _POOLING = 14, 2
_SIDE = 6 * _PATCH  # 6 x 6 patches; pooling makes 3 x 3 tokens of a tile
_WIDTH = 32


def _config(tokenizer: PreTrainedTokenizerFast) -> PerceptionLMConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in (_IMAGE, _VIDEO)}
    return PerceptionLMConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 704,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": _WIDTH,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": _PATCH,
            # Where the projector looks for the tower's width.
            "model_args": {"embed_dim": _WIDTH},
        },
        vision_use_cls_token=True,
        projector_pooling_ratio=_POOLING,
        image_token_id=ids[_IMAGE],
        video_token_id=ids[_VIDEO],
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> PerceptionLMProcessor:
    return PerceptionLMProcessor(
        video_processor=PerceptionLMVideoProcessor(size={"height": _SIDE, "width": _SIDE}),
        image_processor=PerceptionLMImageProcessor(tile_size=_SIDE, max_num_tiles=6),
        tokenizer=tokenizer,
        patch_size=_PATCH,
        pooling_ratio=_POOLING,
        chat_template=chat_template(video=_VIDEO, image=_IMAGE),
    )


MINIATURE = Miniature(
    model_type="perception_lm",
    special_tokens=(_IMAGE, _VIDEO),
    config=_config,
    processor=_processor,
    model_class="PerceptionLMForConditionalGeneration",
    named={"image_token": _IMAGE, "video_token": _VIDEO},
)
