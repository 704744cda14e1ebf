"""Attention of a few query rows, captured while the model computes as it always does.

The function registered with transformers' attention interface (`hooks.attention_calls`) delegates to
the registered SDPA function with unchanged arguments, so that the logits stay as they were, bit for bit.
Only the asked-for rows are recomputed, in float32, from the same queries and keys: after rotary positions
and key/value cache, before grouped-query heads are expanded. The vision tower is left alone. Where a
knockout is open too, rows are captured as it leaves them. Of hybrid models, layers of linear attention have
no rows: `Captured.layers` says which layers are covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from hooks.attention_calls import AttentionCall, attached, refuse_model
from hooks.blocking import first_query
from hooks.captured import Captured, CapturedBatch
from hooks.errors import CaptureError, SelfCheckError
from hooks.families import family_of
from hooks.kept_logits import keep_logits
from hooks.row_mass import GENERATED, LayerMass, RowPlan
from hooks.sinks import Sinks, SinkScores, sink_scores
from hooks.token_map import TokenMap

__all__ = ["CaptureCheck", "Rows", "attention_rows", "verify_capture"]

Rows = (
    str
    | int
    | Sequence[str]
    | Sequence[int]
    | Int[np.ndarray, " row"]
    | Mapping[str, Int[np.ndarray, " row"] | Sequence[int] | int]
)
"""Which query rows: positions, roles of the token map by name, or positions under names of one's own."""


class _Session:
    """One open capture of one model."""

    def __init__(
        self,
        plans: list[RowPlan],
        *,
        generated: bool,
        scores: SinkScores | None = None,
    ) -> None:
        self.plans = plans
        self.scores = scores
        self.generated = generated
        self.masses: list[dict[int, LayerMass]] = [{} for _ in plans]

    @torch.no_grad()
    def observe(self, call: AttentionCall) -> None:
        """Add the wanted rows of one call of one layer."""
        batch, heads = call.query.shape[:2]
        if batch != len(self.plans):
            raise CaptureError(
                f"The forward runs {batch} sequences, the capture has {len(self.plans)} token maps.",
                remedy="Give a list with one token map a sequence; beams cannot be captured.",
            )
        with torch.autocast(call.query.device.type, enabled=False):
            for row, (plan, masses) in enumerate(zip(self.plans, self.masses, strict=True)):
                mass = masses.get(call.layer)
                if mass is None:
                    sinks = None if self.scores is None else self.scores.mask(call.layer)
                    mass = masses[call.layer] = LayerMass(plan, heads, call.query.device, sinks)
                own = None if call.mask is None else call.mask[row if call.mask.shape[0] > 1 else 0]
                self._add(mass, call, row, own)

    def _add(self, mass: LayerMass, call: AttentionCall, row: int, mask: Tensor | None) -> None:
        q, k, v = call.query[row], call.key[row], call.value[row]
        forbidden = None if call.blocked is None else call.blocked.forbidden
        length, n_queries = mass.plan.length, q.shape[1]
        offset = first_query(length, n_queries, k.shape[1], None if mask is None else mask[0])
        if offset + n_queries <= length:
            mass.add_prompt_rows(offset, q, k, v, mask, call.scaling, forbidden)
        elif offset >= length:
            if self.generated:
                mass.add_generated_rows(offset, q, k, v, mask, call.scaling, forbidden)
        else:
            raise CaptureError(
                f"A forward of {n_queries} tokens from position {offset} passes the end at {length}.",
                remedy="Map the prompt that is run.",
            )


@contextmanager
def attention_rows(
    model: Any,
    tokens: TokenMap | Sequence[TokenMap],
    rows: Any,
    *,
    keep_rows: bool = False,
    token_mass: bool = True,
    value_weighted: bool = False,
    generated: bool = False,
    sinks: Sinks | None = None,
    check: bool = True,
) -> Iterator[Any]:
    """Capture the attention of some query rows during the forward inside the `with` block.

        with hooks.attention_rows(model, tokens, rows=tokens.question) as captured:
            model(**inputs)
        captured.unit_mass()  # [layer, head, role, unit]

    Args:
        model: a loaded model of a known family, with `attn_implementation="sdpa"`.
        tokens: the map of the prompt; a list of maps, one a sequence, for a left-padded batch.
        rows: positions (one role named `rows`), role names of the token map such as
            `("question", "last")`, or a mapping from role names to positions. For a batch, role names,
            or a list with one such value a sequence.
        keep_rows: also keep every row by itself, [layer, head, query, unit].
        token_mass: also sum by visual token, mean over heads, [layer, role, token].
        value_weighted: also weight attention by the length of the value vectors it moves.
        generated: also capture decode steps of `model.generate`, as role `generated`. Its rows are the
            generated tokens fed back, so the last one is not among them. One sequence only.
        sinks: of this model (`hooks.find_sinks`): also score every visual token, and sum by unit what goes
            to sink tokens. One sequence only, its prompt in one forward.
        check: raise where a captured row does not sum to 1 within 1e-4. Missing layers and rows raise
            in any case, for there is then nothing to return.

    Yields:
        `Captured`, or `CapturedBatch` for a list of maps; readable once the block has ended.

    Raises:
        UnsupportedModelError: the model cannot be observed exactly.
        CaptureError: the capture is used ambiguously: nested, two forwards, wrong batch.
        SelfCheckError: when the block ends, a layer or a row was not seen, or sums are off.
    """
    family = family_of(model)
    refuse_model(model, family)
    maps = [tokens] if isinstance(tokens, TokenMap) else list(tokens)
    if generated and len(maps) > 1:
        raise CaptureError(
            "Generated rows of a batch mix with the padding of sequences that ended.",
            remedy="Generate one sequence at a time.",
        )
    if sinks is not None and len(maps) > 1:
        raise CaptureError("Sinks are scored in one sequence only.", remedy="Run one prompt at a time.")
    plans = [
        RowPlan.of(
            one,
            roles,
            generated=generated,
            keep_rows=keep_rows,
            token_mass=token_mass,
            value_weighted=value_weighted,
        )
        for one, roles in zip(maps, _roles(maps, rows, isinstance(tokens, TokenMap)), strict=True)
    ]
    with ExitStack() as stack:
        scores = None if sinks is None else stack.enter_context(sink_scores(model, maps[0], sinks))
        results = [Captured(plan, family.attention_layers(model), scores) for plan in plans]
        session = _Session(plans, generated=generated, scores=scores)
        stack.enter_context(attached(model, family, watcher=session))
        yield results[0] if isinstance(tokens, TokenMap) else CapturedBatch(results)
    for result, masses in zip(results, session.masses, strict=True):
        result.finish(masses, check=check)


