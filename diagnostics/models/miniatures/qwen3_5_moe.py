"""A tiny Qwen3.5 with experts and a shared one."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast, Qwen3_5MoeConfig

from diagnostics.models.miniatures import qwen3_5, qwen3_vl
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE"]


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3_5MoeConfig:
    text = qwen3_5.hybrid_shape(tokenizer) | {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
    del text["intermediate_size"]
    return Qwen3_5MoeConfig(
        text_config=text,
        vision_config=qwen3_vl.vision_shape(),
        tie_word_embeddings=False,
        **qwen3_vl.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen3_5_moe",
    special_tokens=qwen3_vl.SPECIAL,
    named=qwen3_vl.NAMED,
    config=_config,
    processor=qwen3_vl.processor,
    model_class="Qwen3_5MoeForConditionalGeneration",
)
