"""From a layer's queries and keys to attention mass per unit and token, for a few query rows.

Only the asked-for rows of the attention matrix are ever formed, in float32, one key/value head's
group of query heads at a time, and they are reduced at once. Peak extra memory is
`group * rows * keys * 4` bytes for the scores (rows in chunks of `ROW_CHUNK`), linear in the keys.

Legend: g query heads that share a key/value head, r rows, d head dimension, k keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
from einops import rearrange, reduce
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from hooks.errors import CaptureError
from hooks.token_map import TokenMap

__all__ = ["GENERATED", "ROW_CHUNK", "LayerMass", "RowPlan", "blocked_keys", "exponentials", "unit_runs"]

GENERATED = "generated"
"""The role of query rows past the prompt: tokens that were generated and fed back."""

ROW_CHUNK = 128
"""Rows whose scores are held at once: bounds memory when thousands of rows are asked for."""

Forbidden = Callable[[Int[np.ndarray, " r"], slice, int], Bool[np.ndarray, "g r k"] | None]
"""Which keys are barred, by rows' positions, a run of heads and the number of keys: `BlockPlan.forbidden`."""


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Which rows of one sequence are wanted, and how keys are binned. Same for all layers.

    Attributes:
        length: prompt length, padding included.
        roles: names, `GENERATED` last where decode steps are wanted.
        positions: wanted prompt positions, ascending, once each.
        weights: a row's share in each role's mean, [role, row].
        visual: positions of visual tokens.
        audio: positions of audio tokens.
        segments: (first token, units, tokens a unit) for runs of units of equal size, on the token axis.
        n_units: number of units.
        keep_rows, token_mass, value_weighted: what is asked for beside mass per role and unit.
    """

    length: int
    roles: tuple[str, ...]
    positions: Int[np.ndarray, " row"]
    weights: Float[Tensor, "role row"]
    visual: Int[Tensor, " token"]
    audio: Int[Tensor, " sound_token"]
    segments: tuple[tuple[int, int, int], ...]
    n_units: int
    keep_rows: bool
    token_mass: bool
    value_weighted: bool
    _placed: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tokens: TokenMap,
        roles: Mapping[str, Int[np.ndarray, " row"]],
        *,
        generated: bool,
        keep_rows: bool,
        token_mass: bool,
        value_weighted: bool,
    ) -> RowPlan:
        """Plan the rows of one sequence.

        Raises:
            CaptureError: a role is empty, or a position lies outside the prompt.
        """
        for name, wanted in roles.items():
            if len(wanted) == 0:
                raise CaptureError(f"Role {name!r} has no rows.", remedy="Leave it out, or give positions.")
            if wanted.min() < 0 or wanted.max() >= len(tokens):
                raise CaptureError(
                    f"Role {name!r} asks for rows {wanted.min()} to {wanted.max()} of {len(tokens)}.",
                    remedy="Positions count from 0 within the padded prompt.",
                )
        positions = np.unique(np.concatenate([*roles.values(), np.empty(0, dtype=np.int64)]))
        names = (*roles, GENERATED) if generated else tuple(roles)
        weights = torch.zeros(len(names), len(positions))
        for index, wanted in enumerate(roles.values()):
            unique = np.unique(wanted)
            weights[index, np.searchsorted(positions, unique)] = 1.0 / len(unique)
        return cls(
            length=len(tokens),
            roles=names,
            positions=positions.astype(np.int64),
            weights=weights,
            visual=torch.from_numpy(tokens.visual),
            audio=torch.from_numpy(tokens.audio),
            segments=unit_runs(tokens),
            n_units=tokens.n_units,
            keep_rows=keep_rows,
            token_mass=token_mass,
            value_weighted=value_weighted,
        )

    def placed(self, device: torch.device) -> tuple[Int[Tensor, " token"], Float[Tensor, " key"]]:
        """Visual positions and the indicator of all other prompt positions, on a layer's device."""
        if device not in self._placed:
            visual = self.visual.to(device)
            other = torch.ones(self.length, device=device)
            other[visual] = 0.0
            self._placed[device] = visual, other
        return self._placed[device]


def unit_runs(tokens: TokenMap) -> tuple[tuple[int, int, int], ...]:
    """Runs of units of equal size on the `token` axis: (first token, units, tokens a unit) of each."""
    segments, first = [], 0
    for size, run in groupby(tokens.tokens_per_unit.tolist()):
        units = len(list(run))
        segments.append((first, units, size))
        first += units * size
    return tuple(segments)


