"""A tiny GLM-4.5V: GLM-4.1V's processor, experts from the second layer on."""

from __future__ import annotations

from typing import Any

from transformers import Glm4vMoeConfig, PreTrainedTokenizerFast

from diagnostics.models.miniatures import glm4v
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE"]


def _config(tokenizer: PreTrainedTokenizerFast) -> Glm4vMoeConfig:
    experts: dict[str, Any] = {
        "head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    }
    return Glm4vMoeConfig(
        text_config=glm4v.text_shape(tokenizer) | experts,
        vision_config=glm4v.vision_shape(),
        tie_word_embeddings=False,
        **glm4v.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="glm4v_moe",
    special_tokens=glm4v.SPECIAL,
    named=glm4v.NAMED,
    config=_config,
    processor=glm4v.MINIATURE.processor,
    model_class="Glm4vMoeForConditionalGeneration",
)
