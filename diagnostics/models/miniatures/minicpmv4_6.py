"""MiniCPM-V 4.6: plain positions, no time in the prompt, every visual counted by an id."""

from __future__ import annotations

from typing import Any

from transformers import MiniCPMV4_6Config, MiniCPMV4_6Processor, PreTrainedTokenizerFast

from diagnostics.models.miniatures._miniature import Miniature
from diagnostics.models.miniatures._minicpm import (
    NAMED,
    TEMPLATE,
    TOKENS,
    pictures,
    text_config,
    token_ids,
    vision_config,
)

__all__ = ["MINIATURE"]


def _config(tokenizer: PreTrainedTokenizerFast) -> MiniCPMV4_6Config:
    ids = token_ids(tokenizer)
    return MiniCPMV4_6Config(
        text_config=text_config(tokenizer),
        vision_config=vision_config(),
        insert_layer_id=0,
        image_size=112,
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    return MiniCPMV4_6Processor(**pictures(), tokenizer=tokenizer, chat_template=TEMPLATE)


MINIATURE = Miniature(
    model_type="minicpmv4_6",
    special_tokens=TOKENS,
    config=_config,
    processor=_processor,
    model_class="MiniCPMV4_6ForConditionalGeneration",
    named=NAMED,
)
