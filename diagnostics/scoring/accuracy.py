"""Right or wrong, by two rules that are never mixed.

The headline rule reads the reply (`letters`): no letter counts as wrong, and the rate of such replies
stands beside the accuracy. The second rule takes the option whose letter the model gave the highest
log-probability; it always has an answer, so its accuracy is another quantity with another name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.scoring.letters import extract_letter

__all__ = ["LOGPROB_RULE", "Accuracy", "Score", "accuracy", "score_logprobs", "score_reply"]

LOGPROB_RULE = "option_logprobs"


@dataclass(frozen=True, slots=True)
class Score:
    """One answer against its target.

    Attributes:
        answer: the option's letter, or None.
        rule: what found it, or why there is none.
        target: the right letter; None where the item has none (unlabelled, open-ended).
        correct: whether they agree; None where there is no target to agree with. An answer of None
            is wrong.
    """

    answer: str | None
    rule: str
    target: str | None
    correct: bool | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy of a set of scores.

    Attributes:
        accuracy: share correct, an answer of None counting as wrong; None where n is 0.
        none_rate: share of the n whose answer is None; None where n is 0.
        n: scores with a target.
    """

    accuracy: float | None
    none_rate: float | None
    n: int


def score_reply(item: Item, reply: str) -> Score:
    """The score of a free reply by the headline rule."""
    found = extract_letter(reply, item.options)
    return _score(item, found.letter, found.rule)


def score_logprobs(item: Item, option_logprobs: Mapping[str, float]) -> Score:
    """The score of the option with the highest log-probability, rule `option_logprobs`.

    A tie for the highest, or a value that is not a number, gives no answer (`option_logprobs_tie`,
    `option_logprobs_nan`).

    Args:
        item: with at least two options.
        option_logprobs: a natural log-probability for each of the item's letters.

    Raises:
        ValueError: the letters are not the item's.
    """
    if set(option_logprobs) != set(item.letters) or not item.letters:
        raise ValueError(f"log-probabilities of {sorted(option_logprobs)} for the options {item.letters}")
    if any(math.isnan(value) for value in option_logprobs.values()):
        return _score(item, None, f"{LOGPROB_RULE}_nan")
    highest = max(option_logprobs.values())
    best = [letter for letter, value in option_logprobs.items() if value == highest]
    return (
        _score(item, best[0], LOGPROB_RULE) if len(best) == 1 else _score(item, None, f"{LOGPROB_RULE}_tie")
    )


def accuracy(scores: Iterable[Score]) -> Accuracy:
    """Accuracy and rate of missing answers over the scores that have a target."""
    counted = [score for score in scores if score.correct is not None]
    n = len(counted)
    if n == 0:
        return Accuracy(None, None, 0)
    right = sum(score.correct is True for score in counted)
    missing = sum(score.answer is None for score in counted)
    return Accuracy(right / n, missing / n, n)


def _score(item: Item, answer: str | None, rule: str) -> Score:
    target = item.answer if item.options else None
    return Score(answer, rule, target, None if target is None else answer == target)
