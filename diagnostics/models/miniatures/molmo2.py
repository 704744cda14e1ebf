"""Molmo2: frames of nine pooled tokens behind their times; images at low and at high resolution."""

from __future__ import annotations

from typing import Any

from transformers import (
    Molmo2Config,
    Molmo2ImageProcessor,
    Molmo2Processor,
    Molmo2VideoProcessor,
    PreTrainedTokenizerFast,
)

from diagnostics.models.miniatures._miniature import Miniature, chat_template

__all__ = ["MINIATURE"]

_IMAGE, _VIDEO = "<|image|>", "<|video|>"
_MARKS = {
    "image_patch_id": "<im_patch>",
    "image_start_token_id": "<im_start>",
    "image_end_token_id": "<im_end>",
    "low_res_image_start_token_id": "<low_res_im_start>",
    "frame_start_token_id": "<frame_start>",
    "frame_end_token_id": "<frame_end>",
}
_SIDE = 126
"""Pixels of a crop's side: 9 patches, 3 pooled tokens of a frame and 5 of an image; of checkpoints 378."""
_SPREAD = 0.1
"""Of random weights around pictures: features are added to the placeholders' own embeddings, in which those
of five times smaller weights, in so narrow layers, would be lost to rounding."""


def _config(tokenizer: PreTrainedTokenizerFast) -> Molmo2Config:
    marks: dict[str, Any] = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _MARKS.items()}
    return Molmo2Config(
        text_config={
            "vocab_size": 640,
            # The checkpoints' marks live in this second table: embedded, never predicted.
            "additional_vocab_size": 32,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 65_536,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "image_size": [_SIDE, _SIDE],
            "patch_size": 14,
            "initializer_range": _SPREAD,
        },
        adapter_config={
            "vision_feature_layer": [1, 0],
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 64,
            "text_hidden_size": 64,
            "initializer_range": _SPREAD,
        },
        **marks,
        tie_word_embeddings=False,
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    size = {"height": _SIDE, "width": _SIDE}
    return Molmo2Processor(
        image_processor=Molmo2ImageProcessor(size=size, max_crops=4, overlap_margins=[1, 1]),
        # Off in the class, on in the checkpoints.
        video_processor=Molmo2VideoProcessor(size=size, do_rescale=True, do_normalize=True),
        tokenizer=tokenizer,
        # As in the checkpoints: rows of the low resolution end without a mark.
        use_single_crop_col_tokens=False,
        chat_template=chat_template(video=_VIDEO, image=_IMAGE),
    )


MINIATURE = Miniature(
    model_type="molmo2",
    special_tokens=(_IMAGE, _VIDEO, *_MARKS.values(), "<im_col>", "<im_low>"),
    config=_config,
    processor=_processor,
    model_class="Molmo2ForConditionalGeneration",
    named={"image_token": _IMAGE, "video_token": _VIDEO},
)
