"""Activation patching: states of a clean run put into a corrupt one, or the other way round.

After causal tracing (Meng et al., Locating and Editing Factual Associations in GPT, arXiv 2202.05262, section
2), with a corrupt *video* in place of noise. Both prompts have the same tokens and grids; only pixels differ,
and what they show instead is the caller's choice. A state is patched at the *input* of a layer
(`layer_inputs`). `denoising` puts clean states into the corrupt run: what suffices. `noising` puts corrupt
ones into the clean run: what is needed.

Qwen3-VL's DeepStack adds visual features to the stream again after the first layers. With `deepstack="with"`
the features of the patched tokens that are still to enter are patched too: the video of those tokens is the
other one's from here on. With `"leak"` they stay, so the run goes on seeing the old video there;
`PatchGrid.leak` says how much.

`patch` runs two whole forwards. `patch_grid` runs each prompt once and, for each cell, only the layers from
the patched one on and the positions from the first changed one on; a cell that changes nothing costs nothing.
Both give the same logits, up to the order of summation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.errors import InterventionError
from hooks.kept_logits import keep_logits
from hooks.layer_inputs import (
    LayerInputs,
    asked_layers,
    check_positions,
    layer_inputs,
    put_states,
    streams_after,
    visual_rows,
)
from hooks.prefix import HeldPrompt, one_prompt, prefix
from hooks.token_map import TokenMap

__all__ = [
    "DeepStack",
    "Direction",
    "PatchGrid",
    "check_pair",
    "expected_forwards",
    "known_tokens",
    "named_sets",
    "patch",
    "patch_grid",
    "position_sets",
    "source_and_target",
]

Direction = Literal["denoising", "noising"]
"""Clean states into the corrupt run, or corrupt states into the clean run."""
DeepStack = Literal["with", "leak"]
"""DeepStack's later features of the patched tokens: patched with them, or left as they are."""
Sets = Mapping[str, Int[np.ndarray, " position"]]


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """What patching each set of positions at each layer does to the last position's logits.

    Attributes:
        layers: at whose input; the `layer` axis.
        sets: names of the sets of positions; the `set` axis.
        token_ids: tokens whose logits are kept; the `token` axis.
        logits: of the patched runs, float32.
        clean, corrupt: logits of the same tokens in the two runs.
        leak: length of what DeepStack still adds of the unpatched video to the set's tokens, as a share of
            the length of the change that was patched (Frobenius norms; NaN where nothing changed). 0 with
            `deepstack="with"`, and after the last injection.
        first_changed: the first position at which a cell differs from the run it is put into; -1 where none.
        forwards: spent on the cells: the sum over cells of the share of layers times the share of positions.
        direction, deepstack: how it was made.
    """

    layers: tuple[int, ...]
    sets: tuple[str, ...]
    token_ids: tuple[int, ...]
    logits: Float[np.ndarray, "layer set token"]
    clean: Float[np.ndarray, " token"]
    corrupt: Float[np.ndarray, " token"]
    leak: Float[np.ndarray, "layer set"]
    first_changed: Int[np.ndarray, "layer set"]
    forwards: float
    direction: Direction
    deepstack: DeepStack


def position_sets(
    tokens: TokenMap, *, roles: Sequence[str] = ("question", "options", "last"), beside: bool = True
) -> dict[str, Int[np.ndarray, " position"]]:
    """The sets of positions of a heat map: each temporal unit as `unit:N`, then roles that have tokens.

    Args:
        roles: of the token map.
        beside: with a unit go the delimiters and the time that stand beside it in the prompt: they come after
            its tokens, or the next unit's, and can carry what it said.
    """
    chosen = tokens.unit if beside else np.where(tokens.row >= 0, tokens.unit, -1)
    found = {f"unit:{unit}": np.flatnonzero(chosen == unit) for unit in range(tokens.n_units)}
    return found | {name: tokens.rows(name) for name in roles if len(tokens.rows(name))}


def expected_forwards(
    n_layers: int, layers: Sequence[int], first: Int[np.ndarray, "layer set"], length: int
) -> float:
    """The arithmetic of exact recomputation: for each cell (L - layer) / L * (N - first) / N; -1 counts 0.

    12 layers by 16 units of equal length come to 55 forwards where every unit changes (the sum is 6.5 * 8.5),
    and to 21, on average over which one, where a single unit does: earlier ones change nothing.
    """
    shares = (n_layers - np.asarray(layers)) / n_layers
    positions = np.where(first < 0, 0, length - first) / length
    return float((shares[:, None] * positions).sum())


