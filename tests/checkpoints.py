"""Small checkpoints of the real architectures, written and loaded as a person's own would be.

Random weights, a byte-level tokenizer, and everything a checkpoint comes with: safetensors, processor,
chat template, generation settings that sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from diagnostics.models.tiny import CHAT_TEMPLATE, tiny_tokenizer

__all__ = ["QWEN2_5_PIXELS", "QWEN3_PIXELS", "qwen2_5_checkpoint", "qwen3_checkpoint", "rope"]

QWEN3_PIXELS = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
"""The published limits: pixels over time, height and width."""
QWEN2_5_PIXELS = {"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28}
"""The published limits: pixels of one frame."""


def rope(*sections: int, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections), **more}


def _ids(tokenizer: Any) -> dict[str, Any]:
    return {
        "image_token_id": tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        "tie_word_embeddings": False,
    }


def _text(tokenizer: Any, **shape: Any) -> dict[str, Any]:
    return {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        **shape,
    }


def _sharpen(model: Any) -> None:
    """Far from uniform attention and from uniform answers: a random tiny model shows neither."""
    with torch.no_grad():
        for layer in model.model.language_model.layers:
            layer.self_attn.q_proj.weight.mul_(8.0)
            layer.self_attn.k_proj.weight.mul_(8.0)
        model.lm_head.weight.mul_(20.0)


def _save(folder: Path, model: Any, processor: Any) -> Path:
    _sharpen(model)
    text = model.config.get_text_config()
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
        repetition_penalty=1.05,
        eos_token_id=[text.eos_token_id, text.pad_token_id],
        pad_token_id=text.pad_token_id,
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def qwen3_checkpoint(
    folder: Path,
    tokenizer: Any | None = None,
    template: str = CHAT_TEMPLATE,
    seed: int = 1,
    **text: Any,
) -> Path:
    """A Qwen3-VL: five layers, six query heads on two key/value heads, DeepStack after two layers."""
    tokenizer = tokenizer or tiny_tokenizer()
    shape: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 262_144,
        "rope_parameters": rope(4, 2, 2, mrope_interleaved=True),
        **text,
    }
    config = Qwen3VLConfig(
        text_config=_text(tokenizer, **shape),
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": shape["hidden_size"],
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        },
        **_ids(tokenizer),
    )
    torch.manual_seed(seed)
    processor = Qwen3VLProcessor(
        # The published checkpoints' mean and deviation, not the class's own: vLLM takes them for videos too.
        image_processor=Qwen2VLImageProcessor(
            patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=QWEN3_PIXELS),
        chat_template=template,
    )
    return _save(folder, Qwen3VLForConditionalGeneration(config), processor)


def qwen2_5_checkpoint(
    folder: Path, tokenizer: PreTrainedTokenizerFast | None = None, tokens_per_second: int = 2, seed: int = 1
) -> Path:
    """A Qwen2.5-VL: three layers, eight query heads on two key/value heads, windowed vision attention."""
    tokenizer = tokenizer or tiny_tokenizer()
    config = Qwen2_5_VLConfig(
        text_config=_text(
            tokenizer,
            hidden_size=128,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=8,
            num_key_value_heads=2,
            max_position_embeddings=128_000,
            rope_parameters=rope(4, 2, 2),
        ),
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 128,
            "window_size": 56,
            "fullatt_block_indexes": [1],
            "tokens_per_second": tokens_per_second,
        },
        **_ids(tokenizer),
    )
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**shape),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**shape, size=QWEN2_5_PIXELS),
        chat_template=CHAT_TEMPLATE,
    )
    return _save(folder, Qwen2_5_VLForConditionalGeneration(config), processor)