def _roles(maps: list[TokenMap], rows: Any, single: bool) -> list[dict[str, Int[np.ndarray, " row"]]]:
    """The rows of each sequence as role name -> positions."""
    per_sequence = (
        [rows] * len(maps)
        if single or _is_names(rows)
        else list(rows)
        if isinstance(rows, list | tuple)
        else None
    )
    if per_sequence is None or len(per_sequence) != len(maps):
        raise CaptureError(
            f"Rows for {len(maps)} sequences were asked for as {type(rows).__name__}.",
            remedy="Give role names, or a list with the rows of each sequence.",
        )
    return [_roles_of(one, wanted) for one, wanted in zip(maps, per_sequence, strict=True)]


def _is_names(rows: Any) -> bool:
    return isinstance(rows, str) or (
        isinstance(rows, list | tuple) and len(rows) > 0 and all(isinstance(name, str) for name in rows)
    )


def _roles_of(tokens: TokenMap, rows: Any) -> dict[str, Int[np.ndarray, " row"]]:
    if _is_names(rows):
        names = [rows] if isinstance(rows, str) else rows
        return {name: tokens.rows(name) for name in names}
    named = rows if isinstance(rows, Mapping) else {"rows": rows}
    if GENERATED in named:
        raise CaptureError(f"{GENERATED!r} is not a role of the prompt.", remedy="Pass generated=True.")
    return {name: np.atleast_1d(np.asarray(wanted)).astype(np.int64) for name, wanted in named.items()}


@dataclass(frozen=True)
class CaptureCheck:
    """What a capture did to one forward; the application writes it into a run's manifest.

    Attributes:
        max_logit_difference: largest absolute difference between logits with and without capture, at each
            sequence's captured rows and last position. 0.0 where capture leaves the model as it was.
        identical: whether those logits are equal bit for bit.
        layers, heads: how many were observed.
        max_row_sum_error: largest distance from 1 of a captured row's sum.
        positions: how many positions' logits were compared, over all sequences.
    """

    max_logit_difference: float
    identical: bool
    layers: int
    heads: int
    max_row_sum_error: float
    positions: int


def verify_capture(
    model: Any, inputs: Mapping[str, Any], tokens: TokenMap | Sequence[TokenMap], rows: Rows | list[Any]
) -> CaptureCheck:
    """Run one forward without capture and one with it, and compare.

    A model that does not know `logits_to_keep` is taught it (`hooks.kept_logits`).

    Args:
        model, tokens, rows: as for `attention_rows`.
        inputs: what the processor returned, on the model's device.

    Raises:
        SelfCheckError: as `attention_rows`, and where logits are not finite.
    """
    keep_logits(model)
    maps = [tokens] if isinstance(tokens, TokenMap) else list(tokens)
    wanted = _roles(maps, rows, isinstance(tokens, TokenMap))
    last = len(maps[0]) - 1
    own = [np.unique(np.concatenate([[last], *roles.values()])).astype(np.int64) for roles in wanted]
    # Logits of a whole prompt at a vocabulary of 150,000 would be gigabytes; later rows see all layers.
    keep = np.unique(np.concatenate(own))
    positions = torch.from_numpy(keep)
    with torch.no_grad():
        plain = model(**inputs, logits_to_keep=positions, use_cache=False).logits
        with attention_rows(model, tokens, rows) as captured:
            observed = model(**inputs, logits_to_keep=positions, use_cache=False).logits
    # A position asked for in one sequence can be padding in another, whose logits there are nobody's.
    compared = torch.from_numpy(np.stack([np.isin(keep, some) for some in own])).to(plain.device)
    plain, observed = plain[compared], observed[compared]
    difference = float((plain.float() - observed.float()).abs().max())
    if not np.isfinite(difference):
        raise SelfCheckError(
            "The model's logits are not finite on this input.", remedy="Load it in bfloat16 or float32."
        )
    sequences = [captured] if isinstance(captured, Captured) else [captured[i] for i in range(len(maps))]
    return CaptureCheck(
        max_logit_difference=difference,
        identical=bool(torch.equal(plain, observed)),
        layers=len(sequences[0].layers),
        heads=sequences[0].heads,
        max_row_sum_error=max(sequence.max_row_sum_error for sequence in sequences),
        positions=sum(len(some) for some in own),
    )
