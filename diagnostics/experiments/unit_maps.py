"""Maps over the temporal units of one item, or its patches, and what the answer is without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
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
from diagnostics.models.loading import LoadedModel
from diagnostics.video.perturb import GREY, blank
from diagnostics.video.selection import Frames

__all__ = ["MAPS", "Ends", "How", "Level", "MeasureOf", "Removal", "maps_of", "occlusion"]

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

Level = Literal["units", "patches"]
"""What is scored and removed: whole temporal units, or visual tokens, each a patch of a unit."""

_ONE_FORWARD = ("attention", "value_weighted", "sink_filtered", "rollout", "relevancy", "token_activation")
"""Maps that one forward gives, and for relevancy a backward pass."""

FOLLOWED = ("rollout", "relevancy")
"""Maps that follow a row back through all layers."""


@dataclass(eq=False)
class Removal:
    """One item's outcome without some parts; every unit keeps its place, its tokens and its written time.

    Attributes:
        loaded, look: the model and the item as it is given it.
        level: what the parts are.
        outcome: log-odds of the right option against the others, or its share of their probability.
        how: what removing is.
        reuse, names: each unit's picture is encoded once, by its name.
        filler: pictures of the same layout that stand in for those removed; None for `knockout`.
        forwards: how many were run so far.
    """

    loaded: LoadedModel
    look: Look
    outcome: MeasureOf
    how: How
    reuse: hooks.UnitReuse
    names: Sequence[tuple[Any, ...]]
    filler: torch.Tensor | None
    level: Level = "units"
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
        level: Level = "units",
        loaded: LoadedModel | None = None,
    ) -> Removal:
        """Prepare the pictures that stand in.

        Args:
            loaded: another model than the run's.
        """
        loaded, filler = loaded or context.model, None
        if how != "knockout":
            pixels = source.frames.pixels
            picture = np.full_like(pixels[0], GREY) if how == "grey" else np.median(pixels, axis=0)
            frames = Frames(
                np.broadcast_to(picture.astype(np.uint8), pixels.shape).copy(), blank(source.frames.selection)
            )
            filler = look_inside(context, source.item, frames, loaded).inputs["pixel_values_videos"]
        return cls(loaded, look, outcome, how, reuse, unit_names(source, look.tokens), filler, level)

    @property
    def n_parts(self) -> int:
        """How many units, or patches, there are."""
        return self.look.tokens.n_units if self.level == "units" else self.look.tokens.n_visual

    def __call__(self, without: Bool[np.ndarray, " part"]) -> float:
        """The outcome without these parts, by one forward for each set of them."""
        key = np.packbits(without).tobytes()
        if key not in self._known:
            self._known[key] = self._without(without)
        return self._known[key]

    def _without(self, without: Bool[np.ndarray, " part"]) -> float:
        if not without.any():
            with self.reuse.units(self.names):
                return self._asked(self.look)
        if self.filler is None:
            return self._knocked_out(np.flatnonzero(without))
        shown = self.look.inputs["pixel_values_videos"]
        gone = torch.from_numpy(without).to(shown.device)[:, None, None]
        # A unit's rows of pixels stand together, and so do those that are merged into one token.
        by_part = (len(without), -1)
        pixels = torch.where(gone, self.filler.unflatten(0, by_part), shown.unflatten(0, by_part))
        inputs = {**self.look.inputs, "pixel_values_videos": pixels.flatten(0, 1)}
        with self.reuse.units(self._names_without(without)):
            return self._asked(replace(self.look, inputs=inputs))

    def _names_without(self, without: Bool[np.ndarray, " part"]) -> list[tuple[Any, ...]]:
        """What each unit's picture is called with some parts replaced."""
        # One picture for all units: grey is the same for every item of this size, a median is this item's.
        stand_in = (self.how, self.names[0][0]) if self.how == "grey" else (self.how, *self.names)
        tokens, of_unit = self.look.tokens, self.level == "units"
        names: list[tuple[Any, ...]] = []
        for unit, name in enumerate(self.names):
            gone = without[unit : unit + 1] if of_unit else without[tokens.unit_tokens(unit)]
            if gone.all():
                names.append(stand_in)
            else:
                names.append((name, stand_in, gone.tobytes()) if gone.any() else name)
        return names

    def _knocked_out(self, parts: Int[np.ndarray, " part"]) -> float:
        """The outcome with nothing reading these units, nor the times and delimiters beside them; of patches,
        with nothing reading their tokens."""
        tokens = self.look.tokens
        edges = (
            hooks.units_to_everything(tokens, parts)
            if self.level == "units"
            else hooks.positions_to_everything(tokens, tokens.visual[parts])
        )
        with self.reuse.units(self.names), hooks.knock_out(self.loaded.model, tokens, edges):
            return self._asked(self.look)

    def _asked(self, look: Look) -> float:
        self.forwards += 1
        return outcome_of(option_logits(self.loaded, look), look.gold, self.outcome)


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
) -> dict[str, Float[np.ndarray, " part"]]:
    """Every wanted map of one item; a higher score is a more important unit, or patch."""
    found: dict[str, Float[np.ndarray, " part"]] = {}
    if set(wanted) & set(_ONE_FORWARD):
        found |= _observed(removal, role, sinks, followed=bool(set(wanted) & set(FOLLOWED)))
    if "occlusion" in wanted:
        found["occlusion"] = occlusion(removal, ends, most_occlusions)
    return {name: found[name] for name in wanted}


