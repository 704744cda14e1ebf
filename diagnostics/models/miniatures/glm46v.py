"""A tiny GLM-4.6V: GLM-4.1V's model under a processor that writes tenths of a second."""

from __future__ import annotations

from typing import Any

from transformers import (
    Glm46VConfig,
    Glm46VImageProcessor,
    Glm46VProcessor,
    Glm46VVideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures import glm4v
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE"]


def _processor(tokenizer: PreTrainedTokenizerFast) -> Glm46VProcessor:
    video: Any = {"shortest_edge": 1_568, "longest_edge": 47_040_000}
    image: Any = {"shortest_edge": 784, "longest_edge": 9_633_792}
    return Glm46VProcessor(
        image_processor=Glm46VImageProcessor(size=image, **glm4v.SIZES),
        video_processor=Glm46VVideoProcessor(size=video, **glm4v.SIZES),
        tokenizer=tokenizer,
        chat_template=glm4v.TEMPLATE,
    )


def _config(tokenizer: PreTrainedTokenizerFast) -> Glm46VConfig:
    return Glm46VConfig(
        text_config={"model_type": "glm4v_text", **glm4v.text_shape(tokenizer)},
        vision_config={"model_type": "glm4v_vision", **glm4v.vision_shape()},
        tie_word_embeddings=False,
        **glm4v.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="glm46v",
    special_tokens=glm4v.SPECIAL,
    named=glm4v.NAMED,
    config=_config,
    processor=_processor,
    model_class="Glm46VForConditionalGeneration",
)
