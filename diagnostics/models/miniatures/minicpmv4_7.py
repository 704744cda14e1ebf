"""MiniCPM-V 4.7: the layout of 4.6 on positions in two dimensions, videos without an id."""

from __future__ import annotations

from typing import Any

from transformers import MiniCPMV4_7Config, MiniCPMV4_7Processor, PreTrainedTokenizerFast

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


def _config(tokenizer: PreTrainedTokenizerFast) -> MiniCPMV4_7Config:
    ids = token_ids(tokenizer)
    (newline,) = tokenizer.encode("\n", add_special_tokens=False)
    return MiniCPMV4_7Config(
        text_config=text_config(tokenizer),
        vision_config=vision_config(),
        insert_layer_id=0,
        image_size=112,
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
        image_start_id=ids["image_start_token"],
        image_end_id=ids["image_end_token"],
        slice_start_id=ids["slice_start_token"],
        slice_end_id=ids["slice_end_token"],
        newline_id=newline,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    return MiniCPMV4_7Processor(**pictures(), tokenizer=tokenizer, chat_template=TEMPLATE)


MINIATURE = Miniature(
    model_type="minicpmv4_7",
    special_tokens=TOKENS,
    config=_config,
    processor=_processor,
    model_class="MiniCPMV4_7ForConditionalGeneration",
    named=NAMED,
)
