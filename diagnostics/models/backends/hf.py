"""Answers through transformers, in this process: greedy decoding after one prefill.

The prefill of the answer is the forward that hooks observe: nothing is run twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from diagnostics.data.items import Item
from diagnostics.models.loading import LoadedModel

__all__ = ["Reply", "answer"]


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the reply without special tokens.
        option_logits: logit of each option's letter as the first token of the reply; empty where the item has
            no options or a letter is not one token of this tokenizer.
        option_logprobs: the same as log-probabilities over the whole vocabulary.
        n_tokens: tokens generated.
        cut: it ended because it had as many tokens as it may have.
    """

    text: str
    option_logits: tuple[float, ...]
    option_logprobs: tuple[float, ...]
    n_tokens: int
    cut: bool


@torch.inference_mode()
def answer(loaded: LoadedModel, inputs: Any, item: Item, max_new_tokens: int) -> Reply:
    """Generate greedily from prepared inputs (one row, on the model's device)."""
    tokenizer = loaded.processor.tokenizer
    out: Any = loaded.model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    generated = out.sequences[0, inputs["input_ids"].shape[1] :]
    logits, logprobs = _options(tokenizer, item, out.logits[0][0])
    return Reply(
        text=tokenizer.decode(generated, skip_special_tokens=True).strip(),
        option_logits=logits,
        option_logprobs=logprobs,
        n_tokens=len(generated),
        cut=len(generated) == max_new_tokens and int(generated[-1]) not in _ends(loaded),
    )


def _ends(loaded: LoadedModel) -> set[int]:
    """Tokens after which generation stops."""
    ends = loaded.model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list | tuple) else {ends}


def _options(tokenizer: Any, item: Item, first: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    encoded = [tokenizer.encode(letter, add_special_tokens=False) for letter in item.letters]
    if not encoded or any(len(ids) != 1 for ids in encoded):
        return (), ()
    index = torch.tensor([ids[0] for ids in encoded], device=first.device)
    scores = first.float()
    logprobs = torch.log_softmax(scores, dim=-1)
    return tuple(scores[index].tolist()), tuple(logprobs[index].tolist())