def check_pair(clean: Mapping[str, Any], corrupt: Mapping[str, Any], tokens: TokenMap) -> int:
    """That two prompts differ in pixels alone; returns their length.

    Raises:
        InterventionError: they have other tokens, grids or times, or the token map is of another prompt.
    """
    length = one_prompt(clean)
    one_prompt(corrupt)
    for name in dict.fromkeys([*clean, *corrupt]):
        if name.startswith("pixel_values") and name in clean and name in corrupt:
            same = clean[name].shape == corrupt[name].shape
        else:
            same = name in clean and name in corrupt and _equal(clean[name], corrupt[name])
        if not same:
            raise InterventionError(
                f"The clean and the corrupt prompt have another {name}.",
                remedy="Show pictures of the same size in the same slots at the same shown times.",
            )
    if not np.array_equal(tokens.input_ids, clean["input_ids"][0].cpu().numpy()):
        raise InterventionError(
            "The token map is not of these prompts.", remedy="Map the inputs that are given here."
        )
    return length


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one.cpu(), other.cpu())
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


@torch.no_grad()
def patch(
    model: Any,
    clean_inputs: Mapping[str, Any],
    corrupt_inputs: Mapping[str, Any],
    tokens: TokenMap,
    layer: int,
    positions: Int[np.ndarray, " position"] | Sequence[int],
    *,
    direction: Direction = "denoising",
    deepstack: DeepStack = "with",
) -> Float[np.ndarray, " vocabulary"]:
    """Logits of the last position with one set of positions patched at one layer, by two whole forwards.

    Args:
        model: a loaded model of a known family.
        clean_inputs, corrupt_inputs: prompts that differ in pixels alone, on the model's device.
        tokens: their map.
        layer: at whose input.
        positions: of the prompt; none leaves the run as it is.
        direction, deepstack: see the module.

    Raises:
        InterventionError: a layer or position that does not exist, or prompts of different layout.
        SelfCheckError: the forward did not pass the layer.
    """
    length = check_pair(clean_inputs, corrupt_inputs, tokens)
    places = _places(positions, length)
    source, target = source_and_target(clean_inputs, corrupt_inputs, direction, deepstack)
    with layer_inputs(model, length, [layer]) as found:
        _last_logits(model, source)
    states = {layer: found.states[layer][torch.from_numpy(places).to(found.states[layer].device)]}
    streams = streams_after(found, layer, places) if deepstack == "with" else None
    with put_states(model, length, places, states, streams):
        return _last_logits(model, target).cpu().numpy()


def _places(positions: Any, length: int) -> Int[np.ndarray, " position"]:
    places = np.unique(np.asarray(positions, dtype=np.int64).reshape(-1))
    check_positions(places, length)
    return places


def named_sets(tokens: TokenMap, sets: Sets | None, length: int) -> dict[str, Int[np.ndarray, " position"]]:
    """Sets of positions, those of `position_sets` where none are given; raises `InterventionError`."""
    named = {
        name: _places(places, length)
        for name, places in (position_sets(tokens) if sets is None else sets).items()
    }
    if not named:
        raise InterventionError("No set of positions was given.", remedy="Name at least one.")
    return named


def source_and_target(clean: Any, corrupt: Any, direction: str, deepstack: str) -> tuple[Any, Any]:
    """The run that states are taken from and the one they are put into; raises at an unknown choice."""
    if direction not in ("denoising", "noising") or deepstack not in ("with", "leak"):
        raise InterventionError(
            f"Unknown direction {direction!r} or deepstack {deepstack!r}.",
            remedy="Known: denoising, noising; with, leak.",
        )
    return (clean, corrupt) if direction == "denoising" else (corrupt, clean)


def _last_logits(model: Any, inputs: Mapping[str, Any]) -> Float[Tensor, " vocabulary"]:
    keep_logits(model)
    return model(**inputs, logits_to_keep=1, use_cache=False).logits[0, -1].float()


def patch_grid(
    model: Any,
    clean_inputs: Mapping[str, Any],
    corrupt_inputs: Mapping[str, Any],
    tokens: TokenMap,
    *,
    token_ids: Sequence[int],
    layers: Literal["all"] | Sequence[int] = "all",
    sets: Sets | None = None,
    direction: Direction = "denoising",
    deepstack: DeepStack = "with",
    cells: Bool[np.ndarray, "layer set"] | None = None,
    chunk: int = 1024,
    check: bool = True,
) -> PatchGrid:
    """Patch each set of positions at each layer; each prompt runs once, and for a cell only what changes.

    Args:
        model, clean_inputs, corrupt_inputs, tokens, direction, deepstack: as for `patch`.
        token_ids: whose logits are kept: those of the options' letters, say.
        layers: at whose inputs.
        sets: positions by name. None: `position_sets`.
        cells: which are made; the logits of the others are NaN. None: all.
        chunk, check: of `hooks.prefix`.

    Raises:
        InterventionError: as `patch`; also no set, an unknown token, or cells of another shape.
        SelfCheckError: a part that is run again does not give what a plain forward gives.
    """
    length = check_pair(clean_inputs, corrupt_inputs, tokens)
    wanted, ids = asked_layers(model, layers), known_tokens(model, token_ids)
    named = named_sets(tokens, sets, length)
    made = np.ones((len(wanted), len(named)), dtype=bool) if cells is None else np.asarray(cells)
    if made.shape != (len(wanted), len(named)):
        raise InterventionError(
            f"Cells are {made.shape}, of {len(wanted)} layers and {len(named)} sets.", remedy="Give one each."
        )
    source_inputs, target_inputs = source_and_target(clean_inputs, corrupt_inputs, direction, deepstack)
    with (
        _source(model, source_inputs, wanted, length) as (source, source_logits),
        prefix(model, target_inputs, layers=wanted, chunk=chunk, check=check) as held,
    ):
        run = _Grid(held, source, deepstack, ids)
        found = [
            [
                run.cell(layer, places) if asked else run.skipped
                for asked, places in zip(row, named.values(), strict=True)
            ]
            for row, layer in zip(made, wanted, strict=True)
        ]
        target_logits, spent = run.kept(held.logits), held.forwards
        clean, corrupt = source_and_target(run.kept(source_logits), target_logits, direction, deepstack)
    return PatchGrid(
        layers=wanted,
        sets=tuple(named),
        token_ids=ids,
        logits=np.array([[cell.logits for cell in row] for row in found]),
        clean=clean,
        corrupt=corrupt,
        leak=np.array([[cell.leak for cell in row] for row in found], dtype=np.float32),
        first_changed=np.array([[cell.first for cell in row] for row in found], dtype=np.int64),
        forwards=spent,
        direction=direction,
        deepstack=deepstack,
    )


