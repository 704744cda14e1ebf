"""What the suite of all families compares with: counts, eager attention, a tower without attention."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

import hooks
from hooks import Kind
from hooks.features import wrapped_encoders

from .family_bench import FamilyBench

__all__ = [
    "ROLES",
    "TOLERANCE",
    "additive_mask",
    "covered",
    "eager_attention",
    "encoded",
    "expect_captured",
    "expect_encoder",
    "expect_map",
    "kind_of",
    "near",
    "without_attention",
]

ROLES = ("question", "options", "last")
TOLERANCE = 1e-5


def expect_map(bench: FamilyBench, inputs: Mapping[str, Any], tokens: hooks.TokenMap, *frames: int) -> None:
    """Counts by the prompt's ids, slots by the frames given, places by the units' grids."""
    ids = inputs["input_ids"].numpy()[0]
    stands = np.isin(ids, list(bench.family.placeholders(bench.model).values()))
    stands &= tokens.kind != Kind.PADDING
    visual = np.isin(tokens.kind, (Kind.VIDEO, Kind.IMAGE))
    beside = np.isin(tokens.kind, (Kind.DELIMITER, Kind.AUDIO))
    assert not (visual & ~stands).any(), "a visual token that is no placeholder"
    assert not (stands & ~visual & ~beside).any(), "a placeholder that is nothing"
    assert len(tokens.visual) == tokens.tokens_per_unit.sum() == visual.sum()
    videos = [source for source in np.unique(tokens.unit_source) if kind_of(tokens, source) == Kind.VIDEO]
    assert len(videos) == len(frames)
    per_unit = bench.family.slots_per_unit(bench.model)
    for source, count in zip(videos, frames, strict=True):
        slots = tokens.unit_slots[tokens.unit_source == source]
        assert len(slots) == math.ceil(count / per_unit), "units of a video"
        padded = np.full(slots.size, -1)
        padded[:count] = np.arange(count)
        assert slots.ravel().tolist() == padded.tolist(), "an odd last frame leaves a slot empty"
    for unit in range(tokens.n_units):
        at = tokens.visual[tokens.unit_tokens(unit)]
        rows, cols = tokens.unit_grid[unit]
        places = tokens.row[at] * cols + tokens.col[at]
        assert (tokens.unit[at] == unit).all()
        assert len(np.unique(places)) == len(places) <= rows * cols, "a place of the grid taken twice"
        assert (tokens.row[at] < rows).all()
        assert (tokens.col[at] < cols).all()


def kind_of(tokens: hooks.TokenMap, source: int) -> int:
    units = np.flatnonzero(tokens.unit_source == source)
    return int(tokens.kind[tokens.visual[tokens.unit_first_token[units[0]]]])


def encoded(bench: FamilyBench, inputs: Mapping[str, Any], tokens: hooks.TokenMap) -> np.ndarray:
    """What enters the language model at the visual tokens: all finite, and as many as the map has."""
    with torch.no_grad(), hooks.visual_features(bench.model, tokens) as features:
        logits = bench.model(**inputs).logits
    assert bool(logits.isfinite().all())
    assert len(features["projector"]) == tokens.n_visual
    return features["projector"]


def expect_encoder(bench: FamilyBench, inputs: Mapping[str, Any], tokens: hooks.TokenMap) -> None:
    """Each unit's tokens are the encoder's outputs from where the map says on; some models add them to the
    placeholder's own embedding."""
    outputs: list[np.ndarray] = []

    def watch(_encoder: hooks.families.Encoder) -> Callable:
        def watching(_arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
            output = call()
            outputs.append(_rows(output))
            return output

        return watching

    with wrapped_encoders(bench.model, watch):
        entering = encoded(bench, inputs, tokens)
    (rows,) = outputs
    ids = torch.from_numpy(tokens.input_ids[tokens.visual])
    placeholder = bench.family.embedding(bench.model)(ids).detach().numpy()
    starts = zip(tokens.unit_feature_start, tokens.tokens_per_unit, strict=True)
    wanted = np.concatenate([rows[start : start + size] for start, size in starts])
    assert len(wanted) == len(entering)
    error = min(np.abs(entering - wanted).max(), np.abs(entering - wanted - placeholder).max())
    assert error <= 1e-6, f"the encoder's outputs lie elsewhere: {error:.1e}"


def _rows(output: Any) -> np.ndarray:
    """Of an encoder's output the features, whatever they are wrapped in, one row each."""
    found = getattr(output, "pooler_output", None)
    parts = [found] if isinstance(found, torch.Tensor) else list(output if found is None else found)
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]).numpy()


