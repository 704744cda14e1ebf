"""Qwen2.5-Omni's thinker in miniature: sound and pictures in, text out; patches and audio as published.

The talker, which turns the thinker's states into speech, is not part of it.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5OmniProcessor,
    Qwen2_5OmniThinkerConfig,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    WhisperFeatureExtractor,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_SPECIAL = (
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
)
_TEMPLATE = chat_template(
    video="<|vision_bos|><|VIDEO|><|vision_eos|>",
    image="<|vision_bos|><|IMAGE|><|vision_eos|>",
    audio="<|audio_bos|><|AUDIO|><|audio_eos|>",
)
_PIXELS = {"shortest_edge": 28 * 28, "longest_edge": 768 * 28 * 28}
_WIDTH, _MELS = 64, 16


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5OmniThinkerConfig:
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in _SPECIAL}
    # The published configurations have these beside what the class knows.
    delimiters: dict[str, Any] = {
        "audio_end_token_id": ids["<|audio_eos|>"],
        "vision_start_token_id": ids["<|vision_bos|>"],
        "vision_end_token_id": ids["<|vision_eos|>"],
    }
    return Qwen2_5OmniThinkerConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": _WIDTH,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]},
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": _WIDTH,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        audio_config={
            "num_mel_bins": _MELS,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "d_model": 32,
            "output_dim": _WIDTH,
        },
        audio_token_index=ids["<|AUDIO|>"],
        image_token_index=ids["<|IMAGE|>"],
        video_token_index=ids["<|VIDEO|>"],
        audio_start_token_id=ids["<|audio_bos|>"],
        position_id_per_seconds=25,
        seconds_per_chunk=2,
        tie_word_embeddings=False,
        **delimiters,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5OmniProcessor:
    processor = Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(
            size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 1280}
        ),
        video_processor=Qwen2VLVideoProcessor(size=dict(_PIXELS), cap_pixels_per_frame=False),
        feature_extractor=WhisperFeatureExtractor(feature_size=_MELS, chunk_length=300),
        tokenizer=tokenizer,
        chat_template=_TEMPLATE,
    )
    # Of the class and not of the checkpoint, and it wins over the video processor's own: 128 tokens a frame.
    # Before 5.21 or so it is the class's alone and cannot be changed: frames are large there.
    if hasattr(processor, "videos_kwargs"):
        processor.videos_kwargs = {**processor.videos_kwargs, "size": dict(_PIXELS)}
    return processor


MINIATURE = Miniature(
    model_type="qwen2_5_omni",
    special_tokens=_SPECIAL,
    config=_config,
    processor=_processor,
    model_class="Qwen2_5OmniThinkerForConditionalGeneration",
    named={
        "audio_token": "<|AUDIO|>",
        "image_token": "<|IMAGE|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    },
)
