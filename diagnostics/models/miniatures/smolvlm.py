"""SmolVLM2: each frame a square of nine tokens behind a clock time; images in tiles and as a whole."""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO, _GLOBAL = "<image>", "<video>", "<global-img>"
_FAKE, _END = "<fake_token_around_image>", "<end_of_utterance>"
_TILES = tuple(f"<row_{row}_col_{col}>" for row in range(1, 5) for col in range(1, 5))
_SIDE, _PATCH = 84, 9
"""Pixels of a tile's side: 9 patches and three pixels that no patch sees, as 384 is 27 of 14 and six. As many
tokens as pixels of a patch, because transformers up to 5.20 counts tokens off by that number."""


def _config(tokenizer: PreTrainedTokenizerFast) -> SmolVLMConfig:
    image: Any = tokenizer.convert_tokens_to_ids(_IMAGE)
    return SmolVLMConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 640,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 65_536,
            "bos_token_id": None,
            "eos_token_id": tokenizer.convert_tokens_to_ids(_END),
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": _PATCH,
        },
        image_token_id=image,
        scale_factor=3,
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    sizes: dict[str, Any] = {"size": {"longest_edge": 2 * _SIDE}, "max_image_size": {"longest_edge": _SIDE}}
    return SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(**sizes, num_frames=64, fps=1),
        image_seq_len=9,
        chat_template=chat_template(video=_VIDEO, image=_IMAGE),
    )


MINIATURE = Miniature(
    model_type="smolvlm",
    special_tokens=(_FAKE, _GLOBAL, _IMAGE, _VIDEO, _END, *_TILES),
    config=_config,
    processor=_processor,
    model_class="SmolVLMForConditionalGeneration",
    named={
        "image_token": _IMAGE,
        "video_token": _VIDEO,
        "fake_image_token": _FAKE,
        "global_image_token": _GLOBAL,
        "end_of_utterance_token": _END,
    },
)
