"""A tiny Qwen3-VL with experts: every layer sends a token to two of four."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3VLMoeConfig

from diagnostics.models.miniatures import qwen3_vl
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE"]


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLMoeConfig:
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return Qwen3VLMoeConfig(
        text_config=qwen3_vl.text_shape(tokenizer) | experts,
        vision_config=qwen3_vl.vision_shape() | {"deepstack_visual_indexes": [0, 1]},
        tie_word_embeddings=False,
        **qwen3_vl.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen3_vl_moe",
    special_tokens=qwen3_vl.SPECIAL,
    named=qwen3_vl.NAMED,
    config=_config,
    processor=qwen3_vl.processor,
    model_class="Qwen3VLMoeForConditionalGeneration",
)
