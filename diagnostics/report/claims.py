"""Sentences made from numbers: which run has more of something, and whether the intervals say so.

A sentence claims that intervals are apart only where they are; the words follow the numbers and have no
opinion of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from diagnostics.report.curves import has_interval, is_defined
from diagnostics.store import Metric

__all__ = ["Separation", "claims", "separation"]

Separation = Literal["apart", "overlap", "unknown"]
"""Whether two 95% intervals have no value in common; unknown where one of them is missing."""

_SAID: Mapping[Separation, str] = {
    "apart": "with 95% intervals apart",
    "overlap": "but the 95% intervals overlap",
    "unknown": "but without two intervals nobody can say how sure that is",
}


def separation(first: Metric, second: Metric) -> Separation:
    """How the intervals of two means lie to each other; touching ends are an overlap."""
    ends = (first.ci_low, first.ci_high, second.ci_low, second.ci_high)
    if not (has_interval(first) and has_interval(second)) or any(end is None for end in ends):
        return "unknown"
    first_low, first_high, second_low, second_high = (float(end) for end in ends if end is not None)
    return "apart" if first_high < second_low or second_high < first_low else "overlap"


def claims(names: Sequence[str], measures: Mapping[str, Sequence[Metric]]) -> list[str]:
    """What the means of several runs say of each other, measure by measure.

    Two runs: which is higher, measures of which the same can be said in one sentence. More: the highest
    and the lowest. Each mean stands with its interval.

    Args:
        names: of the runs, at least two.
        measures: by the measure's name in words, its mean in each run.
    """
    groups: dict[tuple[int, int, Separation], list[tuple[str, Metric, Metric]]] = {}
    sentences = []
    for words, metrics in measures.items():
        undefined = [name for name, m in zip(names, metrics, strict=True) if not is_defined(m)]
        if undefined:
            sentences.append(f"{_capital(words)} is undefined on {_list(undefined)}.")
            continue
        means = [float(metric.mean) for metric in metrics if metric.mean is not None]
        top, bottom = means.index(max(means)), means.index(min(means))
        if means[top] == means[bottom]:
            sentences.append(f"{_capital(words)} is {_number(means[top])} on all of {_list(names)}.")
            continue
        said = separation(metrics[top], metrics[bottom])
        groups.setdefault((top, bottom, said), []).append((words, metrics[top], metrics[bottom]))
    told = [
        _sentence(names[top], names[bottom], said, found, several=len(names) > 2)
        for (top, bottom, said), found in groups.items()
    ]
    return [*told, *sentences]


def _sentence(
    top: str,
    bottom: str,
    said: Separation,
    found: Sequence[tuple[str, Metric, Metric]],
    *,
    several: bool,
) -> str:
    verb = "is" if len(found) == 1 else "are"
    order = f"highest on {top} and lowest on {bottom}" if several else f"higher on {top} than on {bottom}"
    numbers = "; ".join(f"{words} {_told(high)} against {_told(low)}" for words, high, low in found)
    subject = _capital(_list([words for words, _, _ in found]))
    return f"{subject} {verb} {order}, {_SAID[said]} ({numbers})."


def _told(metric: Metric) -> str:
    """A mean with its interval in brackets: `0.734 [0.630, 0.829]`."""
    if metric.mean is None:
        return "undefined"
    if metric.ci_low is None or metric.ci_high is None or not has_interval(metric):
        return _number(metric.mean)
    return f"{_number(metric.mean)} [{_number(metric.ci_low)}, {_number(metric.ci_high)}]"


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _list(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
