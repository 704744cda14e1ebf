"""The page above its items: question, answer, numbers, figures, what was run, what went wrong."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from diagnostics.report.closing import number
from diagnostics.report.curves import has_interval, is_defined
from diagnostics.report.page.answers import answer_of, in_words, question_of
from diagnostics.report.page.compared import SHOWN, Compared, compared_of
from diagnostics.report.page.tables import ShownTable, read_table, tables_of
from diagnostics.store import Manifest, Metric, Record, Summary

__all__ = ["HEADLINE", "Headline", "Overview", "Picture", "Trouble", "overview_of"]

HEADLINE = "headline"
"""Among a manifest's checks: the measures that the run printed at its end."""

_SHOWN_METRICS = 24
_SHOWN_IDS = 200
_NAMED_RUNS = 4
_LARGEST_PICTURES = 8 * 2**20
_VERSIONS = ("video-mllm-diagnostics", "python", "torch", "transformers", "vllm", "numpy", "av", "decord")


@dataclass(frozen=True)
class Headline:
    """A measure of the summary: its name, and mean, interval and n as they are read.

    Attributes:
        track: where mean, lower and upper end lie between 0 and 1, in percent, to be drawn; None where one
            of them lies outside, or there is no interval.
    """

    name: str
    words: str
    mean: str
    interval: str
    n: int
    track: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Picture:
    """A figure of the run: its caption and a `data:` address."""

    caption: str
    source: str


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong, or that a reader should know, and the items it happened to.

    Attributes:
        kind: `failed`, `left out`, `no letter` or `warning`.
        reason: the error's class, or the warning's kind.
        count: of pairs (items where they were left out).
        example: a message.
        items: ids, each once, at most 200 of them; `more`, how many others.
        memory: it is exhausted memory.
    """

    kind: str
    reason: str
    count: int
    example: str
    items: Sequence[str]
    more: int = 0
    memory: bool = False


@dataclass(frozen=True)
class Overview:
    """All that the page shows above the items; see the module."""

    experiment: str
    title: str
    question: str
    answers: Sequence[str]
    counts: Sequence[str]
    headline: Sequence[Headline]
    more_headline: Sequence[Headline]
    figures: Sequence[Picture]
    left_out_figures: Sequence[str]
    command: str
    facts: Sequence[tuple[str, str]]
    checks: Sequence[tuple[str, str]]
    config: str
    troubles: Sequence[Trouble]
    none_rate: str
    tables: Sequence[ShownTable]
    compared: Compared | None = None
    logged: bool = False


def overview_of(
    run_dir: Path, summary: Summary, manifests: Sequence[Manifest], records: Sequence[Record]
) -> Overview:
    """Everything above the items, from the run's files.

    Raises:
        DamagedRunError: a table cannot be read.
    """
    figures, too_large = _figures(run_dir)
    manifest = manifests[0] if manifests else None
    first = _first_metrics(summary, manifest)
    rest = [name for name in summary.metrics if name not in first]
    return Overview(
        experiment=summary.experiment,
        title=_title(summary.experiment, manifest),
        question=question_of(summary.experiment),
        answers=_sentences(run_dir) or answer_of(summary),
        counts=_counts(summary, records),
        headline=[_headline(name, summary.metrics[name]) for name in first],
        more_headline=[_headline(name, summary.metrics[name]) for name in rest],
        figures=figures,
        left_out_figures=too_large,
        command=_command(manifest),
        facts=[] if manifest is None else _facts(manifest),
        checks=[] if manifest is None else _checks(manifest),
        config="" if manifest is None else json.dumps(manifest.config, indent=2, ensure_ascii=False),
        troubles=[*_failures(records), *_left_out(run_dir), *_no_letters(records), *_warnings(records)],
        none_rate=_none_rate(records),
        tables=tables_of(run_dir),
        compared=_compared(run_dir, manifest),
        logged=any(run_dir.glob("run.*.log")),
    )


def _title(experiment: str, manifest: Manifest | None) -> str:
    compared = manifest.checks.get("compared") if manifest is not None else None
    if isinstance(compared, list):
        names = [str(run["run"]) for run in compared]
        told = ["Comparison", *dict.fromkeys(in_words(str(run["experiment"])) for run in compared)]
        told.append(", ".join(names) if len(names) <= _NAMED_RUNS else f"{len(names)} runs")
    else:
        told = [_capital(in_words(experiment))]
    for group in ("model", "data") if manifest is not None else ():
        part = manifest.config.get(group) if manifest is not None else None
        if isinstance(part, Mapping) and part.get("name"):
            told.append(str(part["name"]))
    return " · ".join(told)


def _counts(summary: Summary, records: Sequence[Record]) -> list[str]:
    videos = len({record.video_id for record in records})
    told = [
        _counted(summary.n_items, "item"),
        _counted(videos, "video"),
        _counted(summary.n_pairs, "measurement"),
    ]
    return [*told, f"{summary.n_failed} failed"] if records else []


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _first_metrics(summary: Summary, manifest: Manifest | None) -> list[str]:
    """The measures that the run printed at its end; the first ones of a run that did not note them."""
    noted = None if manifest is None else manifest.checks.get(HEADLINE)
    names = noted if isinstance(noted, list) else list(summary.metrics)[:_SHOWN_METRICS]
    return [name for name in names if name in summary.metrics]


def _headline(name: str, metric: Metric) -> Headline:
    if metric.mean is None or not is_defined(metric):
        return Headline(name, in_words(name), "undefined", "", metric.n)
    if metric.ci_low is None or metric.ci_high is None or not has_interval(metric):
        return Headline(name, in_words(name), number(metric.mean), "", metric.n)
    interval = f"{number(metric.ci_low)} to {number(metric.ci_high)}"
    ends = (metric.mean, metric.ci_low, metric.ci_high)
    mean, low, high = (round(100 * end, 2) for end in ends)
    track = (mean, low, high) if all(0 <= end <= 1 for end in ends) else None
    return Headline(name, in_words(name), number(metric.mean), interval, metric.n, track)


def _figures(run_dir: Path) -> tuple[list[Picture], list[str]]:
    """The run's figures as PNG, and the names of those that would make the page heavy."""
    figures, too_large, room = [], [], _LARGEST_PICTURES
    for path in sorted((run_dir / "figures").glob("*.png")):
        if path.stat().st_size > room:
            too_large.append(path.relative_to(run_dir).as_posix())
            continue
        room -= path.stat().st_size
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        figures.append(Picture(_capital(in_words(path.stem)), f"data:image/png;base64,{data}"))
    return figures, too_large


