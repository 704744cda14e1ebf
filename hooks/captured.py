"""What a capture gives back: attention mass as arrays with named axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from hooks.errors import CaptureError, SelfCheckError
from hooks.row_mass import GENERATED, LayerMass, RowPlan
from hooks.sinks import SinkScores

__all__ = ["Captured", "CapturedBatch"]

_SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class _Arrays:
    units: Float[np.ndarray, "layer head role unit"]
    rest: Float[np.ndarray, "layer head role"]
    audio: Float[np.ndarray, "layer head role"] | None
    tokens: Float[np.ndarray, "layer role token"] | None
    value_units: Float[np.ndarray, "layer head role unit"] | None
    value_rest: Float[np.ndarray, "layer head role"] | None
    value_tokens: Float[np.ndarray, "layer role token"] | None
    sink_units: Float[np.ndarray, "layer head role unit"] | None
    row_units: Float[np.ndarray, "layer head query unit"] | None
    row_rest: Float[np.ndarray, "layer head query"] | None
    row_sink_units: Float[np.ndarray, "layer head query unit"] | None
    row_positions: Int[np.ndarray, " query"]
    row_counts: Int[np.ndarray, " role"]


class Captured:
    """Attention mass of one sequence, readable once its `with` block has ended.

    Every mass is a share of *all* attention of a query row: units and rest of a row sum to 1. A role's
    mass is the mean over its rows. All arrays are float32 on the CPU.
    """

    def __init__(self, plan: RowPlan, layers: tuple[int, ...], scores: SinkScores | None = None) -> None:
        self._plan, self._scores = plan, scores
        self._arrays: _Arrays | None = None
        self.layers = layers
        """Decoder layers by number, in order: the `layer` axis. In hybrid models those that attend."""
        self.heads = 0
        """Query heads: length of the `head` axis."""
        self.roles = plan.roles
        """Names along the `role` axis."""
        self.max_row_sum_error = float("nan")
        """Largest distance from 1 of units plus rest, over layers, heads and roles."""

    @property
    def row_positions(self) -> Int[np.ndarray, " query"]:
        """Position of each captured row, prompt rows first: the `query` axis."""
        return self._read().row_positions

    @property
    def row_counts(self) -> dict[str, int]:
        """How many rows each role's mean is over; 0 for `generated` when no token was fed back."""
        return dict(zip(self.roles, self._read().row_counts.tolist(), strict=True))

    def unit_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role unit"]:
        """Attention to each temporal unit, [layer, head, role, unit]; [layer, head, unit] for one role."""
        return self._of_role(self._read().units, role, axis=2)

    def rest_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role"]:
        """Attention to all that is not video or image, [layer, head, role]; [layer, head] for one role."""
        return self._of_role(self._read().rest, role, axis=2)

    def audio_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role"]:
        """Attention to the audio tokens, a part of `rest_mass`, [layer, head, role] or [layer, head].

        Raises:
            CaptureError: the prompt holds no sound.
        """
        audio = self._read().audio
        if audio is None:
            raise CaptureError(
                "The prompt holds no sound.",
                remedy="Weave it in (docs/families.md), or do not ask for its mass.",
            )
        return self._of_role(audio, role, axis=2)

    def token_mass(self, role: str | None = None) -> Float[np.ndarray, "layer *role token"]:
        """Attention to each visual token, mean over heads, [layer, role, token] or [layer, token]."""
        return self._of_role(self._asked("tokens", "token_mass"), role, axis=1)

    def value_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role unit"]:
        """Value-weighted attention to each unit: the sum over its tokens j of a_j * ||v_j||_2.

        Attention times the length of the value vector it moves, per key/value head and not normalised:
        it compares units within a layer and head. After CAPA (arXiv 2602.00247), which argues that raw
        attention is an imperfect proxy for contribution; the output projection is not applied here.
        """
        return self._of_role(self._asked("value_units", "value_weighted"), role, axis=2)

    def value_token_mass(self, role: str | None = None) -> Float[np.ndarray, "layer *role token"]:
        """`value_mass` of each visual token, mean over heads; asks for `token_mass` as well."""
        self._asked("value_units", "value_weighted")
        return self._of_role(self._asked("value_tokens", "token_mass"), role, axis=1)

    def value_rest_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role"]:
        """Value-weighted attention to all that is not video or image; adds to `value_mass`."""
        return self._of_role(self._asked("value_rest", "value_weighted"), role, axis=2)

    def sink_unit_mass(self, role: str | None = None) -> Float[np.ndarray, "layer head *role unit"]:
        """The part of `unit_mass` that goes to sink tokens: less it, attention is that on other tokens."""
        return self._of_role(self._asked("sink_units", "sinks"), role, axis=2)

    def sink_score(self) -> Float[np.ndarray, "layer token"]:
        """How much of a sink each visual token is as it enters each layer: `hooks.sinks`, phi."""
        self._asked("sink_units", "sinks")
        assert self._scores is not None
        return self._scores.score[list(self.layers)]

    def row_unit_mass(self) -> Float[np.ndarray, "layer head query unit"]:
        """Attention of every captured row to each unit, before any mean over rows."""
        return self._asked("row_units", "keep_rows")

    def row_sink_unit_mass(self) -> Float[np.ndarray, "layer head query unit"]:
        """The part of `row_unit_mass` that goes to sink tokens."""
        self._asked("row_units", "keep_rows")
        return self._asked("row_sink_units", "sinks")

    def row_rest_mass(self) -> Float[np.ndarray, "layer head query"]:
        """Attention of every captured row to all that is not video or image."""
        return self._asked("row_rest", "keep_rows")

    def _read(self) -> _Arrays:
        if self._arrays is None:
            raise CaptureError(
                "The capture has no result yet.",
                remedy="Run the forward inside the with block and read after it, if it ended without error.",
            )
        return self._arrays

    def _asked(self, name: str, option: str) -> np.ndarray:
        array = getattr(self._read(), name)
        if array is None:
            raise CaptureError(
                f"{option} was not asked for.",
                remedy="Pass hooks.find_sinks(...) as sinks to hooks.attention_rows."
                if option == "sinks"
                else f"Pass {option}=True to hooks.attention_rows.",
            )
        return array

    def _of_role(self, array: np.ndarray, role: str | None, axis: int) -> np.ndarray:
        if role is None:
            return array
        if role not in self.roles:
            raise CaptureError(
                f"No role {role!r} was captured.", remedy=f"Captured: {', '.join(self.roles)}."
            )
        return array.take(self.roles.index(role), axis=axis)

    def finish(self, layers: dict[int, LayerMass], *, check: bool) -> None:
        """Bring the layers' sums to the CPU and verify them. Called when the `with` block ends.

        Raises:
            SelfCheckError: a layer or row was never seen, layers disagree about the rows that passed,
                or a row does not sum to 1.
        """
        missing = [layer for layer in self.layers if layer not in layers]
        if missing:
            raise SelfCheckError(
                f"Layers {missing} of {len(self.layers)} never passed through the capture.",
                remedy="Run one forward inside the with block; if you did, those layers bypass the attention"
                " interface and this model cannot be captured.",
            )
        ordered = [layers[layer] for layer in self.layers]
        self._check_rows(ordered)
        counts = np.array([int((row > 0).sum()) for row in self._plan.weights])
        if GENERATED in self.roles:
            counts[-1] = len(ordered[0].decoded)
            _average_generated(ordered, int(counts[-1]))
        self.heads = ordered[0].units.shape[0]
        self._arrays = self._stack(ordered, counts)
        self._check_sums(self._arrays, check)

    def _check_rows(self, ordered: list[LayerMass]) -> None:
        for layer, mass in zip(self.layers, ordered, strict=True):
            if not mass.seen.all():
                absent = self._plan.positions[~mass.seen]
                raise SelfCheckError(
                    f"Rows {absent[:8].tolist()} ({len(absent)} in all) never passed layer {layer}.",
                    remedy="They lie in a cached prefix: capture the forward that computes them.",
                )
            if mass.decoded != ordered[0].decoded:
                raise SelfCheckError(
                    f"Layer {layer} saw other generated rows than layer {self.layers[0]}.",
                    remedy="Layers were skipped while generating: capture with early exit switched off.",
                )

    def _stack(self, ordered: list[LayerMass], counts: Int[np.ndarray, " role"]) -> _Arrays:
        def stack(name: str) -> np.ndarray | None:
            if getattr(ordered[0], name) is None:
                return None
            return np.stack([getattr(mass, name).detach().cpu().numpy() for mass in ordered])

        units, rest = stack("units"), stack("rest")
        assert units is not None
        assert rest is not None
        kept = self._plan.keep_rows

        def rows(part: int) -> np.ndarray | None:
            if not kept or part >= len(ordered[0].kept[0]):
                return None
            return np.stack(
                [torch.cat([pair[part] for pair in mass.kept], dim=1).cpu().numpy() for mass in ordered]
            )

        return _Arrays(
            units=units,
            rest=rest,
            audio=stack("audio"),
            tokens=stack("tokens"),
            value_units=stack("value_units"),
            value_rest=stack("value_rest"),
            value_tokens=stack("value_tokens"),
            sink_units=stack("sink_units"),
            row_units=rows(0),
            row_rest=rows(1),
            row_sink_units=rows(2),
            row_positions=np.concatenate(
                [self._plan.positions, np.array(ordered[0].decoded, dtype=np.int64)]
            ),
            row_counts=counts,
        )

    def _check_sums(self, arrays: _Arrays, check: bool) -> None:
        errors = np.abs(arrays.units.sum(axis=-1) + arrays.rest - 1.0)[:, :, arrays.row_counts > 0]
        self.max_row_sum_error = float(errors.max()) if errors.size else 0.0
        if check and not self.max_row_sum_error <= _SUM_TOLERANCE:  # also where it is NaN
            layer, head, _ = np.unravel_index(np.argmax(np.nan_to_num(errors, nan=np.inf)), errors.shape)
            raise SelfCheckError(
                f"Attention of layer {layer}, head {head} misses 1 by {self.max_row_sum_error:.3g}.",
                remedy="A NaN means a row with every key masked, or overflow in the model's number type.",
            )


@torch.inference_mode()  # the sums may be inference tensors, which nothing else may change in place
def _average_generated(ordered: list[LayerMass], count: int) -> None:
    """Turn the generated role's sums into means; NaN where nothing was fed back: undefined is not zero."""
    for mass in ordered:
        for tensor in (
            mass.units,
            mass.rest,
            mass.audio,
            mass.value_units,
            mass.value_rest,
            mass.sink_units,
        ):
            if tensor is not None:
                tensor[:, -1] /= count
        for tensor in (mass.tokens, mass.value_tokens):
            if tensor is not None:
                tensor[-1] /= count


class CapturedBatch:
    """The captures of a batch, one for each sequence in order: `captured[row]`."""

    def __init__(self, sequences: list[Captured]) -> None:
        self._sequences = sequences

    def __getitem__(self, row: int) -> Captured:
        return self._sequences[row]

    def __len__(self) -> int:
        return len(self._sequences)
