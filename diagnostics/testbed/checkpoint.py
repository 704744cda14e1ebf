"""The model that is trained, its tokenizer and processor, and the checkpoint they make.

The architecture is that of `diagnostics.models.tiny`; the tokenizer is byte-level BPE too, trained on
the words of MiniHorizon, so that every answer but the places is one token, and so is every number
below one hundred.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)

from diagnostics.data.minihorizon.inquiry import COUNTS
from diagnostics.data.minihorizon.plan import LESION_COLOURS, PLACES
from diagnostics.data.minihorizon.procedure import INSTRUMENTS, LESION_SIZES, PHASES, STEPS
from diagnostics.models.tiny import SPECIAL_TOKENS, tiny_config, tiny_processor

__all__ = ["LABELS", "new_model", "processor", "save"]

LABELS: dict[str, tuple[str, ...]] = {
    "Hist": tuple(LESION_COLOURS),
    "Size": tuple(LESION_SIZES),
    "Site": tuple(PLACES),
    "RSR": STEPS,
    "PR": tuple(PHASES),
    "IR": tuple(INSTRUMENTS),
    "LLS": tuple(LESION_COLOURS),
    "CPR": COUNTS,
    "LA": COUNTS,
}
"""The label space of each task's answers."""

_SENTENCES = (
    "Answer with the letter of the correct option only.",
    "A lesion appears once in this procedure. "
    "What colour is it? How large is it? Where in the picture is it?",
    "What colour is the lesion? How large is the lesion? Where is the lesion? "
    "What is the colour of the largest",
    "Which of these steps is carried out first: or? How many separate times is the step carried out? It is",
    "Which phase is under way between 0:00:01 and 0:01:00? "
    "How many lesions are seen in the whole examination?",
    "Which instrument is in use when the phase first begins? seconds> user assistant system question options",
    "In which part of the picture is it? How wide is it, compared with the picture? "
    "one eighth fifth third half",
    "What colour is the tissue around it? pale pink salmon orange brownish tan mauve red white first second",
    "In which quarter of the video is it seen? last quarter "
    "A. B. C. D. E. F. tissue minute frame The answer is",
)
_VOCABULARY = 768
_SPECIALS_OF_QWEN = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    labels = sorted({word for space in LABELS.values() for label in space for word in label.split()})
    numbers = [str(number) for number in range(100)] + [f"{number:02}" for number in range(10)]
    words = [*labels, *(f" {label}" for label in labels), *numbers]
    corpus = [word for word in words for _ in range(50)] + [
        word for sentence in _SENTENCES for word in (f" {sentence}", sentence) for _ in range(20)
    ]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=_VOCABULARY,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=_SPECIALS_OF_QWEN,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


@cache
def processor() -> Qwen3VLProcessor:
    """The real processor, with the tokenizer and the chat template of the testbed."""
    return tiny_processor(_tokenizer())


def new_model(seed: int) -> Qwen3VLForConditionalGeneration:
    """A model with random weights: the same for the same seed and version of torch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3VLForConditionalGeneration(tiny_config(_tokenizer()))


def save(folder: Path, model: Qwen3VLForConditionalGeneration) -> None:
    """Write weights (safetensors, float32), configuration, tokenizer and processor into `folder`."""
    text = model.config.get_text_config()
    model.generation_config.eos_token_id = text.eos_token_id
    model.generation_config.pad_token_id = text.pad_token_id
    model.save_pretrained(folder)
    processor().save_pretrained(folder)