def _compared(run_dir: Path, manifest: Manifest | None) -> Compared | None:
    """Runs side by side, in a comparison's folder."""
    if manifest is None or manifest.experiment != "compare":
        return None
    noted = manifest.checks.get(SHOWN)
    return compared_of(run_dir, noted if isinstance(noted, list) else None)


# -- what was run


def _command(manifest: Manifest | None) -> str:
    """The command line of the first attempt, on anybody's interpreter."""
    if manifest is None or not manifest.attempts or not manifest.attempts[0].command:
        return ""
    return shlex.join(["python", *manifest.attempts[0].command[1:]])


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    """What was run, in rows of a name and a text."""
    first, last = manifest.attempts[0], manifest.attempts[-1]
    facts = [(group, _part(manifest.config[group])) for group in _groups(manifest)]
    facts.append(("started", _moment(manifest.started)))
    facts.append(
        ("ended", "not yet, or it was killed" if manifest.ended is None else _moment(manifest.ended))
    )
    counts = manifest.counts
    expected = "" if counts.expected is None else f" of {counts.expected} expected"
    facts.append(("pairs", f"{counts.finished} finished{expected}, {counts.failed} failed"))
    facts.append(("attempts", f"{last.attempt}, in {_counted(last.n_shards, 'shard')}"))
    machine = first.machine
    gpus = ", ".join(machine.gpus) or "no GPU named"
    facts.append(("machine", f"{machine.platform}, {_counted(machine.cpus, 'CPU')}, {gpus}"))
    versions = [f"{name} {first.versions[name]}" for name in _VERSIONS if name in first.versions]
    facts.append(("versions", ", ".join(versions)))
    if first.git:
        dirty = " with uncommitted changes" if first.git.get("dirty") else ""
        facts.append(("commit", f"{first.git.get('commit', '')}{dirty}"))
    facts.append(("configuration", f"hash {manifest.config_hash}"))
    return [(name, text) for name, text in facts if text]