class LayerMass:
    """What one layer's rows of one sequence have added up to so far."""

    def __init__(
        self,
        plan: RowPlan,
        heads: int,
        device: torch.device,
        sinks: Bool[Tensor, " token"] | None = None,
    ) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, device=device)

        roles = len(plan.roles)
        self.plan = plan
        self.seen = np.zeros(len(plan.positions), dtype=bool)
        self.decoded: list[int] = []
        self.units = zeros(heads, roles, plan.n_units)
        self.rest = zeros(heads, roles)
        self.audio = zeros(heads, roles) if len(plan.audio) else None
        self.tokens = zeros(roles, len(plan.visual)) if plan.token_mass else None
        self.value_units = zeros(heads, roles, plan.n_units) if plan.value_weighted else None
        by_token = plan.value_weighted and plan.token_mass
        self.value_tokens = zeros(roles, len(plan.visual)) if by_token else None
        self.value_rest = zeros(heads, roles) if plan.value_weighted else None
        self.sinks = sinks
        self.sink_units = None if sinks is None else zeros(heads, roles, plan.n_units)
        self.kept: list[tuple[Tensor, ...]] = []
        """Of each run of rows: units, rest, and where sinks are scored the part of units on them."""

    def add_prompt_rows(
        self,
        offset: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        scaling: float,
        forbidden: Forbidden | None = None,
    ) -> None:
        """Add the wanted rows among the queries at prompt positions `offset` and after.

        Raises:
            CaptureError: a row was seen before: a second forward within one capture.
        """
        positions = self.plan.positions
        start, end = np.searchsorted(positions, [offset, offset + q.shape[1]])
        if self.seen[start:end].any():
            raise CaptureError(
                f"Row {positions[start:end][self.seen[start:end]][0]} passed twice in one capture.",
                remedy="Open a new hooks.attention_rows for each forward.",
            )
        for first in range(start, end, ROW_CHUNK):
            last = min(end, first + ROW_CHUNK)
            rows = torch.from_numpy(positions[first:last] - offset).to(q.device)
            weights = self.plan.weights[:, first:last].to(q.device)
            self._add(rows, weights, q, k, v, mask, scaling, _barred(forbidden, positions[first:last]))
        self.seen[start:end] = True

    def add_generated_rows(
        self,
        offset: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        scaling: float,
        forbidden: Forbidden | None = None,
    ) -> None:
        """Add queries past the prompt to the sum of the generated role."""
        rows = torch.arange(q.shape[1], device=q.device)
        weights = torch.zeros(len(self.plan.roles), len(rows), device=q.device)
        weights[-1] = 1.0
        positions = np.arange(offset, offset + len(rows))
        self._add(rows, weights, q, k, v, mask, scaling, _barred(forbidden, positions))
        self.decoded += positions.tolist()

    def _add(
        self,
        rows: Int[Tensor, " r"],
        weights: Float[Tensor, "role r"],
        q: Shaped[Tensor, "head query d"],
        k: Shaped[Tensor, "kv_head k d"],
        v: Shaped[Tensor, "kv_head k d"],
        mask: Shaped[Tensor, "mask_head query k"] | None,
        scaling: float,
        barred: Callable[[slice, int], Bool[np.ndarray, "g r k"] | None] | None,
    ) -> None:
        heads, n_keys = q.shape[0], k.shape[1]
        group = heads // k.shape[0]
        visual, other = self.plan.placed(q.device)
        if n_keys != self.plan.length:  # keys of generated tokens are not video; a chunk has fewer keys
            other = torch.nn.functional.pad(other, (0, n_keys - len(other)), value=1.0)
        if n_keys < self.plan.length:  # a chunk of the prompt: later tokens are not there yet
            visual = visual[: int((self.plan.visual < n_keys).sum())]
        # Not index_select: it would first copy all of a transposed tensor.
        wanted = q[:, rows].float().mul_(scaling)
        blocked = blocked_keys(rows, q.shape[1], n_keys)
        kept = []
        for index in range(k.shape[0]):
            here = slice(index * group, (index + 1) * group)
            barred_here = None if barred is None else barred(here, n_keys)
            norm, scores = exponentials(wanted[here], k[index], rows, mask, here, blocked, barred_here)
            self._reduce(weights / norm, scores, v[index], here, visual, other)
            if self.plan.keep_rows:
                kept.append(self._rows(scores, norm, visual, other))
            del scores  # before the next group's are made
        if kept:
            self.kept.append(tuple(torch.cat(parts) for parts in zip(*kept, strict=True)))

    def _reduce(
        self,
        weights: Float[Tensor, "g role r"],
        scores: Float[Tensor, "g r k"],
        values: Shaped[Tensor, "k d"],
        here: slice,
        visual: Int[Tensor, " token"],
        other: Float[Tensor, " k"],
    ) -> None:
        """Bin the rows' mean; `weights` hold softmax's division and the mean over a role's rows in one.

        What is not video is summed by itself, so that units and rest adding up to 1 is a check and not a
        definition.
        """
        mean = torch.bmm(weights, scores)
        per_token = mean.index_select(-1, visual)
        self.units[here] += self._per_unit(per_token)
        if self.sinks is not None and self.sink_units is not None:
            self.sink_units[here] += self._per_unit(
                per_token * self.sinks[: per_token.shape[-1]].to(per_token.device)
            )
        self.rest[here] += mean @ other
        if self.audio is not None:
            heard = self.plan.audio[self.plan.audio < mean.shape[-1]].to(mean.device)
            self.audio[here] += mean.index_select(-1, heard).sum(dim=-1)
        if self.tokens is not None:
            self.tokens[:, : per_token.shape[-1]] += per_token.sum(dim=0) / self.units.shape[0]
        if self.value_units is not None and self.value_rest is not None:
            weighted = mean * torch.linalg.vector_norm(values.float(), dim=-1)
            weighted_token = weighted.index_select(-1, visual)
            self.value_units[here] += self._per_unit(weighted_token)
            if self.value_tokens is not None:
                shared = weighted_token.sum(dim=0) / self.units.shape[0]
                self.value_tokens[:, : shared.shape[-1]] += shared
            self.value_rest[here] += weighted @ other

    def _rows(self, scores: Tensor, norm: Tensor, visual: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        """Mass per row, [g, r, unit], what is not video, [g, r], and the part of the first on sinks, if they
        are scored; a few rows at a time to save memory."""
        norm = rearrange(norm, "g 1 r -> g r")
        sinks = None if self.sinks is None else self.sinks[: len(visual)].to(scores.device)
        units, on_sinks = [], []
        for part in scores.split(max(1, scores.shape[1] // 8), dim=1):
            per_token = part[..., visual]
            units.append(self._per_unit(per_token))
            if sinks is not None:
                on_sinks.append(self._per_unit(per_token * sinks))
        found = torch.cat(units, dim=1) / norm[..., None], (scores @ other) / norm
        return (*found, torch.cat(on_sinks, dim=1) / norm[..., None]) if on_sinks else found

    def _per_unit(self, per_token: Float[Tensor, "*axes token"]) -> Float[Tensor, "*axes unit"]:
        """Sum of each unit's tokens. Units are contiguous, so runs of equal size are one reshape."""
        missing = len(self.plan.visual) - per_token.shape[-1]
        if missing:
            per_token = torch.nn.functional.pad(per_token, (0, missing))
        sums = [
            reduce(
                per_token[..., first : first + units * size],
                "... (unit token) -> ... unit",
                "sum",
                unit=units,
            )
            for first, units, size in self.plan.segments
        ]
        if not sums:
            return per_token.new_zeros(*per_token.shape[:-1], 0)
        return torch.cat(sums, dim=-1) if len(sums) > 1 else sums[0]


def _barred(
    forbidden: Forbidden | None, positions: Int[np.ndarray, " r"]
) -> Callable[[slice, int], Bool[np.ndarray, "g r k"] | None] | None:
    """What a knockout bars for some rows, by a run of heads and the number of keys."""
    return None if forbidden is None else lambda here, n_keys: forbidden(positions, here, n_keys)


def blocked_keys(rows: Int[Tensor, " r"], n_queries: int, n_keys: int) -> tuple[int, Tensor] | None:
    """Keys a row may not see where there is no mask, as (first column, [r, columns]); None for none.

    The delegate's own rule: one query sees every key; several see the keys up to their own index
    (keys past the queries are empty places of a static cache).
    """
    if n_queries == 1:
        return None
    first = int(rows.min()) + 1
    columns = torch.arange(first, n_keys, device=rows.device)
    return first, columns[None, :] > rows[:, None]


def exponentials(
    q: Float[Tensor, "g r d"],
    k: Shaped[Tensor, "k d"],
    rows: Int[Tensor, " r"],
    mask: Tensor | None,
    here: slice,
    blocked: tuple[int, Tensor] | None,
    barred: Bool[np.ndarray, "g r k"] | None = None,
) -> tuple[Float[Tensor, "g 1 r"], Float[Tensor, "g r k"]]:
    """Softmax before its division: the sums, and the exponentials, made in place of the scores."""
    scores = rearrange(rearrange(q, "g r d -> (g r) d") @ k.float().T, "(g r) k -> g r k", g=q.shape[0])
    _mask_(scores, rows, mask, here, blocked)
    if barred is not None:
        scores.masked_fill_(torch.from_numpy(barred).to(scores.device), float("-inf"))
    scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
    return reduce(scores, "g r k -> g 1 r", "sum"), scores


def _mask_(
    scores: Float[Tensor, "g r k"],
    rows: Int[Tensor, " r"],
    mask: Tensor | None,
    here: slice,
    blocked: tuple[int, Tensor] | None,
) -> None:
    """Forbid, in place, what the layer forbids: the given mask (boolean or additive), else causality."""
    if mask is None:
        if blocked is not None:
            scores[..., blocked[0] :].masked_fill_(blocked[1], float("-inf"))
        return
    own = mask if mask.shape[0] == 1 else mask[here]
    own = own[:, rows, : scores.shape[-1]]
    if own.dtype == torch.bool:
        scores.masked_fill_(~own, float("-inf"))
    else:
        scores.add_(own.float())
