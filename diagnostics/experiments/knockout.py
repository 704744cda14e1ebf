"""Attention knockout: through which layers does what the video shows reach the answer?

Map the Flow (arXiv 2510.13251, section 3), after Geva et al. (arXiv 2304.14767): block a path, such as "the
question reads the video", in a window of layers, and see how far the right answer's probability falls; window
by window this draws the flow of information. A random control blocks as many edges anywhere in the prompt.

Beside the windows, whole roads out of the video are blocked in all layers: all of the video (then the answer
should be that of the text alone), the units that show evidence (the same), as many random other units
(then nothing should change). A model that passes is read rightly; where it fails, something else carries
what the video says.

The prompt is run once; interventions run the rows after it that they can reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.inside import (
    Look,
    answered,
    knockout_notices,
    look_inside,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.knockout_tables import (
    ALL_LAYERS,
    arm_table,
    flow_table,
    head_table,
    metrics_of,
    rows_of,
)
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends.requests import Reply
from diagnostics.models.prompting import prepare_inputs
from diagnostics.report.knockout import knockout_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.strict import STRICT, near_match

__all__ = ["Config", "run"]

_HELD = 4
"""Layers whose inputs are held: an intervention runs from the nearest one before it."""

_KNOWN = (*hooks.PATHS, *hooks.OPTION_PATHS)

Logits = Float[torch.Tensor, " vocabulary"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        paths: what is blocked window by window and in all layers (`hooks.PATHS`, `hooks.OPTION_PATHS`).
        window: layers blocked at once; None: a third of the model's, the paper's 9 of 28.
        style: `centre`, `inverse`, `top_down` or `bottom_up` (`hooks.layer_window`).
        every: one window for so many layers.
        control: also block as many random edges for each path and window. They lie anywhere in the prompt, so
            that each costs nearly a forward, where most paths cost a question's rows.
        by_head: a path that is also blocked in one head of one layer at a time, with its control; None for
            none. As many runs more as the model has heads.
        unit_draws: how often as many random units as show evidence are drawn and blocked.
        delimiters: times and delimiters beside a unit belong to it.
        seed: of the controls.
    """

    paths: tuple[str, ...] = (
        "cross_unit",
        "video_to_question",
        "video_to_options",
        "video_to_last",
        "question_to_last",
        "options_to_last",
        "last_to_last",
    )
    window: PositiveInt | None = None
    style: hooks.WindowStyle = "centre"
    every: PositiveInt = 1
    control: bool = True
    by_head: str | None = None
    unit_draws: PositiveInt = 3
    delimiters: bool = True
    seed: NonNegativeInt = 0

    @field_validator("paths", "by_head")
    @classmethod
    def _known_paths(cls, value: Any) -> Any:
        for name in (value,) if isinstance(value, str) else value or ():
            if name not in _KNOWN:
                raise ValueError(f"{name!r} is no path. {near_match(name, _KNOWN)}")
        return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value

    def windows(self, n_layers: int, attending: Sequence[int] | None = None) -> dict[int, tuple[int, ...]]:
        """The layers of each window by its centre.

        Args:
            n_layers: of the model.
            attending: those that attend: a window holds no others, and one of none of them is left out.
        """
        size = self.window or max(1, round(n_layers * 9 / 28))
        known = range(n_layers) if attending is None else attending
        found = {
            centre: hooks.layer_window(centre, size, n_layers, self.style)
            for centre in range(0, n_layers, self.every)
        }
        kept = {centre: tuple(one for one in layers if one in known) for centre, layers in found.items()}
        return {centre: layers for centre, layers in kept.items() if layers}


def run(context: Context, config: Config) -> Outcome:
    """Block every path for every item with options and a right one, then write tables and figure."""
    asked, reasons = _with_options(context.items)
    pairs = [Pair(item) for item in asked]
    with ExitStack() as stack:
        measure_pairs(context, pairs, _Measurement(context, config, stack), "Knocking out")
    found = asked_of(context, pairs)
    flow, arms = flow_table(found.answers, config.paths), arm_table(found.answers, config.seed)
    tables = {"flow": flow, "roads": arms}
    if config.by_head is not None:
        tables["heads"] = head_table(found.answers, config.seed)
    return write_up(
        context,
        found,
        metrics=metrics_of(found.answers, config.paths, config.seed),
        tables=tables,
        draw=lambda: knockout_figure(flow, arms, tables.get("heads")),
        baselines=[{}],
        rows=rows_of(arms),
        left_out=reasons,
    )


def _with_options(items: Sequence[Item]) -> tuple[list[Item], dict[str, str]]:
    asked = [item for item in items if item.options and item.answer is not None]
    known = {item.id for item in asked}
    return asked, {item.id: "no options or no answer" for item in items if item.id not in known}


