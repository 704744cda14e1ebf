"""Maps over the temporal units of one item, and what the answer is without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

import hooks
from diagnostics.errors import ItemError
from diagnostics.experiments.asking import log_odds, unit_names
from diagnostics.experiments.context import Context
from diagnostics.experiments.inside import Look, look_inside, option_logits
from diagnostics.experiments.showing import Source
from diagnostics.video.perturb import GREY, blank
from diagnostics.video.selection import Frames

__all__ = ["MAPS", "Ends", "How", "MeasureOf", "Removal", "maps_of", "occlusion"]

MAPS: Mapping[str, str] = {
    "attention": "attention of the role's rows, mean over layers and heads",
    "value_weighted": "the same, times the length of the value it carries",
    "sink_filtered": "the same as attention, without what goes to sink tokens",
    "rollout": "the last row through the product of all layers' attention",
    "relevancy": "the same with the gradient of the right option's log-odds",
    "token_activation": "the right letter's logit at each patch of the last layer, less that of other words",
    "occlusion": "how much the outcome falls without the unit, and rises when the unit alone is left",
}
"""The maps by name."""

MeasureOf = Literal["log_odds", "probability"]

Ends = Literal["both", "removed", "alone"]
"""Of occlusion: a unit taken from the whole video, or put into an empty one, or the mean of the two."""

How = Literal["knockout", "median", "grey"]
"""Nothing may read the unit; its picture is the median of all pictures shown; it is grey."""

_ONE_FORWARD = ("attention", "value_weighted", "sink_filtered", "rollout", "relevancy", "token_activation")
"""Maps that one forward gives, and for relevancy a backward pass."""


@dataclass(eq=False)
class Removal:
    """One item's outcome without some units; every unit keeps its place, its tokens and its written time.

    Attributes:
        context, look: the run and the item as the model is given it.
        outcome: log-odds of the right option against the others, or its share of their probability.
        how: what removing is.
        reuse, names: each unit's picture is encoded once, by its name.
        filler: pictures of the same layout that stand in for those removed; None for `knockout`.
        forwards: how many were run so far.
    """

    context: Context
    look: Look
    outcome: MeasureOf
    how: How
    reuse: hooks.UnitReuse
    names: Sequence[tuple[Any, ...]]
    filler: torch.Tensor | None
    forwards: int = 0
    _known: dict[bytes, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        context: Context,
        source: Source,
        look: Look,
        reuse: hooks.UnitReuse,
        *,
        outcome: MeasureOf = "log_odds",
        how: How = "knockout",
    ) -> Removal:
        """Prepare the pictures that stand in."""
        filler = None
        if how != "knockout":
            pixels = source.frames.pixels
            picture = np.full_like(pixels[0], GREY) if how == "grey" else np.median(pixels, axis=0)
            frames = Frames(
                np.broadcast_to(picture.astype(np.uint8), pixels.shape).copy(), blank(source.frames.selection)
            )
            filler = look_inside(context, source.item, frames).inputs["pixel_values_videos"]
        return cls(context, look, outcome, how, reuse, unit_names(source, look.tokens), filler)

    def __call__(self, without: Bool[np.ndarray, " unit"]) -> float:
        """The outcome without these units, by one forward for each set of them."""
        key = np.packbits(without).tobytes()
        if key not in self._known:
            self._known[key] = self._without(without)
        return self._known[key]

    def _without(self, without: Bool[np.ndarray, " unit"]) -> float:
        if not without.any():
            with self.reuse.units(self.names):
                return self._asked(self.look)
        if self.filler is None:
            return self._knocked_out(np.flatnonzero(without))
        shown = self.look.inputs["pixel_values_videos"]
        gone = torch.from_numpy(without).to(shown.device)[:, None, None]
        by_unit = (len(without), -1)
        pixels = torch.where(gone, self.filler.unflatten(0, by_unit), shown.unflatten(0, by_unit))
        inputs = {**self.look.inputs, "pixel_values_videos": pixels.flatten(0, 1)}
        # One picture for all units: grey is the same for every item of this size, a median is this item's.
        stand_in = (self.how, self.names[0][0]) if self.how == "grey" else (self.how, *self.names)
        names = [stand_in if out else name for out, name in zip(without.tolist(), self.names, strict=True)]
        with self.reuse.units(names):
            return self._asked(replace(self.look, inputs=inputs))

    def _knocked_out(self, units: Int[np.ndarray, " unit"]) -> float:
        """The outcome with nothing reading these units, nor the times and delimiters beside them."""
        edges = hooks.units_to_everything(self.look.tokens, units)
        with self.reuse.units(self.names), hooks.knock_out(self.context.model.model, self.look.tokens, edges):
            return self._asked(self.look)

    def _asked(self, look: Look) -> float:
        self.forwards += 1
        return outcome_of(option_logits(self.context.model, look), look.gold, self.outcome)


def outcome_of(logits: Float[np.ndarray, " option"], gold: int, outcome: MeasureOf) -> float:
    """The right option's log-odds against the others, or its probability among the options."""
    odds = log_odds(logits, gold)
    return odds if outcome == "log_odds" else float(1 / (1 + np.exp(-odds)))


