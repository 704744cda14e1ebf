"""What a miniature says of itself, and the tokenizer and chat template all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["Miniature", "chat_template", "make_tokenizer"]

_CORPUS = (
    "A full procedure is shown. What colour is the lesion that appears once in this video?",
    "upper left upper right lower left lower right small medium large white yellow green blue purple dark",
    "Answer with the letter of the correct option only. A. B. C. D. The answer is",
    "0 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60 70 80 90 100 0.5 seconds 12.3 seconds <3.2 seconds>",
    "Frame1: Frame12: Time 1.0s: Frame from 00:01:",
    "user assistant system question options answer video tissue instrument polyp bleeding surgery",
)
_VOCABULARY = 640


@dataclass(frozen=True)
class Miniature:
    """A tiny random model of a family's real class, with its real processor, made without a network.

    Attributes:
        model_type: the configuration's, and the file's name.
        special_tokens: control tokens of the family beside the shared ones.
        config: the model's configuration, given the tokenizer.
        processor: the processor, given the tokenizer.
        named: which special token the tokenizer holds under a name, such as `image_token`.
        model_class: transformers' class with the output head.
    """

    model_type: str
    special_tokens: Sequence[str]
    config: Callable[[PreTrainedTokenizerFast], Any]
    processor: Callable[[PreTrainedTokenizerFast], Any]
    model_class: str
    named: Mapping[str, str] = field(default_factory=dict)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The shared tokenizer with the family's control tokens."""
        return make_tokenizer(self.special_tokens, named=self.named)

    def make(self, seed: int = 0, attention: str = "sdpa") -> tuple[Any, Any]:
        """`(model, processor)`: random weights that depend on `seed` alone, in evaluation mode."""
        tokenizer = self.tokenizer()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(transformers, self.model_class)._from_config(
                self.config(tokenizer), attn_implementation=attention
            )
        return model.eval(), self.processor(tokenizer)


def make_tokenizer(
    special_tokens: Sequence[str], named: Mapping[str, str] | None = None
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of few entries with a family's control tokens; any text round-trips."""
    shared = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(dict.fromkeys([*shared, *special_tokens])),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=dict(named or {}),
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def chat_template(*, video: str, image: str, audio: str = "") -> str:
    """Turns between the shared control tokens, each part of a turn in its place.

    Args:
        video, image, audio: what the family's processor looks for where one of them is shown.
    """
    return (
        "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
        "{% if message.content is string -%}{{ message.content }}{%- else -%}"
        "{%- for part in message.content -%}"
        "{%- if part.type == 'video' -%}"
        + video
        + "{%- elif part.type == 'image' -%}"
        + image
        + "{%- elif part.type == 'audio' -%}"
        + audio
        + "{%- else -%}{{ part.text }}{%- endif -%}"
        "{%- endfor -%}{%- endif -%}<|im_end|>\n{% endfor -%}"
        "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
    )
