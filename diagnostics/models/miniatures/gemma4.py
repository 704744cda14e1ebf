"""A tiny Gemma 4 as its small checkpoints are: sliding windows, shared keys and values, per-layer embeddings.

The processor scales every frame up or down to at most 70 tokens, the least it takes: small pictures do not
make a short prompt here.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ImageProcessor,
    Gemma4Processor,
    Gemma4VideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_SPECIAL = {
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "image_token": "<|image|>",
    "video_token": "<|video|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "audio_token": "<|audio|>",
}


def _processor(tokenizer: PreTrainedTokenizerFast) -> Gemma4Processor:
    return Gemma4Processor(
        feature_extractor=Gemma4AudioFeatureExtractor(),
        image_processor=Gemma4ImageProcessor(max_soft_tokens=70),
        video_processor=Gemma4VideoProcessor(),
        tokenizer=tokenizer,
        image_seq_length=70,
        chat_template=chat_template(video="<|video|>", image="<|image|>"),
    )


def _config(tokenizer: PreTrainedTokenizerFast) -> Gemma4Config:
    ids: dict[str, Any] = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _SPECIAL.items()}
    vocabulary = -(-len(tokenizer) // 64) * 64
    return Gemma4Config(
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 5,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "global_head_dim": 32,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
                "full_attention",
            ],
            "sliding_window": 512,
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": vocabulary,
            "hidden_size_per_layer_input": 8,
            "max_position_embeddings": 65_536,
            "final_logit_softcapping": 30.0,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "pooling_kernel_size": 3,
            "patch_size": 16,
            "position_embedding_size": 1_024,
        },
        audio_config=None,
        boi_token_id=ids["boi_token"],
        eoi_token_id=ids["eoi_token"],
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
        boa_token_id=ids["boa_token"],
        eoa_token_index=ids["eoa_token"],
        audio_token_id=ids["audio_token"],
        tie_word_embeddings=True,
    )


MINIATURE = Miniature(
    model_type="gemma4",
    special_tokens=tuple(_SPECIAL.values()),
    named=_SPECIAL,
    config=_config,
    processor=_processor,
    model_class="Gemma4ForConditionalGeneration",
)