def occlusion(removal: Removal, ends: Ends, most: int) -> Float[np.ndarray, " part"]:
    """How much each unit, or patch, matters by itself.

    Where several units show the same thing, none of them is missed alone, and where several are needed, none
    is enough alone; the mean of both ends sees either (they are the first and the last term of a
    Shapley value).

    Args:
        removal: of the item.
        ends: which of the two, or both.
        most: stretches; where there are more parts, neighbours (patches: in reading order, unit after unit)
            are taken together and share a score.
    """
    n_parts = removal.n_parts
    nothing, everything = np.zeros(n_parts, bool), np.ones(n_parts, bool)
    score = np.zeros(n_parts)
    for parts in np.array_split(np.arange(n_parts), min(n_parts, most)):
        own = np.isin(np.arange(n_parts), parts)
        falls = []
        if ends != "alone":
            falls.append(removal(nothing) - removal(own))
        if ends != "removed":
            falls.append(removal(~own) - removal(everything))
        score[parts] = np.mean(falls) / len(parts)
    return score


def _observed(
    removal: Removal, role: str, sinks: hooks.Sinks | None, *, followed: bool
) -> dict[str, Float[np.ndarray, " part"]]:
    """What one forward shows, all at once."""
    look, loaded = removal.look, removal.loaded
    rows = look.tokens.rows(role)
    if not len(rows):
        raise ItemError(f"The prompt has no {role}.", remedy="Choose exp.role=last.", item_id=look.item.id)
    letter, visual = look.letters[look.gold], look.tokens.visual
    removal.forwards += 1
    maps: dict[str, Any] = {}
    with (
        removal.reuse.units(removal.names),
        hooks.token_activation(loaded.model, look.tokens, letter) as activation,
        hooks.attention_rows(
            loaded.model, look.tokens, {role: rows}, value_weighted=True, sinks=sinks
        ) as captured,
        hooks.relevance(loaded.model, look.tokens) if followed else nullcontext() as found,
        nullcontext() if followed else torch.no_grad(),
    ):
        logits = loaded.model(**look.inputs, logits_to_keep=1, use_cache=False).logits[0, -1]
        if found is not None:
            options = logits[list(look.letters)].float()
            others = torch.cat([options[: look.gold], options[look.gold + 1 :]])
            maps["relevancy"] = found.relevancy(options[look.gold] - others.logsumexp(0))[visual]
            maps["rollout"] = found.rollout()[visual]
    mass = captured.token_mass(role)
    maps |= {
        "attention": mass.mean(axis=0),
        "value_weighted": captured.value_token_mass(role).mean(axis=0),
        "token_activation": activation.tokens,
    }
    if sinks is not None:
        maps["sink_filtered"] = (mass * ~sinks.of(captured.sink_score())).mean(axis=0)
    by_token = {name: np.asarray(values, np.float64) for name, values in maps.items()}
    if removal.level == "patches":
        return by_token
    return {name: look.tokens.unit_sum(values) for name, values in by_token.items()}
