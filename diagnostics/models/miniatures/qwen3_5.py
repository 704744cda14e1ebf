"""A tiny Qwen3.5: linear and full attention by turns, Qwen3-VL's processor, no DeepStack.

Published checkpoints have one layer of full attention in four; here it is one in two, so that four layers
hold two of each.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3_5Config

from diagnostics.models.miniatures import qwen3_vl
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE", "hybrid_shape"]


def hybrid_shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The language model: four layers, the second and the fourth with full attention."""
    return qwen3_vl.text_shape(tokenizer) | {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3_5Config:
    return Qwen3_5Config(
        text_config=hybrid_shape(tokenizer),
        vision_config=qwen3_vl.vision_shape(),
        tie_word_embeddings=False,
        **qwen3_vl.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen3_5",
    special_tokens=qwen3_vl.SPECIAL,
    named=qwen3_vl.NAMED,
    config=_config,
    processor=qwen3_vl.processor,
    model_class="Qwen3_5ForConditionalGeneration",
)
