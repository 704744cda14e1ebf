"""From reading the prompt to writing the reply: does the model go on looking at the video, at the evidence?

The prefill's last row writes the first token of the reply, the row of each token writes the next one. Their
attention is captured while the model generates, and compared with that last row of the prefill: on the video
(TVC, arXiv 2503.13360, section 1: models that reason look at the picture less the longer they write) and on
the evidence (TG-Heads, arXiv 2605.21954: rows that read look at the right interval, rows that write do not).

A reply of one letter has one row. So a reply can be asked for in other words (`instruction`), without options
(`open`), or made to go on past its own end (`min_new_tokens`): those rows are told apart as `forced`, and no
headline number rests on them. Of a reply that reasons first, rows up to the end of the reasoning and after it
are also told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.experiments.context import Context
from diagnostics.experiments.decode_tables import (
    MEASURED,
    REPLY,
    drift_table,
    layer_table,
    metrics_of,
    read_courses,
    row_table,
    told_short,
)
from diagnostics.experiments.drift_record import attention_part
from diagnostics.experiments.inside import Look, look_inside, record_fields, reported, tensor_fields
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends.hf import written
from diagnostics.models.backends.requests import Written
from diagnostics.report.decode_drift import decode_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.strict import STRICT

__all__ = ["Config", "phases", "run"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        instruction: in place of the backend's, such as one that asks for reasons first; None: the backend's.
        open: ask the bare question, without options and instruction, so that the reply is in words.
        max_new_tokens: of the reply.
        min_new_tokens: a reply that ends sooner has to go on; rows past its own end are `forced`.
        least_rows: rows of the reply that a slope needs.
        reasoning: what opens and what closes reasoning in a reply. Where the prompt or the reply opens it and
            nothing closes it, all of the reply is reasoning.
        sinks: also score sink tokens, so that attention can be had without them from the file.
    """

    instruction: str | None = None
    open: bool = False
    max_new_tokens: PositiveInt = 32
    min_new_tokens: NonNegativeInt = 0
    least_rows: Annotated[int, Field(ge=2)] = 4
    reasoning: tuple[str, str] = ("<think>", "</think>")
    sinks: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens={self.min_new_tokens} is more than max_new_tokens={self.max_new_tokens}"
            )
        if self.open and self.instruction is not None:
            # A prompt's instruction is about its options, and left out where there are none.
            raise ValueError("open=true asks without an instruction: leave out one of the two")
        if not self.reasoning[1]:
            raise ValueError("what closes reasoning must be a text")
        return self


def run(context: Context, config: Config) -> Outcome:
    """Ask every item once, then write summary, tables and figure."""
    pairs = [Pair(item) for item in context.items]
    with ExitStack() as stack:
        measure_pairs(context, pairs, _Measurement(context, config, stack), "Reading and writing")
    asked = asked_of(context, pairs)
    drift = drift_table(asked.answers)
    courses = read_courses(context, asked)
    rows, layers = row_table(courses), layer_table(courses)
    if told := told_short(asked.answers, config.least_rows):
        context.say(told)
    return write_up(
        context,
        asked,
        metrics=metrics_of(asked.answers),
        tables={"drift": drift, "rows": rows, "layers": layers},
        draw=lambda: decode_figure(rows, layers),
        baselines=[{}],
    )


class _Measurement:
    """One reply, and where its rows looked."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self._context, self._config, self._stack = context, config, stack
        self._sinks: hooks.Sinks | None = None
        self._checked = False
        self._reusing = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors; raises `ObservationError`."""
        config, loaded = self._config, self._context.model
        item = replace(source.item, options=(), answer=None) if config.open else source.item
        look = look_inside(
            self._context,
            item,
            source.frames,
            instruction=config.instruction,
            max_new_tokens=config.max_new_tokens,
        )
        with reported(pair.item):
            self._check_once(look)
            with hooks.attention_rows(
                loaded.model,
                look.tokens,
                {role: rows for role in ("question", "last") if len(rows := look.tokens.rows(role))},
                generated=True,
                keep_rows=True,
                sinks=self._sinks,
            ) as captured:
                said = written(loaded, look.inputs, item, config.max_new_tokens, config.min_new_tokens)
        spans = phases(loaded.processor.tokenizer, said, config.reasoning, opened=look.prompt.text.rstrip())
        decode, units = _rows(look, captured, said, self._sinks is not None)
        fields = record_fields(self._context, look, said.reply)
        fields["measures"] |= _measures(look, decode, spans, config.least_rows)
        fields["measures"] |= _reading_drift(look, captured, units, spans)
        own = len(range(*spans[REPLY]))
        if own < config.least_rows:
            fields["warnings"].append(
                f"short_reply: {own} rows after the first token; a slope needs {config.least_rows}"
            )
        if said.reply.cut:
            fields["warnings"].append(f"cut_reply: the reply goes on after {config.max_new_tokens} tokens")
        tensors = parts.PairTensors(
            **tensor_fields(pair, look, said.reply),
            layer=np.array(captured.layers, np.int32),
            role=captured.roles,
            attention=attention_part(captured, value_weighted=False, sinks=self._sinks is not None),
            decode=decode,
            definitions={"phases": {name: list(span) for name, span in spans.items()}},
        )
        return Measured(fields, tensors)

    def _check_once(self, look: Look) -> None:
        """That capture leaves the logits as they are, into the manifest, before the first item."""
        if self._checked:
            return
        model = self._context.model.model
        if not self._reusing:  # the check may fail for an item and is then made with the next
            self._stack.enter_context(hooks.reuse_vision(model, entries=1))
            self._reusing = True
        check = hooks.verify_capture(model, look.inputs, look.tokens, "last")
        self._context.folder.note("capture", asdict(check))
        if self._config.sinks:
            self._sinks = hooks.find_sinks(model, int(look.tokens.input_ids[0]))
            self._context.folder.note("sinks", asdict(self._sinks))
        self._checked = True


