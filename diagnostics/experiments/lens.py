"""The logit lens: where in the model the right option comes out on top, and who writes it.

At the prompt's last position each layer's state is read by the model's own final norm and head (answer
tracing: Map the Flow, arXiv 2510.13251): the options' letters, and the first word of their texts, which is
there before the letter is looked up. At the video's units, pooled, the same lens asks from which layer on
the right word is among the likeliest (Neo et al., arXiv 2410.07149). And each head's own part of these logits
at the last position names who writes the answer, against the same with any option taken for the right one.

One forward an item. Layer k is what enters layer k, so what first shows at k was written in layer k - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.inside import (
    Look,
    answered,
    look_inside,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.write_up import Asked, asked_of, write_up
from diagnostics.models.backends.requests import Reply
from diagnostics.report.lens import lens_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.summary import Metric
from diagnostics.store.tensors import read_tensors
from diagnostics.strict import STRICT

__all__ = ["READS", "Config", "run"]

READS = ("letter", "word")
"""What is read at the last position: the options' letters, or the first token of their texts."""

_UNITS = ("evidence", "other")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        lens: `norm_and_head`, `head` alone, or `embedding` (input embeddings, no norm).
        top: a unit says a word that is among so many likeliest of the vocabulary.
        draws: of the null of the heads' attribution.
        seed: of that null.
    """

    lens: Literal["norm_and_head", "head", "embedding"] = "norm_and_head"
    top: PositiveInt = 5
    draws: PositiveInt = 500
    seed: NonNegativeInt = 0


def run(context: Context, config: Config) -> Outcome:
    """Read every item with options and a right one, then write summary, tables and figure."""
    asked, reasons = with_options(context.items)
    pairs = [Pair(item) for item in asked]
    measure_pairs(context, pairs, _Measurement(context, config), "Reading every layer")
    return _finish(context, config, pairs, reasons)


def with_options(items: Sequence[Item]) -> tuple[list[Item], dict[str, str]]:
    """Items with options and a right one, and the others with why they cannot be followed (`leave_out`)."""
    asked = [item for item in items if item.options and item.answer is not None]
    known = {item.id for item in asked}
    return asked, {item.id: "no options or no answer" for item in items if item.id not in known}


class _Measurement:
    """One forward of one item, read in every layer."""

    def __init__(self, context: Context, config: Config) -> None:
        self._context, self._config = context, config

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors; raises `ObservationError`, or `ItemError` without letters."""
        loaded = self._context.model
        look = look_inside(self._context, source.item, source.frames)
        gold = look.gold
        with (
            reported(pair.item),
            hooks.residual(loaded.model, look.tokens, positions="last") as last,
            hooks.residual(loaded.model, look.tokens, pool="unit") as units,
            hooks.head_writes(loaded.model, look.tokens) as writes,
        ):
            reply = answered(self._context, look)
        with reported(pair.item):
            seen = self._read(look, last, units, writes)
        fields = record_fields(self._context, look, reply)
        fields["measures"] |= _measures(look, seen, gold, last.layers, self._config.top)
        if seen.word_logits is None:
            fields["warnings"].append("no_words: two options begin with the same token")
        return Measured(fields, self._tensors(pair, look, reply, seen, last.layers))

    def _read(
        self, look: Look, last: hooks.Residual, units: hooks.Residual, writes: hooks.HeadWrites
    ) -> parts.Lens:
        letters, words = list(look.letters), first_tokens(self._context.model.processor.tokenizer, look.item)
        found = last.unembed([*letters, *words], lens=self._config.lens)
        logits = found.logits[:, 0]
        attribution = _by_state(writes.attribution([*letters, *words]), writes.layers, len(last.layers))
        own = {
            "letter_logits": logits[:, : len(letters)],
            "letter_attribution": attribution[..., : len(letters)],
        }
        if len(set(words)) == len(words):
            own |= {"word_logits": logits[:, len(letters) :]}
            own |= {"word_attribution": attribution[..., len(letters) :]}
            own |= self._at_units(look, units, words)
        return parts.Lens(**own)

    def _at_units(self, look: Look, units: hooks.Residual, words: list[int]) -> dict[str, np.ndarray]:
        """Rank of the right word, in either of its forms, and its share among the options' words."""
        tokenizer = self._context.model.processor.tokenizer
        inside = first_tokens(tokenizer, look.item, " ")
        seen = units.unembed([*words, *inside], lens=self._config.lens)
        rank = seen.rank[..., look.gold]
        # Some tokenizers cut the space off, and then every option's word inside a text is a space.
        if len(set(inside)) == len(inside) and tokenizer.decode(inside[look.gold]).strip():
            rank = np.minimum(rank, seen.rank[..., len(words) + look.gold])
        shares = probes.word_share(seen.log_probabilities[..., : len(words)], look.gold)
        return {"word_rank": rank.astype(np.int32), "word_share": shares.astype(np.float32)}

    def _tensors(
        self, pair: Pair, look: Look, reply: Reply, seen: parts.Lens, layers: Sequence[int]
    ) -> parts.PairTensors:
        return parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(layers, np.int32),
            lens=seen,
            definitions={"lens": self._config.lens, "top": self._config.top},
        )


