"""How much of multiple-choice accuracy is the form of the question?

LongShOTBench (arXiv 2512.16978), appendix E: the same items as they are; with their options shuffled; without
options, after which the model maps its own answer to them; with "None of the above" or "All of the above"
added while the right option stays right. The second pass of the open-ended form is shown the answer and no
video, so that it cannot answer anew. Drops from the standard form are paired by item; answers by
position and their entropy say whether a letter is favoured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item, option_letter
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Measured, Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, Source, nothing
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.prompting import control_tokens
from diagnostics.report.robustness import robustness_figure
from diagnostics.scoring import statistics
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT
from diagnostics.video.selection import Frames

__all__ = ["Config", "conditions", "reordered", "run", "with_added"]

STANDARD: Mapping[str, Any] = {"asked": "standard"}
_ADDED = {"none_of_the_above": "None of the above", "all_of_the_above": "All of the above"}


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        shuffles: so many orders of the options, averaged item by item.
        mapping: the question of the second pass of the open-ended form; names `{question}` and `{answer}`.
        reply_tokens: of the open-ended answer, at most; one that goes on is told in its record.
        seed: of the shuffles, and of the statistics.
    """

    shuffles: PositiveInt = 3
    mapping: str = (
        "Question: {question}\nAn answer to it: {answer}\nWhich option says the same as this answer?"
    )
    reply_tokens: PositiveInt = 64
    seed: NonNegativeInt = 0

    @field_validator("mapping")
    @classmethod
    def _names_both(cls, value: str) -> str:
        if "{question}" not in value or "{answer}" not in value:
            raise ValueError("mapping names {question} and {answer}")
        try:
            value.format(question="", answer="")
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError("mapping holds braces of {question} and {answer} alone") from error
        return value


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """The standard form, the shuffles, the open-ended form, and the added options."""
    shuffled = [{"asked": "shuffled", "seed": config.seed + n} for n in range(config.shuffles)]
    return [STANDARD, *shuffled, {"asked": "open_ended"}, *({"asked": name} for name in _ADDED)]


def reordered(item: Item, seed: int) -> Item:
    """The item with its options in an order drawn with the seed, and the letter that is right then.

    Never the order they were in, where there is another.
    """
    # A string's hash differs between processes, so the id is taken as its bytes.
    random = np.random.default_rng([seed, *item.id.encode()])
    order = np.arange(len(item.options))
    while len(order) > 1 and np.array_equal(order, np.arange(len(order))):
        order = random.permutation(len(item.options))
    assert item.answer is not None
    right = order.tolist().index(item.letters.index(item.answer))
    options = tuple(item.options[place] for place in order.tolist())
    return replace(item, options=options, answer=option_letter(right))


def asked_item(item: Item, condition: Mapping[str, Any]) -> Item:
    """The item with the options that were asked under a condition (`rescore` reads replies with them)."""
    if condition["asked"] == "shuffled":
        return reordered(item, condition["seed"])
    added = _ADDED.get(condition["asked"])
    return item if added is None else with_added(item, added)


def with_added(item: Item, text: str) -> Item:
    """The item with one more option at the end; what was right stays right."""
    return replace(item, options=(*item.options, text))


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with options in every form, then write summary, tables and figure."""
    scored = [item for item in context.items if item.options and item.answer is not None]
    ids = {item.id for item in scored}
    left_out = {item.id: "no options or no answer" for item in context.items if item.id not in ids}
    pairs = [
        Pair(item, condition)
        for item in scored
        for condition in conditions(config)
        if not _is_there(item, condition["asked"])
    ]
    for form, text in _ADDED.items():
        left_out |= {item.id: f'has "{text}" among its options' for item in scored if _is_there(item, form)}
    with Asking(context) as asking:
        measure_pairs(context, pairs, _Forms(context, asking, config), "Asking in every form", show=_show)
    return _finish(context, config, pairs, left_out)


def _is_there(item: Item, form: str) -> bool:
    """Whether what the form adds is an option already: with it twice no letter would be right."""
    return form in _ADDED and _ADDED[form].casefold() in {
        text.strip(" .").casefold() for text in item.options
    }


def _show(pair: Pair, library: Library) -> Shown:
    item = library.checked(pair.item)
    return Shown(asked_item(item, pair.condition), library.select(item))


class _Forms:
    """One question, or two where the model maps its own answer."""

    def __init__(self, context: Context, asking: Asking, config: Config) -> None:
        self._context, self._asking, self._config = context, asking, config

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """What the one pass found, or both of them."""
        if pair.condition["asked"] != "open_ended":
            return self._asking(pair, source)
        asked = replace(source, item=replace(source.item, options=(), answer=None))
        said = self._asking(pair, asked, self._config.reply_tokens).fields
        reply, notices = self._plain(said["raw"])
        if not reply:  # nothing to map: an option chosen now would be a guess
            nothing_said: dict[str, Any] = {"answer": None, "rule": "empty", "correct": False}
            return Measured({**said, **nothing_said, "earlier_replies": (said["raw"],), "raw": ""})
        return self._both(said, self._asking(pair, self._mapping(source, reply)).fields, notices)

    def _plain(self, reply: str) -> tuple[str, tuple[str, ...]]:
        """The reply without the tokenizer's control tokens, which no question may hold."""
        found = [token for token in control_tokens(self._context.model.processor.tokenizer) if token in reply]
        for token in found:
            reply = reply.replace(token, " ")
        told = (f"control_tokens: {', '.join(sorted(found))} taken out of the reply",) if found else ()
        return " ".join(reply.split()), told

    def _mapping(self, source: Source, reply: str) -> Source:
        """The second pass: the options, the answer, and nothing to look at."""
        question = self._config.mapping.format(question=source.item.question, answer=reply)
        frames = Frames(source.frames.pixels[:0], nothing(source.frames.selection))
        return replace(source, item=replace(source.item, question=question), frames=frames, form="nothing")

    def _both(self, said: dict[str, Any], mapped: dict[str, Any], notices: tuple[str, ...]) -> Measured:
        """What was shown, from the first pass; the letter and its log-odds, from the second."""
        seconds = {name: said["seconds"][name] + mapped["seconds"][name] for name in mapped["seconds"]}
        letter = {
            name: mapped[name]
            for name in ("raw", "answer", "rule", "extractor", "correct", "option_logprobs")
        }
        told = {
            "earlier_replies": (said["raw"],),
            "measures": said["measures"] | mapped["measures"],
            "warnings": (*said["warnings"], *notices, *mapped["warnings"]),
            "seconds": seconds,
        }
        return Measured({**said, **letter, **told})