@contextmanager
def _source(
    model: Any, inputs: Mapping[str, Any], layers: Sequence[int], length: int
) -> Iterator[tuple[LayerInputs, Tensor]]:
    """Layer inputs and last logits of the run that states are taken from, let go of at the end."""
    with torch.no_grad(), layer_inputs(model, length, layers) as found:
        logits = _last_logits(model, inputs)
    try:
        yield found, logits
    finally:
        found.states.clear()


def known_tokens(model: Any, token_ids: Sequence[int]) -> tuple[int, ...]:
    """The ids; raises `InterventionError` where one is not in the vocabulary, or none is given."""
    ids = tuple(int(one) for one in token_ids)
    size = model.get_output_embeddings().weight.shape[0]
    if not ids or min(ids) < 0 or max(ids) >= size:
        raise InterventionError(
            f"Tokens {list(ids)} are not all in a vocabulary of {size}.",
            remedy="Give the ids whose logits are followed, one at least.",
        )
    return ids


@dataclass(frozen=True, eq=False)
class _Cell:
    logits: Float[np.ndarray, " token"]
    leak: float
    first: int


class _Grid:
    """Runs cells of one grid: what the held run becomes with some states of the source."""

    def __init__(
        self, held: HeldPrompt, source: LayerInputs, deepstack: DeepStack, ids: Sequence[int]
    ) -> None:
        self._held, self._source, self._with = held, source, deepstack == "with"
        self._ids = list(ids)
        self.skipped = _Cell(np.full(len(ids), np.nan, dtype=np.float32), float("nan"), -1)

    def kept(self, logits: Float[Tensor, " vocabulary"]) -> Float[np.ndarray, " token"]:
        """Those that are followed: a grid of whole vocabularies would be gigabytes."""
        return logits[self._ids].cpu().numpy()

    @torch.no_grad()
    def cell(self, layer: int, places: Int[np.ndarray, " position"]) -> _Cell:
        """One set of positions at one layer."""
        own, other = self._held.states[layer], self._source.states[layer]
        index = torch.from_numpy(places).to(own.device)
        new, old = other[index].to(own.device), own[index]
        changed = (new != old).any(dim=-1).cpu().numpy()
        streams, later, still = self._streams(layer, places)
        if self._with:
            changed |= later
        if not changed.any():
            return _Cell(self.kept(self._held.logits), float("nan") if not later.any() else float("inf"), -1)
        first = int(places[changed].min())
        states = own[first:].clone()
        run = torch.from_numpy(places >= first).to(own.device)
        states[index[run] - first] = new[run]
        moved = float((new.float() - old.float()).norm())
        leak = 0.0 if self._with or not still else still / moved
        logits = self._held.rerun(first, layer=layer, states=states, streams=streams, last_alone=True)
        return _Cell(self.kept(logits), leak, first)

    def _streams(
        self, layer: int, places: Int[np.ndarray, " position"]
    ) -> tuple[dict[int, Tensor], np.ndarray, float]:
        """Patched streams still to come; at which of the places they change; the length of that change."""
        own, changed = self._held.inputs, np.zeros(len(places), dtype=bool)
        if own.visual is None:
            return {}, changed, 0.0
        mask = own.visual.cpu().numpy()[places]
        rows = torch.from_numpy(visual_rows(own.visual, places))
        found, total = {}, None
        for number in range(layer, len(own.streams)):
            here = own.streams[number]
            index = rows.to(here.device)
            difference = self._source.streams[number].to(here)[index] - here[index]
            changed[mask] |= (difference != 0).any(dim=-1).cpu().numpy()
            total = difference.float() if total is None else total + difference.float()
            if self._with:
                found[number] = here.index_copy(0, index, self._source.streams[number].to(here)[index])
        return found, changed, 0.0 if total is None else float(total.norm())
