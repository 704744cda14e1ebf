"""Qwen3-Omni's thinker in miniature: a mixture of experts, DeepStack, 13 audio tokens a second as published.

The talker, which turns the thinker's states into speech, is not part of it.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeProcessor,
    Qwen3OmniMoeThinkerConfig,
    WhisperFeatureExtractor,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_SPECIAL = (
    "<|audio_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)
_TEMPLATE = chat_template(
    video="<|vision_start|><|video_pad|><|vision_end|>",
    image="<|vision_start|><|image_pad|><|vision_end|>",
    audio="<|audio_start|><|audio_pad|><|audio_end|>",
)
_PIXELS = {"shortest_edge": 32 * 32, "longest_edge": 768 * 32 * 32}
_WIDTH, _MELS = 48, 16


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3OmniMoeThinkerConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in _SPECIAL}
    # The published configurations have these beside what the class knows.
    delimiters: dict[str, Any] = {
        "audio_end_token_id": ids["<|audio_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }
    return Qwen3OmniMoeThinkerConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": _WIDTH,
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 65_536,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": _WIDTH,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        audio_config={
            "num_mel_bins": _MELS,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "d_model": 32,
            "output_dim": _WIDTH,
            "downsample_hidden_size": 8,
        },
        audio_token_id=ids["<|audio_pad|>"],
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        audio_start_token_id=ids["<|audio_start|>"],
        position_id_per_seconds=13,
        tie_word_embeddings=False,
        **delimiters,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3OmniMoeProcessor:
    processor = Qwen3OmniMoeProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * 1280}
        ),
        video_processor=Qwen2VLVideoProcessor(patch_size=16, size=dict(_PIXELS), cap_pixels_per_frame=False),
        feature_extractor=WhisperFeatureExtractor(feature_size=_MELS),
        tokenizer=tokenizer,
        chat_template=_TEMPLATE,
    )
    # Of the class and not of the checkpoint, and it wins over the video processor's own: 128 tokens a frame.
    # Before 5.21 or so it is the class's alone and cannot be changed: frames are large there.
    if hasattr(processor, "videos_kwargs"):
        processor.videos_kwargs = {**processor.videos_kwargs, "size": dict(_PIXELS)}
    return processor


MINIATURE = Miniature(
    model_type="qwen3_omni_moe",
    special_tokens=_SPECIAL,
    config=_config,
    processor=_processor,
    model_class="Qwen3OmniMoeThinkerForConditionalGeneration",
    named={
        "audio_token": "<|audio_pad|>",
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
    },
)