@contextmanager
def without_attention(vision: torch.nn.Module) -> Iterator[None]:
    """The vision tower with nothing coming out of its attention: what patches tell each other is gone."""
    tops: list[str] = []
    with ExitStack() as stack:
        for name, module in vision.named_modules():
            nested = any(name.startswith(f"{top}.") for top in tops)
            if type(module).__name__.endswith("Attention") and not nested:
                tops.append(name)
                stack.callback(module.register_forward_hook(_nothing).remove)
        assert tops, "no attention found in the vision tower"
        yield


def _nothing(_module: torch.nn.Module, _args: tuple, output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return torch.zeros_like(output)
    return torch.zeros_like(output[0]), *output[1:]


def eager_attention(bench: FamilyBench, inputs: Mapping[str, Any]) -> np.ndarray:
    """Full attention of the layers that attend, [layer, batch, head, query, key]."""
    with torch.no_grad():
        found = bench.eager(**inputs, output_attentions=True).attentions
    found = [one for one in found if one is not None]
    assert len(found) == len(bench.family.attention_layers(bench.model))
    return torch.stack(found).double().numpy()


def expect_captured(
    captured: Any, attention: np.ndarray, tokens: hooks.TokenMap, roles: Sequence[str] = ROLES
) -> None:
    """All that was captured against full attention [layer, head, query, key] of one sequence."""
    of_unit = [tokens.visual[tokens.unit_tokens(unit)] for unit in range(tokens.n_units)]
    for role in roles:
        rows = attention[:, :, tokens.rows(role)]
        by_unit = np.stack([rows[..., at].sum(-1) for at in of_unit], axis=-1)
        for found, wanted, name in (
            (captured.unit_mass(role), by_unit.mean(2), "unit"),
            (captured.token_mass(role), rows[..., tokens.visual].mean(axis=(1, 2)), "token"),
            (captured.rest_mass(role), 1 - rows[..., tokens.visual].sum(-1).mean(2), "rest"),
        ):
            error = np.abs(found - wanted).max()
            assert error <= TOLERANCE, f"{name} mass of {role}: {error:.2e} > {TOLERANCE}"


def covered(bench: FamilyBench) -> str:
    """What the table says of something that is about attention: hybrids have it in some layers alone."""
    attending, every = len(bench.family.attention_layers(bench.model)), len(bench.family.layers(bench.model))
    return "yes" if attending == every else "attending layers"


def additive_mask(bench: FamilyBench, blocked: np.ndarray) -> Callable:
    """A hook that adds minus infinity at blocked pairs to whatever mask an eager layer is given."""
    least = torch.finfo(torch.float32).min
    n = len(blocked)

    def before(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple:
        call = inspect.signature(module.forward).bind(*args, **kwargs)
        mask = call.arguments.get("attention_mask")
        mask = torch.full((n, n), least).triu(1)[None, None] if mask is None else mask
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, least)
        call.arguments["attention_mask"] = mask.masked_fill(torch.from_numpy(blocked), least)
        return call.args, call.kwargs

    return before


def near(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    scale, error = float(wanted.abs().max()), float((found - wanted).abs().max())
    assert error <= 2 * TOLERANCE * scale, f"{what}: {error:.2e} > {2 * TOLERANCE * scale:.2e}"
