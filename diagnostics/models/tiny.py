"""The tiny model with random weights (`model=tiny_random`): a real Qwen3-VL, made on first use.

It is written to the cache as an ordinary checkpoint (configuration, safetensors, tokenizer, processor,
chat template) and loaded like any other, so that everything a real checkpoint goes through is gone
through. Its head dimension of 32 is the smallest that CPU kernels of vLLM accept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from diagnostics.models.made import made_once

__all__ = ["CHAT_TEMPLATE", "SPECIAL_TOKENS", "tiny_checkpoint", "tiny_processor", "tiny_tokenizer"]

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- else -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

_CORPUS = (
    "A full procedure is shown. What colour is the lesion that appears once in this video?",
    "Where in the picture does the lesion appear? How large is the lesion? In which phase is it seen?",
    "upper left upper right lower left lower right small medium large white yellow green blue purple dark",
    "first second third fourth phase minute seconds frame before after during which of the following",
    "Answer with the letter of the correct option only. A. B. C. D. The answer is",
    "0 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60 70 80 90 100 0.5 seconds 12.3 seconds <3.2 seconds>",
    "user assistant system question options answer video tissue instrument polyp bleeding surgery",
)
_VOCABULARY = 768
_MAX_POSITIONS = 65_536
_LAYERS = 4
_WIDTH = 96
_HEADS = 4
_KEY_VALUE_HEADS = 2
_HEAD_DIM = 32


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 768 entries with Qwen's special tokens; any text round-trips."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_start_token": "<|vision_start|>",
            "vision_end_token": "<|vision_end|>",
        },
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    """A Qwen3-VL of four narrow layers with grouped-query heads and DeepStack."""
    ids: dict[str, Any] = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    return Qwen3VLConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": _WIDTH,
            "intermediate_size": 2 * _WIDTH,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _KEY_VALUE_HEADS,
            "head_dim": _HEAD_DIM,
            "max_position_embeddings": _MAX_POSITIONS,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1_000_000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": _WIDTH,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )


def tiny_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLProcessor:
    """The real processor for frames of any size, with the pixel budget of the published checkpoints.

    Pictures have the published mean and deviation, not those of the class: vLLM takes them for videos too.
    """
    size: Any = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=False),
        chat_template=CHAT_TEMPLATE,
    )


def tiny_checkpoint(seed: int = 0) -> Path:
    """The folder of the tiny checkpoint, made if it is not in the cache yet.

    Two processes that ask at once make it once; a half-written folder is never seen.
    """
    tokenizer = tiny_tokenizer()
    config, processor = tiny_config(tokenizer), tiny_processor(tokenizer)
    recipe = {
        "config": config.to_dict(),
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "seed": seed,
        "template": CHAT_TEMPLATE,
        "processors": [processor.image_processor.to_dict(), processor.video_processor.to_dict()],
    }
    return made_once("tiny", recipe, lambda folder: _write(folder, processor, config, seed))


def _write(folder: Path, processor: Qwen3VLProcessor, config: Qwen3VLConfig, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config)
    text = config.get_text_config()
    model.generation_config.eos_token_id = text.eos_token_id
    model.generation_config.pad_token_id = text.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
