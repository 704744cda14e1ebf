"""A tiny Qwen2-VL: one run of tokens a video, plain attention in the vision tower, no clock."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLProcessor

from diagnostics.models.miniatures import qwen2_5_vl, qwen3_vl
from diagnostics.models.miniatures._miniature import Miniature

__all__ = ["MINIATURE"]


def _processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLProcessor:
    return Qwen2VLProcessor(**qwen2_5_vl.processors(tokenizer))


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    return Qwen2VLConfig(
        text_config=qwen2_5_vl.text_shape(tokenizer),
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 64,
            "mlp_ratio": 2,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        tie_word_embeddings=False,
        **qwen3_vl.placeholder_ids(tokenizer),
    )


MINIATURE = Miniature(
    model_type="qwen2_vl",
    special_tokens=qwen3_vl.SPECIAL,
    named=qwen3_vl.NAMED,
    config=_config,
    processor=_processor,
    model_class="Qwen2VLForConditionalGeneration",
)
