"""VideoLLaMA3: a unit of one frame, some of whose tokens are dropped; images are not merged, video is."""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    VideoLlama3Config,
    VideoLlama3ImageProcessor,
    VideoLlama3Processor,
    VideoLlama3VideoProcessor,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO = "<image>", "<video>"
_TOKEN = 28 * 28
"""Pixels behind one token of a video."""


def _config(tokenizer: PreTrainedTokenizerFast) -> VideoLlama3Config:
    ids: Any = tokenizer.convert_tokens_to_ids([_IMAGE, _VIDEO])
    return VideoLlama3Config(
        text_config={
            "model_type": "qwen2",
            "vocab_size": 640,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 65_536,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 14,
        },
        image_token_id=ids[0],
        video_token_id=ids[1],
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    return VideoLlama3Processor(
        image_processor=VideoLlama3ImageProcessor(
            size={"shortest_edge": 14 * 14, "longest_edge": 64 * 14 * 14}, merge_size=1
        ),
        tokenizer=tokenizer,
        # The upper limit is of all frames together: 1,024 tokens before any is dropped.
        video_processor=VideoLlama3VideoProcessor(
            size={"shortest_edge": _TOKEN, "longest_edge": 1024 * _TOKEN}, use_token_compression=True
        ),
        chat_template=chat_template(video=_VIDEO + "{{ '\\n' }}", image=_IMAGE + "{{ '\\n' }}"),
    )


MINIATURE = Miniature(
    model_type="video_llama_3",
    special_tokens=(_IMAGE, _VIDEO),
    config=_config,
    processor=_processor,
    model_class="VideoLlama3ForConditionalGeneration",
    named={"image_token": _IMAGE, "video_token": _VIDEO},
)
