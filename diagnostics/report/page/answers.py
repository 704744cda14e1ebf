"""The question of an experiment, and what its numbers say to it.

The question is the first paragraph of the experiment's own module. The answer is made of sentences with
numbers in them; each claims a difference only where an interval lies clear of what it is held against.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from diagnostics.report.claims import separation
from diagnostics.report.closing import number
from diagnostics.report.curves import UNDEFINED, has_interval, is_defined
from diagnostics.store import Metric, Summary

__all__ = ["answer_of", "defined_in", "in_words", "question_of", "source_of", "told"]

_AT_MOST = 4
"""Sentences of an answer: more is a table."""

Metrics = Mapping[str, Metric]
Sentence = Callable[[Metrics], str | None]


def question_of(experiment: str) -> str:
    """The first paragraph of the experiment's module; empty where there is no such module.

    The source is read, not imported: experiments import torch.
    """
    source = source_of(experiment)
    if source is None:
        return ""
    words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split())


def source_of(experiment: str) -> Path | None:
    """The file of an experiment's module; None where this version has none of that name."""
    dotted = experiment if "." in experiment else f"diagnostics.experiments.{experiment}"
    if not all(part.isidentifier() for part in dotted.split(".")):
        return None
    try:
        spec = find_spec(dotted)
    except ModuleNotFoundError:  # a package on the way is not installed here
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def defined_in(source: Path) -> set[str]:
    """The functions that a module defines."""
    body = ast.parse(source.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def answer_of(summary: Summary) -> list[str]:
    """What the numbers say, in sentences; empty where no number is defined."""
    metrics = summary.metrics
    sentences = [sentence(metrics) for sentence in _SENTENCES.get(summary.experiment, ())]
    said = [sentence for sentence in sentences if sentence is not None]
    if said:
        return said[:_AT_MOST]
    differences = [name for name in metrics if "_less_" in name]
    plain = [differs(name)(metrics) for name in differences] or [states(name)(metrics) for name in metrics]
    return [sentence for sentence in plain if sentence is not None][:_AT_MOST]


def in_words(measure: str) -> str:
    """A measure's name as words: `evidence_log_lift` as `evidence log lift`."""
    return measure.replace("_", " ").replace("@", " at ")


def told(metric: Metric) -> str:
    """A mean with its interval: `0.734 (95% interval 0.63 to 0.83, n = 24)`."""
    if metric.mean is None or not is_defined(metric):
        return f"undefined (n = {metric.n})"
    if metric.ci_low is None or metric.ci_high is None or not has_interval(metric):
        return f"{number(metric.mean)} (no interval, n = {metric.n})"
    low, high = number(metric.ci_low), number(metric.ci_high)
    return f"{number(metric.mean)} (95% interval {low} to {high}, n = {metric.n})"


# -- kinds of sentences


def states(name: str, words: str | None = None) -> Sentence:
    """The number, and nothing about it."""

    def sentence(metrics: Metrics) -> str | None:
        metric = metrics.get(name, UNDEFINED)
        return f"{_capital(words or in_words(name))}: {told(metric)}." if is_defined(metric) else None

    return sentence


def against(
    name: str, reference: float, above: str, below: str, unclear: str, *, named: bool = True
) -> Sentence:
    """Whether a measure lies above or below a number, by its interval; `named`: the words do not name it."""

    def sentence(metrics: Metrics) -> str | None:
        metric = metrics.get(name, UNDEFINED)
        if not is_defined(metric):
            return None
        words = unclear
        if metric.ci_low is not None and metric.ci_high is not None and has_interval(metric):
            words = above if metric.ci_low > reference else below if metric.ci_high < reference else unclear
        measure = f"{in_words(name)} " if named else ""
        return f"{_capital(words)}: {measure}{told(metric)}."

    return sentence


def differs(name: str, words: str | None = None) -> Sentence:
    """Whether a difference is above or below zero."""
    subject = words or in_words(name)
    return against(
        name,
        0.0,
        f"{subject} is above zero",
        f"{subject} is below zero",
        f"{subject} cannot be told from zero",
        named=False,
    )


def held_against(first: str, second: str, words: str, other: str) -> Sentence:
    """One measure beside another of the same kind."""

    def sentence(metrics: Metrics) -> str | None:
        one, two = metrics.get(first, UNDEFINED), metrics.get(second, UNDEFINED)
        if not (is_defined(one) and is_defined(two)) or one.mean is None or two.mean is None:
            return None
        apart = {
            "apart": "with 95% intervals apart",
            "overlap": "with 95% intervals that overlap",
            "unknown": "and without two intervals nobody can say how sure that is",
        }[separation(one, two)]
        order = "more than" if one.mean > two.mean else "less than" if one.mean < two.mean else "as much as"
        return f"{_capital(words)}: {told(one)}, {order} {other}, {told(two)}, {apart}."

    return sentence


def largest(prefix: str, words: str, *, without: Sequence[str] = ()) -> Sentence:
    """Which of several measures is largest, and which smallest."""

    def sentence(metrics: Metrics) -> str | None:
        found = {
            name.removeprefix(prefix): metric
            for name, metric in metrics.items()
            if name.startswith(prefix) and name not in without and is_defined(metric)
        }
        if len(found) < 2:
            return None
        ranked = sorted(found, key=lambda name: -(found[name].mean or 0.0))
        top, bottom = ranked[0], ranked[-1]
        return (
            f"{_capital(words)} is largest for {in_words(top)}, {told(found[top])}, "
            f"and smallest for {in_words(bottom)}, {told(found[bottom])}."
        )

    return sentence


def each(prefix: str, words: str) -> Sentence:
    """Several measures beside each other, in their order."""

    def sentence(metrics: Metrics) -> str | None:
        found = [
            f"{in_words(name.removeprefix(prefix))}, {told(metric)}"
            for name, metric in metrics.items()
            if name.startswith(prefix) and is_defined(metric)
        ]
        return f"{_capital(words)}: {'; '.join(found)}." if found else None

    return sentence


def one_of(names: Sequence[str], words: str) -> Sentence:
    """Which of several shares is the largest."""

    def sentence(metrics: Metrics) -> str | None:
        found = {name: metrics[name] for name in names if is_defined(metrics.get(name, UNDEFINED))}
        if not found:
            return None
        top = max(found, key=lambda name: found[name].mean or 0.0)
        return f"{_capital(words)} is {in_words(top)}: {told(found[top])}."

    return sentence


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_ACCURACY = states("accuracy", "share of questions answered right")

_SENTENCES: Mapping[str, Sequence[Sentence]] = {
    "attention_drift": (
        against(
            "evidence_log_lift",
            0.0,
            "the evidence gets more attention than its share of the video",
            "the evidence gets less attention than its share of the video",
            "attention on the evidence cannot be told from its share of the video",
        ),
        held_against(
            "unit_fraction_90",
            "unit_fraction_90_position_only",
            "share of the video's units that holds 90% of its attention",
            "with blank pictures in their places",
        ),
        against(
            "redundancy_preference",
            0.0,
            "attention prefers patches that repeat the keyframe before them",
            "attention avoids patches that repeat the keyframe before them",
            "no preference for patches that repeat the keyframe before them can be told",
        ),
        _ACCURACY,
    ),
    "attention_anatomy": (
        _ACCURACY,
        one_of(
            ("not_sampled", "unattended", "without_effect", "effective", "undecided"),
            "the commonest outcome of the evidence",
        ),
    ),
    "benchmark": (_ACCURACY, states("none_rate", "share of replies without a letter")),
    "evidence_grounding": (
        held_against(
            "accuracy_oracle_matched", "accuracy_uniform", "accuracy with evidence alone", "uniform frames"
        ),
        largest("step_", "of the steps from chance to all right, the difference"),
    ),
    "evidence_sparsity": (
        states("evidence_ratio", "share of a video's frames that holds the evidence"),
        states("evidence_seconds", "seconds of evidence of a question"),
    ),
    "evidence_swap": (
        held_against(
            "accuracy_uniform",
            "accuracy_evidence_0",
            "accuracy with uniform frames",
            "the same with the evidence taken out",
        ),
        held_against("accuracy_oracle", "accuracy_uniform", "accuracy with evidence alone", "uniform frames"),
    ),
    "faithfulness": (
        largest("insertion_faithfulness_", "faithfulness by insertion (0 random, 1 oracle)"),
        largest("deletion_faithfulness_", "faithfulness by deletion (0 random, 1 oracle)"),
    ),
    "frame_scaling": (
        against(
            "slope_per_rung",
            0.0,
            "accuracy grows with the number of frames",
            "accuracy falls with the number of frames",
            "no trend of accuracy with the number of frames can be told",
        ),
        largest("accuracy_", "by number of frames, accuracy"),
    ),
    "heads": (
        each(
            "gold_log_odds_top_less_random_at_",
            "silencing the heads that look at the evidence, less random others of their layers, changes the"
            " right option's log-odds by share of all heads",
        ),
        states("heads_above_null", "number of heads above the null"),
    ),
    "knockout": (
        differs("evidence_less_base", "accuracy with the evidence blocked, less that with nothing blocked"),
        differs("random_less_base", "accuracy with as many random units blocked, less the same"),
        differs("video_less_text", "accuracy with the whole video blocked, less that of the text alone"),
    ),
    "lens": (
        states("crossing_letter", "layer from which on the right letter leads"),
        states("crossing_word", "layer from which on the right word leads"),
    ),
    "mcq_robustness": (largest("accuracy_", "by form of the question, accuracy"),),
    "patching": (
        states("evidence_holds_to_layer", "last layer at which the evidence's tokens hold the answer"),
        states("evidence_gone_from_layer", "first layer at which it has left them"),
        states("clean_accuracy", "accuracy on the clean videos"),
    ),
    "probing": (
        states("probe_score_evidence", "evidence read from the units' states, score"),
        differs("probe_selectivity_evidence", "that score less the same with labels exchanged"),
    ),
    "redundancy_dose": (
        differs(
            "accuracy_near_duplicates_less_distinct",
            "accuracy with near-duplicates among the frames, less that with distinct ones",
        ),
        differs(
            "evidence_log_lift_near_duplicates_less_distinct",
            "log lift of the evidence with near-duplicates, less that with distinct frames",
        ),
    ),
    "sampling": (largest("accuracy_", "by sampler and budget, accuracy"),),
    "temporal_order": (
        held_against(
            "accuracy_original", "accuracy_reversed", "accuracy in the order filmed", "the reversed order"
        ),
        states("flips_beyond_floor_reversed", "answers changed by reversal, beyond the floor"),
    ),
}
"""By experiment. One that is not here is told by its differences, or by its first measures."""
