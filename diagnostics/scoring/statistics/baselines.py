"""What accuracy is to be had without the video: baselines for every accuracy table.

Each gives the outcome of every item, so that a paired difference with the model can be taken. They differ in
what they may see, and say so: the constant letter is chosen on the very items it is scored on; the other two
learn from the items of other videos only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from diagnostics.data.items import Item, option_letter

__all__ = [
    "Baseline",
    "LetterBaseline",
    "constant_letter_baseline",
    "majority_text_baseline",
    "text_only_baseline",
]


@dataclass(frozen=True, eq=False)
class Baseline:
    """What a baseline scores on each item."""

    accuracy: float
    """Mean over the items that are defined; NaN without any."""
    correct: Float[np.ndarray, " item"]
    """Outcome of each item, in the order given. A fraction where options tie: the chance that one drawn among
    them is right. NaN for items without options or without a known right letter, and, where it learns, for
    those of a video with no other video to learn from."""
    n: int
    """Items that are defined."""
    n_undefined: int
    """Items that are not."""
    n_undecided: int
    """Items where options tied and nothing but chance was left."""


@dataclass(frozen=True, eq=False)
class LetterBaseline(Baseline):
    """Answering the same letter always."""

    letter: str | None
    """The best one; the first of those that tie; None without items."""
    by_letter: dict[str, float]
    """Accuracy of each letter."""


def constant_letter_baseline(items: Sequence[Item]) -> LetterBaseline:
    """The best constant letter, chosen on the items it is scored on.

    So it is the best that blind constancy could do, a little above what a letter chosen beforehand would
    get. An item that does not have the letter is wrong.
    """
    answers = [item.answer if _is_scored(item) else None for item in items]
    scored = np.asarray([answer is not None for answer in answers], dtype=bool)
    if not scored.any():
        return LetterBaseline(np.nan, np.full(len(items), np.nan), 0, len(items), 0, None, {})
    most = max(len(item.options) for item in items)
    right = Counter(answer for answer in answers if answer is not None)
    by_letter = {option_letter(p): right[option_letter(p)] / int(scored.sum()) for p in range(most)}
    letter = max(by_letter, key=lambda each: by_letter[each])
    correct = np.where(scored, [float(answer == letter) for answer in answers], np.nan)
    n = int(scored.sum())
    return LetterBaseline(by_letter[letter], correct, n, len(items) - n, 0, letter, by_letter)


def majority_text_baseline(items: Sequence[Item]) -> Baseline:
    """The option whose text is most often the right answer to the same task in other videos.

    One video is left out at a time, so it is no oracle. Texts are compared without case and spacing; a text
    that was never right counts 0, and options with equal counts share the answer.
    """
    everywhere: Counter[tuple[str, str]] = Counter()
    in_video: dict[str, Counter[tuple[str, str]]] = {}
    for item in items:
        if _is_scored(item):
            gold = (item.task, _plain(item.options[item.letters.index(item.answer or "")]))
            everywhere[gold] += 1
            in_video.setdefault(item.video_id, Counter())[gold] += 1
    scores: list[list[float] | None] = []
    for item in items:
        own = in_video.get(item.video_id, Counter())
        keys = [(item.task, _plain(option)) for option in item.options]
        known = _is_scored(item) and len(in_video) > 1
        scores.append([float(everywhere[key] - own[key]) for key in keys] if known else None)
    return _baseline(items, scores)


def text_only_baseline(items: Sequence[Item], *, n_folds: int = 5, regularisation: float = 1.0) -> Baseline:
    """A classifier of options that reads questions and options and sees nothing, cross-validated by video.

    Each option of each item is one example: TF-IDF of the option's words and word pairs, of the words
    of the question crossed with those of the option, its position, and whether it is the longest or the
    shortest; a logistic regression tells right options from wrong ones; the option with the highest score is
    the answer. What a video's own items could teach is never used on them.

    Args:
        items: to be scored; those without a known right letter are left out.
        n_folds: folds of videos, at most as many as there are videos.
        regularisation: scikit-learn's C of the logistic regression.

    Raises:
        ValueError: fewer than two folds.

    Source: ours; in the manner of hypothesis-only baselines (Gururangan et al., arXiv 1803.02324).
    """
    # Here, so that statistics without a classifier do not pay for the second that it takes to import.
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    if n_folds < 2:
        raise ValueError(f"cross-validation needs at least two folds, got {n_folds}")
    scores: list[list[float] | None] = [None] * len(items)
    examples = [
        (place, position)
        for place, item in enumerate(items)
        if _is_scored(item)
        for position in range(len(item.options))
    ]
    videos = [items[place].video_id for place, _ in examples]
    n_videos = len(set(videos))
    if n_videos > 1:
        texts = [list(_features(items[place], position)) for place, position in examples]
        right = np.asarray([items[place].answer == option_letter(position) for place, position in examples])
        for train, test in GroupKFold(min(n_folds, n_videos)).split(texts, right, videos):
            if len(set(right[train].tolist())) < 2:
                continue
            vectorizer = TfidfVectorizer(analyzer=_as_they_are, min_df=1, sublinear_tf=True)
            classifier = LogisticRegression(C=regularisation, max_iter=1000)
            classifier.fit(vectorizer.fit_transform([texts[row] for row in train]), right[train])
            found = classifier.decision_function(vectorizer.transform([texts[row] for row in test]))
            for row, score in zip(test.tolist(), found.tolist(), strict=True):
                place, position = examples[row]
                options = scores[place]
                if options is None:
                    options = scores[place] = [np.nan] * len(items[place].options)
                options[position] = score
    return _baseline(items, scores)


def _is_scored(item: Item) -> bool:
    return bool(item.options) and item.answer in item.letters


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _as_they_are(tokens: list[str]) -> list[str]:
    return tokens


def _features(item: Item, position: int) -> Iterator[str]:
    """The tokens of one option; a kind in front keeps those of different kinds apart."""
    option = _words(item.options[position])
    lengths = [len(_plain(text)) for text in item.options]
    yield f"position {position}"
    if lengths[position] == max(lengths) > min(lengths):
        yield "longest"
    if lengths[position] == min(lengths) < max(lengths):
        yield "shortest"
    yield f"whole {_plain(item.options[position])}"
    yield from (f"word {word}" for word in option)
    yield from (f"pair {first} {second}" for first, second in pairwise(option))
    question = sorted(set(_words(item.question)))
    yield from (f"cross {asked} {word}" for asked in question for word in dict.fromkeys(option))


def _baseline(items: Sequence[Item], scores: Sequence[list[float] | None]) -> Baseline:
    """Outcomes from a score for each option: the highest is the answer, and those that tie share it."""
    correct = np.full(len(items), np.nan)
    undecided = 0
    for place, (item, options) in enumerate(zip(items, scores, strict=True)):
        if options is None:
            continue
        values = np.asarray(options)
        best = np.flatnonzero(values >= values.max() - 1e-9)
        undecided += len(best) > 1
        correct[place] = float(item.letters.index(item.answer or "") in best) / len(best)
    defined = ~np.isnan(correct)
    n = int(defined.sum())
    mean = float(correct[defined].mean()) if n else np.nan
    return Baseline(mean, correct, n, len(items) - n, undecided)
