"""What a reply leaves in a record, whichever engine gave it."""

from __future__ import annotations

from typing import Any

from diagnostics.data.items import Item
from diagnostics.models.backends.requests import Reply
from diagnostics.scoring.accuracy import score_logprobs, score_reply
from diagnostics.scoring.letters import EXTRACTOR_VERSION

__all__ = ["answer_fields", "choice_measure"]


def answer_fields(item: Item, reply: Reply) -> dict[str, Any]:
    """The letter, where the item has options; an open-ended reply is kept and not judged here."""
    fields: dict[str, Any] = {
        "raw": reply.text,
        "option_logprobs": dict(zip(item.letters, reply.option_logprobs, strict=False)),
    }
    if item.options:
        score = score_reply(item, reply.text)
        fields |= {"answer": score.answer, "rule": score.rule, "correct": score.correct}
        fields["extractor"] = EXTRACTOR_VERSION
    return fields


def choice_measure(item: Item, reply: Reply) -> dict[str, float]:
    """Whether the option with the likeliest letter is right: beside accuracy, never in place of it."""
    if not reply.option_logprobs or item.answer is None:
        return {}
    chosen = score_logprobs(item, dict(zip(item.letters, reply.option_logprobs, strict=True)))
    return {"choice_accuracy": float(bool(chosen.correct))}