def _checks(manifest: Manifest) -> list[tuple[str, str]]:
    """What was verified or found on the way."""
    return [
        (name.replace("_", " "), _short(value))
        for name, value in manifest.checks.items()
        if name not in (HEADLINE, SHOWN)
    ]


def _groups(manifest: Manifest) -> list[str]:
    return [group for group in ("model", "data", "sampling", "backend", "exp") if group in manifest.config]


def _part(values: Any) -> str:
    """A group of the configuration in one line: its name, then what is set."""
    if not isinstance(values, Mapping):
        return str(values)
    name = values.get("name") or values.get("rule") or ""
    shown = [
        f"{key}={_short(value)}"
        for key, value in values.items()
        if key not in ("name", "rule") and value not in (None, "", [], {}) and not isinstance(value, Mapping)
    ]
    return f"{name} ({', '.join(shown)})" if shown and name else str(name) or ", ".join(shown)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else f"{text[:299]}…"


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S UTC")


def _sentences(run_dir: Path) -> list[str]:
    """What a comparison says of its runs."""
    path = run_dir / "sentences.txt"
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line] if path.exists() else []


# -- what went wrong


def _failures(records: Sequence[Record]) -> list[Trouble]:
    found: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        if record.error is not None:
            found.setdefault(record.error.type, []).append((record.item_id, record.error.message))
    return [
        _trouble("failed", reason, rows, memory=reason == "OutOfMemoryError") for reason, rows in _most(found)
    ]


def _warnings(records: Sequence[Record]) -> list[Trouble]:
    found: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        for text in record.warnings:
            found.setdefault(text.partition(":")[0], []).append((record.item_id, text))
    return [_trouble("warning", in_words(reason), rows) for reason, rows in _most(found)]


def _left_out(run_dir: Path) -> list[Trouble]:
    """Items that the experiment is not about, from `tables/left_out.csv`."""
    path = run_dir / "tables" / "left_out.csv"
    if not path.exists():
        return []
    table = read_table(path, dtype=str, keep_default_na=False)
    found: dict[str, list[tuple[str, str]]] = {}
    for item, reason in zip(table["item"], table["reason"], strict=True):
        found.setdefault(str(reason), []).append((str(item), ""))
    return [_trouble("left out", reason, rows) for reason, rows in _most(found)]


def _no_letters(records: Sequence[Record]) -> list[Trouble]:
    rows = [(record.item_id, record.raw or "") for record in records if _without_letter(record)]
    return [_trouble("no letter", "reply without a letter, counted as wrong", rows)] if rows else []


def _without_letter(record: Record) -> bool:
    return record.error is None and record.correct is not None and record.answer is None


def _none_rate(records: Sequence[Record]) -> str:
    """How many of the scored replies had no letter; empty where none was scored."""
    scored = [record for record in records if record.error is None and record.correct is not None]
    without = sum(_without_letter(record) for record in scored)
    if not scored:
        return ""
    return f"{without:,} of {len(scored):,} scored replies ({100 * without / len(scored):.1f}%) had no letter"


def _most(found: Mapping[str, list[tuple[str, str]]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0]))


def _trouble(kind: str, reason: str, rows: Sequence[tuple[str, str]], *, memory: bool = False) -> Trouble:
    items = list(dict.fromkeys(item for item, _ in rows))
    shown = items[:_SHOWN_IDS]
    return Trouble(kind, reason, len(rows), rows[0][1], shown, len(items) - len(shown), memory)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