def phases(
    tokenizer: object, said: Written, reasoning: tuple[str, str], opened: str = ""
) -> dict[str, tuple[int, int]]:
    """Which rows wrote which part of the reply: first row and the one after the last, row 0 left out.

    Row k is that of the k-th token and wrote token k (from 0). `reply`: rows of the model's own choosing, the
    one that ended it among them. `reasoning`, `answer`: those of them that wrote up to the text that closes
    reasoning, and after it. `forced`: rows that had to go on. A part without rows is left out, but for
    `reply`.

    Args:
        tokenizer: what turns tokens into text.
        said: the reply.
        reasoning: the texts that open and close reasoning.
        opened: the prompt's text: where it ends by opening reasoning, the reply begins within.
    """
    spans = {REPLY: (1, max(1, said.own))}
    opens, closes = reasoning
    end = _closed_after(tokenizer, said.tokens[: said.own], closes)
    begun = bool(opens) and (
        opened.endswith(opens) or _decode(tokenizer, said.tokens[: said.own]).lstrip().startswith(opens)
    )
    if end is not None:
        spans |= {"reasoning": (1, max(1, end)), "answer": (max(1, end), max(1, said.own))}
    elif begun:
        spans["reasoning"] = spans[REPLY]
    spans["forced"] = (max(1, said.own), len(said.tokens))
    return {name: span for name, span in spans.items() if name == REPLY or span[0] < span[1]}


def _closed_after(tokenizer: object, tokens: Sequence[int], closes: str) -> int | None:
    """After how many tokens the text that closes reasoning is whole; None where it never is."""
    if closes not in _decode(tokenizer, tokens):
        return None
    low, high = 1, len(tokens)
    while low < high:  # text only grows: halving asks for a few decodings of a long reply
        middle = (low + high) // 2
        if closes in _decode(tokenizer, tokens[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _decode(tokenizer: object, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=False))  # type: ignore[attr-defined]


def _rows(
    look: Look, captured: hooks.Captured, said: Written, sinks: bool
) -> tuple[parts.Decode, Float[np.ndarray, "layer head row unit"]]:
    """The rows that wrote the reply: for the file, and by unit."""
    positions = captured.row_positions
    first = int(np.searchsorted(positions, len(look.tokens) - 1))
    units = captured.row_unit_mass()[:, :, first:]
    evidence = units[..., look.evidence_units].sum(axis=-1, dtype=np.float64)
    on_sinks = {}
    if sinks:
        sink_units = captured.row_sink_unit_mass()[:, :, first:]
        on_sinks = {
            "sink_visual_mass": sink_units.sum(axis=-1),
            "sink_evidence_mass": sink_units[..., look.evidence_units].sum(axis=-1),
        }
    decode = parts.Decode(
        written=np.array(said.tokens, np.int32),
        keys=(positions[first:] + 1).astype(np.int32),
        visual_mass=units.sum(axis=-1, dtype=np.float64).astype(np.float32),
        evidence_mass=evidence.astype(np.float32),
        **on_sinks,
    )
    return decode, units


def _measures(
    look: Look, decode: parts.Decode, spans: Mapping[str, tuple[int, int]], least: int
) -> dict[str, float]:
    """Per head, then the mean over the layers and heads where it is defined."""
    course = probes.decode_course(
        decode.visual_mass,
        decode.keys,
        look.tokens.n_visual,
        evidence_mass=decode.evidence_mass if look.item.local_evidence is not None else None,
        evidence_units=float(look.evidence_units.sum()),
        units=look.tokens.n_units,
    ).measures()
    found = {f"{name}@row=prefill": _mean(course[name][..., 0]) for name in MEASURED}
    for phase, span in spans.items():
        found[f"reply_rows@phase={phase}"] = float(span[1] - span[0])
        for name in MEASURED:
            one = probes.row_drift(course[name], slice(*span), least=least)
            found |= {
                f"{name}@phase={phase}": _mean(one.decode),
                f"decode_drift@of={name},phase={phase}": _mean(one.drift),
                f"decode_slope@of={name},phase={phase}": _mean(one.slope),
            }
        before, after = found["visual_mass@row=prefill"], found[f"visual_mass@phase={phase}"]
        found[f"visual_loss@phase={phase}"] = 1.0 - after / before if before > 0 else float("nan")
    return found


def _reading_drift(
    look: Look,
    captured: hooks.Captured,
    units: Float[np.ndarray, "layer head row unit"],
    spans: Mapping[str, tuple[int, int]],
) -> dict[str, float]:
    """Evidence's log-odds in the rows that write less those in the rows that read the question, by phase."""
    if "question" not in captured.roles or look.item.local_evidence is None:
        return {}
    question = captured.unit_mass("question")
    return {
        f"reading_drift@phase={phase}": _mean(
            probes.mass_drift(question, mass, look.evidence_units.astype(float)).log_odds
        )
        for phase, mass in _phase_means(units, spans)
    }


def _phase_means(
    units: Float[np.ndarray, "layer head row unit"], spans: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[str, Float[np.ndarray, "layer head unit"]]]:
    for phase, (first, end) in spans.items():
        if first < end:
            yield phase, units[:, :, first:end].mean(axis=2, dtype=np.float64)


def _mean(values: Float[np.ndarray, "*head"]) -> float:
    """Over the heads where it is defined; NaN where it is nowhere."""
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if defined.size else float("nan")