class _Measurement:
    """All interventions on one item."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self._context, self._config, self._stack = context, config, stack
        self._windows: dict[int, tuple[int, ...]] = {}
        self._attending: tuple[int, ...] = ()
        self._held_layers: tuple[int, ...] = ()
        self._checked = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors; raises `ObservationError`, or `ItemError` without letters."""
        model = self._context.model.model
        if not self._windows:
            self._start(model)
        look = look_inside(self._context, source.item, source.frames)
        gold = look.gold
        warnings = knockout_notices(self._context.model)
        with reported(source.item):
            reply = answered(self._context, look)
            check = not self._checked
            with hooks.prefix(model, look.inputs, layers=self._held_layers, check=check) as held:
                base = held.logits
                roads = dict(self._roads(held, look))
                flow = dict(self._flow(held, look, warnings))
                heads = dict(self._heads(held, look)) if self._config.by_head is not None else {}
            self._checked = True
        roads = {"base": base, "text": self._text_alone(source), **roads}
        fields = record_fields(self._context, look, reply)
        fields["measures"] |= _measures(look, gold, roads, flow | heads)
        fields["warnings"] += warnings
        return Measured(fields, self._tensors(pair, look, reply, roads, flow))

    def _start(self, model: Any) -> None:
        """Settle the windows, before the first item."""
        n_layers = int(self._context.model.provenance["layers"])
        self._attending = hooks.family_of(model).attention_layers(model)
        try:
            self._windows = self._config.windows(n_layers, self._attending)
        except hooks.InterventionError as error:
            raise ConfigError(error.problem, remedy=f"{error.remedy} See exp.window, exp.style.") from error
        if not self._windows:
            raise ConfigError(
                f"No window holds a layer that attends, as {list(self._attending)} do.",
                remedy="Set exp.every=1, or a larger exp.window.",
            )
        self._held_layers = tuple(range(0, n_layers, -(-n_layers // _HELD)))
        self._stack.enter_context(hooks.reuse_vision(model, entries=1))

    def _random(self, item: Item, *more: int) -> list[int]:
        return [self._config.seed, *more, *item.id.encode()]

    def _blocked(
        self,
        held: hooks.HeldPrompt,
        look: Look,
        edges: Sequence[hooks.Edges],
        layers: tuple[int, ...] | None = None,
        heads: Sequence[int] | None = None,
    ) -> Logits:
        """Last logits with edges blocked in some layers, or in all; for some heads, or for all."""
        first = min(int(one.queries[0]) for one in edges)
        start = 0 if layers is None else max(one for one in self._held_layers if one <= layers[0])
        with hooks.knock_out(
            self._context.model.model,
            look.tokens,
            edges,
            layers="all" if layers is None else layers,
            heads=heads,
            check=not self._checked,  # on the first item, as a capture is
        ):
            return held.rerun(first, layer=start)

    def _roads(self, held: hooks.HeldPrompt, look: Look) -> Iterator[tuple[str, Logits]]:
        """Roads out of the whole video, the evidence, and random units, blocked in all layers."""
        tokens, delimiters = look.tokens, self._config.delimiters
        everything = hooks.path_edges(tokens, "video_to_everything", delimiters=delimiters)
        yield "video", self._blocked(held, look, everything)
        evidence = np.flatnonzero(look.evidence_units)
        if not len(evidence):
            return
        sets = {"evidence": evidence}
        alike = probes.sets_like(look.evidence_units, self._config.unit_draws, self._random(look.item))
        sets |= {f"random_{draw}": np.flatnonzero(units) for draw, units in enumerate(alike)}
        for name, units in sets.items():
            edges = hooks.units_to_everything(tokens, units, delimiters=delimiters)
            yield name, self._blocked(held, look, [edges])

    def _flow(self, held: hooks.HeldPrompt, look: Look, warnings: list[str]) -> Iterator[tuple[str, Logits]]:
        """Each path, and its control, blocked in each window and in all layers."""
        windows: list[tuple[int | str, tuple[int, ...] | None]] = [*self._windows.items()]
        windows.append((ALL_LAYERS, None))
        for place, path in enumerate(self._config.paths):
            try:
                edges = self._edges(look, path)
            except hooks.InterventionError as error:
                warnings.append(f"no_path: {path}: {error.problem}")
                continue
            for control, some in self._with_control(look, edges, place + 1):
                for layer, layers in windows:
                    told = f"path={path},control={control},layer={layer}"
                    yield told, self._blocked(held, look, some, layers)

    def _edges(self, look: Look, path: str) -> tuple[hooks.Edges, ...]:
        """The edges of a named path in this item's prompt."""
        delimiters = self._config.delimiters
        if path in hooks.OPTION_PATHS:
            return hooks.option_path_edges(look.tokens, path, look.gold, delimiters=delimiters)
        return hooks.path_edges(look.tokens, path, delimiters=delimiters)

    def _with_control(
        self, look: Look, edges: Sequence[hooks.Edges], stream: int
    ) -> Iterator[tuple[str, Sequence[hooks.Edges]]]:
        yield "no", edges
        if self._config.control:
            seed = self._random(look.item, stream)
            yield "random", hooks.random_edges_like(look.tokens, edges, seed)

    def _heads(self, held: hooks.HeldPrompt, look: Look) -> Iterator[tuple[str, Logits]]:
        """One path, and its control, blocked in one head of one layer at a time."""
        path, loaded = self._config.by_head, self._context.model
        assert path is not None
        edges = self._edges(look, path)
        n_heads = int(hooks.family_of(loaded.model).text_model(loaded.model).config.num_attention_heads)
        for control, some in self._with_control(look, edges, 0):
            for layer, head in itertools.product(self._attending, range(n_heads)):
                told = f"path={path},control={control},layer={layer},head={head}"
                yield told, self._blocked(held, look, some, (layer,), [head])

    @torch.inference_mode()
    def _text_alone(self, source: Source) -> Logits:
        """The question without the video."""
        loaded, backend = self._context.model, self._context.config.backend
        prompt = prepare_inputs(
            loaded,
            source.item,
            source.frames,
            instruction=backend.instruction,
            max_new_tokens=backend.max_new_tokens,
            form="nothing",
        )
        inputs = prompt.inputs.to(loaded.device)
        return loaded.model(**inputs, logits_to_keep=1, use_cache=False).logits[0, -1].float()

    def _tensors(
        self,
        pair: Pair,
        look: Look,
        reply: Reply,
        roads: Mapping[str, Logits],
        flow: Mapping[str, Logits],
    ) -> parts.PairTensors:
        index = list(look.letters)
        names = tuple(dict.fromkeys(told.rpartition(",layer=")[0] for told in flow))
        windows = np.full((len(self._windows), len(names), len(index)), np.nan, np.float32)
        whole = np.full((len(names), len(index)), np.nan, np.float32)
        for place, name in enumerate(names):
            for row, layer in enumerate(self._windows):
                windows[row, place] = flow[f"{name},layer={layer}"][index].cpu().numpy()
            whole[place] = flow[f"{name},layer={ALL_LAYERS}"][index].cpu().numpy()
        return parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(list(self._windows), np.int32),
            role=tuple(
                name.removeprefix("path=").replace(",control=no", "").replace(",control=", ":")
                for name in names
            ),
            knockout=parts.Knockout(
                window_logits=windows,
                all_layers_logits=whole,
                road_logits=np.stack([one[index].cpu().numpy() for one in roads.values()]).astype(np.float32),
            ),
            definitions={
                "windows": {str(centre): list(layers) for centre, layers in self._windows.items()},
                "roads": list(roads),
                "delimiters": self._config.delimiters,
            },
        )


def _measures(
    look: Look,
    gold: int,
    roads: Mapping[str, Logits],
    flow: Mapping[str, Logits],
) -> dict[str, float]:
    """Percent change of the right letter's probability in the whole vocabulary, and whether it is chosen."""
    letters = list(look.letters)

    def probability(logits: Logits) -> float:
        return float(torch.log_softmax(logits.double(), dim=-1)[letters[gold]].exp())

    def chosen(logits: Logits) -> int:
        return int(np.argmax(logits[letters].cpu().numpy()))

    base = probability(roads["base"])
    found = {"gold_probability": base, "evidence_units": float(look.evidence_units.sum())}
    for told, logits in flow.items():
        change = probes.percent_change(np.array(probability(logits)), np.array(base))
        found[f"change@{told}"] = float(change)
        found[f"accuracy@{told}"] = float(chosen(logits) == gold)
    drawn = [name for name in roads if name.startswith("random_")]
    for name in ("base", "text", "video", "evidence"):
        if name in roads:
            found |= _road(name, [roads[name]], chosen, gold, roads["text"])
    if drawn:
        found |= _road("random", [roads[name] for name in drawn], chosen, gold, roads["text"])
    return found


def _road(name: str, logits: Sequence[Logits], chosen: Any, gold: int, text: Logits) -> dict[str, float]:
    """Over the draws of one road: how often the right option is chosen, and the option of the text alone."""
    choices = np.array([chosen(one) for one in logits])
    return {
        f"accuracy@road={name}": float((choices == gold).mean()),
        f"as_text@road={name}": float((choices == chosen(text)).mean()),
    }