def _finish(context: Context, config: Config, pairs: Sequence[Pair], left_out: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    forms, positions = form_table(asked.answers, config), position_table(asked.done, config)
    return write_up(
        context,
        asked,
        metrics={
            f"accuracy_{row['asked']}": Metric(row["accuracy"], row["ci_low"], row["ci_high"], int(row["n"]))
            for _, row in forms.iterrows()
        },
        tables={"forms": forms, "positions": positions},
        draw=lambda: robustness_figure(forms, positions),
        baselines=[STANDARD],
        left_out=left_out,
    )


def _forms(config: Config) -> dict[str, list[Mapping[str, Any]]]:
    forms: dict[str, list[Mapping[str, Any]]] = {}
    for condition in conditions(config):
        forms.setdefault(condition["asked"], []).append(condition)
    return forms


def form_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a form: accuracy, change from the standard form on the same items, entropy of the letters.

    `letter_entropy` is that of the answers, 1 where all letters are as frequent; `key_entropy` that of the
    right letters, which it is to be compared with.
    """
    standard = answers.column(STANDARD)
    rows = []
    for form, same in _forms(config).items():
        correct = np.mean([answers.column(condition) for condition in same], axis=0)
        accuracy = metric_of(correct, answers.videos)
        change = statistics.paired_difference(standard, correct, answers.videos, seed=config.seed)
        records = [record for condition in same for record in answers.under(condition)]
        given = [record for record in records if record is not None]
        alphabet = sorted(
            {letter for r in given for letter in (r.answer, r.target, *r.option_logprobs) if letter}
        )
        rows.append(
            {
                "asked": form,
                "accuracy": accuracy.mean,
                "ci_low": accuracy.ci_low,
                "ci_high": accuracy.ci_high,
                "change": change.difference,
                "change_low": change.ci_low,
                "change_high": change.ci_high,
                "p": change.p,
                "letter_entropy": statistics.letter_entropy([r.answer for r in given], alphabet).normalised,
                "key_entropy": statistics.letter_entropy([r.target for r in given], alphabet).normalised,
                "none_rate": float(np.mean([r.answer is None for r in given])) if given else float("nan"),
                "n": accuracy.n,
            }
        )
    table = pd.DataFrame(rows)
    table["p_holm"] = statistics.holm(table["p"].where(table["asked"] != "standard").tolist()).adjusted
    return table


def position_table(records: Sequence[Record], config: Config) -> pd.DataFrame:
    """For each form and letter: how often right, how often answered, and accuracy where it was right."""
    rows = []
    for form in _forms(config):
        some = [r for r in records if r.condition["asked"] == form and r.target is not None]
        for letter in sorted({letter for r in some for letter in (r.answer, r.target) if letter}):
            right = [r for r in some if r.target == letter]
            metric = metric_of([float(bool(r.correct)) for r in right], [r.video_id for r in right])
            rows.append(
                {
                    "asked": form,
                    "letter": letter,
                    "right": len(right) / len(some),
                    "answered": sum(r.answer == letter for r in some) / len(some),
                    "accuracy_where_right": metric.mean,
                    "ci_low": metric.ci_low,
                    "ci_high": metric.ci_high,
                    "n": metric.n,
                }
            )
    return pd.DataFrame(rows)