def maps_of(
    removal: Removal,
    wanted: Sequence[str],
    role: str,
    sinks: hooks.Sinks | None,
    *,
    ends: Ends = "both",
    most_occlusions: int = 64,
) -> dict[str, Float[np.ndarray, " unit"]]:
    """Every wanted map of one item; a higher score is a more important unit."""
    found: dict[str, Float[np.ndarray, " unit"]] = {}
    if set(wanted) & set(_ONE_FORWARD):
        found |= _observed(removal, role, sinks)
    if "occlusion" in wanted:
        found["occlusion"] = occlusion(removal, ends, most_occlusions)
    return {name: found[name] for name in wanted}


def occlusion(removal: Removal, ends: Ends, most: int) -> Float[np.ndarray, " unit"]:
    """How much each unit matters by itself.

    Where several units show the same thing, none of them is missed alone, and where several are needed, none
    is enough alone; the mean of both ends sees either (they are the first and the last term of a
    Shapley value).

    Args:
        removal: of the item.
        ends: which of the two, or both.
        most: stretches; where the video has more units, neighbours are taken together and share a score.
    """
    n_units = removal.look.tokens.n_units
    nothing, everything = np.zeros(n_units, bool), np.ones(n_units, bool)
    score = np.zeros(n_units)
    for units in np.array_split(np.arange(n_units), min(n_units, most)):
        own = np.isin(np.arange(n_units), units)
        falls = []
        if ends != "alone":
            falls.append(removal(nothing) - removal(own))
        if ends != "removed":
            falls.append(removal(~own) - removal(everything))
        score[units] = np.mean(falls) / len(units)
    return score


def _observed(
    removal: Removal, role: str, sinks: hooks.Sinks | None
) -> dict[str, Float[np.ndarray, " unit"]]:
    """What one forward shows, all at once."""
    look, loaded = removal.look, removal.context.model
    rows = look.tokens.rows(role)
    if not len(rows):
        raise ItemError(f"The prompt has no {role}.", remedy="Choose exp.role=last.", item_id=look.item.id)
    letter = look.letters[look.gold]
    removal.forwards += 1
    with (
        removal.reuse.units(removal.names),
        hooks.token_activation(loaded.model, look.tokens, letter) as activation,
        hooks.attention_rows(
            loaded.model, look.tokens, {role: rows}, token_mass=False, value_weighted=True, sinks=sinks
        ) as captured,
        hooks.relevance(loaded.model, look.tokens) as found,
    ):
        logits = loaded.model(**look.inputs, logits_to_keep=1, use_cache=False).logits[0, -1]
        options = logits[list(look.letters)].float()
        others = torch.cat([options[: look.gold], options[look.gold + 1 :]])
        relevancy = found.units(found.relevancy(options[look.gold] - others.logsumexp(0)))
        rollout = found.units(found.rollout())
    mass = captured.unit_mass(role)
    maps = {
        "attention": mass.mean(axis=(0, 1)),
        "value_weighted": captured.value_mass(role).mean(axis=(0, 1)),
        "rollout": rollout,
        "relevancy": relevancy,
        "token_activation": activation.units,
    }
    if sinks is not None:
        maps["sink_filtered"] = (mass - captured.sink_unit_mass(role)).mean(axis=(0, 1))
    return {name: np.asarray(values, np.float64) for name, values in maps.items()}