def first_tokens(tokenizer: Any, item: Item, before: str = "") -> list[int]:
    """The first token of each option's text, as a reply begins or with what stands `before` it."""
    encoded = [tokenizer.encode(before + text, add_special_tokens=False) for text in item.options]
    return [ids[0] if ids else -1 for ids in encoded]


def _by_state(
    values: Float[np.ndarray, "layer head option"], layers: Sequence[int], states: int
) -> Float[np.ndarray, "state head option"]:
    """NaN for what enters the final norm, which no head of its own writes, and for layers without heads."""
    found = np.full((states, *values.shape[1:]), np.nan, np.float32)
    found[list(layers)] = values
    return found


def _measures(look: Look, seen: parts.Lens, gold: int, layers: Sequence[int], top: int) -> dict[str, float]:
    found: dict[str, float] = {}
    numbers = np.array(layers)
    for read, logits in (("letter", seen.letter_logits), ("word", seen.word_logits)):
        if logits is None:
            continue
        course = probes.option_course(logits, gold, layers=numbers)
        found |= {f"crossing_{read}": course.first, f"settled_{read}": course.settled}
        for layer, probability in zip(layers, course.probability[:, gold], strict=True):
            found[f"gold_probability@read={read},layer={layer}"] = float(probability)
    if seen.word_rank is None or seen.word_share is None or look.item.local_evidence is None:
        return found
    evidence = look.evidence_units
    first = probes.first_in_top(seen.word_rank, top, layers=numbers)
    for name, which in zip(_UNITS, (evidence, ~evidence), strict=True):
        if not which.any():
            continue
        said = first[which]
        found[f"word_layer@units={name}"] = float(np.nanmin(said)) if np.isfinite(said).any() else np.nan
        for place, layer in enumerate(layers):
            told = f"@units={name},layer={layer}"
            found[f"word_share{told}"] = float(seen.word_share[place, which].mean())
            found[f"word_in_top{told}"] = float((seen.word_rank[place, which] < top).mean())
    return found


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    crossings, course, units = crossing_table(asked.answers), course_table(asked), unit_table(asked)
    heads = head_table(context, asked, config)
    metrics = {}
    for _, row in crossings[crossings["task"] == "all"].iterrows():
        name = f"crossing_{row['read']}"
        metrics[name] = Metric(row["first"], row["first_low"], row["first_high"], int(row["n_crossed"]))
        metrics[f"{name}_share"] = Metric(
            row["crossed"], row["crossed_low"], row["crossed_high"], int(row["n"])
        )
    for read in READS:
        found = heads[(heads["read"] == read) & heads["above_null"]] if len(heads) else heads
        metrics[f"heads_writing_{read}"] = Metric(float(len(found)), None, None, len(asked.answers.items))
    return write_up(
        context,
        asked,
        metrics=metrics,
        tables={"crossings": crossings, "course": course, "units": units, "heads": heads},
        draw=lambda: lens_figure(course, units, heads),
        baselines=[{}],
        left_out=reasons,
    )


def crossing_table(answers: Answers) -> pd.DataFrame:
    """One row a reading and task: how many items cross, and in which layer at the mean and in the median.

    `first`: first layer at which the right option is on top; `settled`: from which on it stays there.
    """
    rows = []
    for task, some in answers.by_task():
        for read in READS:
            first, settled = (some.column({}, f"{name}_{read}") for name in ("crossing", "settled"))
            # Items whose options begin alike have no words: they are not among those that fail to cross.
            asked = np.isfinite(some.column({}, f"gold_probability@read={read},layer=0"))
            crossed = np.where(asked, np.isfinite(first), np.nan)
            share, mean, last = (metric_of(values, some.videos) for values in (crossed, first, settled))
            rows.append(
                {
                    "read": read,
                    "task": task,
                    "crossed": share.mean,
                    "crossed_low": share.ci_low,
                    "crossed_high": share.ci_high,
                    "n": share.n,
                    "first": mean.mean,
                    "first_low": mean.ci_low,
                    "first_high": mean.ci_high,
                    "first_median": float(np.nanmedian(first)) if mean.n else float("nan"),
                    "n_crossed": mean.n,
                    "settled": last.mean,
                    "settled_low": last.ci_low,
                    "settled_high": last.ci_high,
                    "n_settled": last.n,
                }
            )
    return pd.DataFrame(rows)


def course_table(asked: Asked) -> pd.DataFrame:
    """Probability of the right option among the options, by reading and layer, in all and by task."""
    rows = []
    for task, some in asked.answers.by_task():
        each = np.array([1 / len(asked.items[name].options) for name in some.items])
        for read in READS:
            for layer in _layers(some):
                name = f"gold_probability@read={read},layer={layer}"
                # Of the items that are in the mean: those whose options begin alike have no words.
                read_out = np.isfinite(some.column({}, name))
                chance = float(each[read_out].mean()) if read_out.any() else float("nan")
                rows.append(
                    {"read": read, "task": task, "layer": layer, "chance": chance} | _told(some, name)
                )
    return pd.DataFrame(rows)


def unit_table(asked: Asked) -> pd.DataFrame:
    """What units say, by layer: share of the right word among the options' words, and how often it is in the
    top of the vocabulary; units with evidence and the others."""
    rows = []
    for task, some in asked.answers.by_task():
        for units in _UNITS:
            for layer in _layers(some):
                for measure in ("word_share", "word_in_top"):
                    told = _told(some, f"{measure}@units={units},layer={layer}")
                    rows.append({"units": units, "task": task, "layer": layer, "measure": measure} | told)
    return pd.DataFrame(rows)


def _layers(answers: Answers) -> Sequence[int]:
    """Numbers of the layers that were read, from the names of measures."""
    start = "gold_probability@read=letter,layer="
    named = [name for record in answers.under({}) if record is not None for name in record.measures]
    return sorted({int(name.removeprefix(start)) for name in named if name.startswith(start)})


def _told(answers: Answers, measure: str) -> dict[str, Any]:
    metric = metric_of(answers.column({}, measure), answers.videos)
    return {"value": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high, "n": metric.n}


def head_table(context: Context, asked: Asked, config: Config) -> pd.DataFrame:
    """What each head writes for the right option against the others at the last position, by reading.

    `above_null`: the mean is above the 95th percentile of the largest mean over all heads when any option
    is taken for the right one (`probes.attribution_null`).
    """
    rows: list[dict[str, Any]] = []
    collected = {read: _attributions(context, asked, read) for read in READS}
    for read, (attributed, gold, videos, layers) in collected.items():
        if not attributed:
            continue
        scores, null = probes.attribution_null(attributed, gold, draws=config.draws, seed=config.seed)
        found = probes.head_scores(scores, videos, seed=config.seed)
        for layer, head in np.ndindex(found.mean.shape):
            rows.append(
                {
                    "read": read,
                    "layer": layers[layer],
                    "head": head,
                    "value": found.mean[layer, head],
                    "ci_low": found.ci_low[layer, head],
                    "ci_high": found.ci_high[layer, head],
                    "n": int(found.n[layer, head]),
                    "p": null.p[layer, head],
                    "threshold": null.threshold,
                    "above_null": bool(found.mean[layer, head] > null.threshold),
                }
            )
    columns = ["read", "layer", "head", "value", "ci_low", "ci_high", "n", "p", "threshold", "above_null"]
    return pd.DataFrame(rows, columns=columns)


def _attributions(
    context: Context, asked: Asked, read: str
) -> tuple[list[Float[np.ndarray, "layer head option"]], list[int], list[str], list[int]]:
    """By item what each head writes, the right option and the video; then the numbers of the layers."""
    attributed, gold, videos, layers = [], [], [], []
    for record in asked.done:
        path = tensor_path(context.folder.path, record)
        kept = None if path is None else read_tensors(path)
        if kept is None or kept.lens is None:
            continue
        values = getattr(kept.lens, f"{read}_attribution")
        if values is not None:
            attends = np.isfinite(values).any(axis=(1, 2))
            attributed.append(values[attends])
            layers = kept.layer[attends].tolist()
            gold.append(kept.option.index(record.target))
            videos.append(record.video_id)
    return attributed, gold, videos, layers
