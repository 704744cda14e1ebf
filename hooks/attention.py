"""Attention of a few query rows, captured while the model computes as it always does.

A function registered with transformers' attention interface delegates to the registered SDPA
function with unchanged arguments, so that the logits stay as they were, bit for bit, and recomputes
only the asked-for rows in float32 from the same queries and keys: after rotary positions and
key/value cache, before grouped-query heads are expanded. The vision tower is left alone. Models
whose attention does not go through the interface, or bends the softmax (sliding windows, soft caps,
learned sinks), are refused by name and not mis-measured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from hooks.captured import Captured, CapturedBatch
from hooks.errors import CaptureError, SelfCheckError, UnsupportedModelError
from hooks.families import Family, family_of
from hooks.row_mass import GENERATED, LayerMass, RowPlan
from hooks.token_map import TokenMap

__all__ = ["CaptureCheck", "Rows", "attention_rows", "verify_capture"]

# Not "flash" anywhere in the name: transformers tests for that substring and would change the masks.
_NAME = "sdpa_with_captured_rows"
_DELEGATE = "sdpa"

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

    def __init__(self, plans: list[RowPlan], layer_of: dict[int, int], *, generated: bool) -> None:
        self.plans = plans
        self.layer_of = layer_of
        self.generated = generated
        self.masses: list[dict[int, LayerMass]] = [{} for _ in plans]

    @torch.no_grad()
    def observe(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
    ) -> None:
        """Add the wanted rows of one call of one layer. Shapes [batch, head, position, dim]."""
        if query.shape[0] != len(self.plans):
            raise CaptureError(
                f"The forward runs {query.shape[0]} sequences, the capture has {len(self.plans)} token maps.",
                remedy="Give a list with one token map a sequence; beams cannot be captured.",
            )
        with torch.autocast(query.device.type, enabled=False):
            for row, (plan, masses) in enumerate(zip(self.plans, self.masses, strict=True)):
                mass = masses.get(layer)
                if mass is None:
                    mass = masses[layer] = LayerMass(plan, query.shape[1], query.device)
                own = None if mask is None else mask[row if mask.shape[0] > 1 else 0]
                self._add(mass, query[row], key[row], value[row], own, scaling)

    def _add(
        self, mass: LayerMass, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float
    ) -> None:
        length, n_queries = mass.plan.length, q.shape[1]
        # Queries are the newest positions; a whole prompt starts at 0 even where a static cache has
        # empty places after it.
        offset = 0 if n_queries == length else k.shape[1] - n_queries
        if offset + n_queries <= length:
            mass.add_prompt_rows(offset, q, k, v, mask, scaling)
        elif offset >= length:
            if self.generated:
                mass.add_generated_rows(offset, q, k, v, mask, scaling)
        else:
            raise CaptureError(
                f"A forward of {n_queries} tokens from position {offset} passes the end at {length}.",
                remedy="Map the prompt that is run, and use no static cache that is filled in parts.",
            )


_SESSIONS: dict[int, _Session] = {}
"""Open captures by the identity of each attention module they observe."""
_LOCK = threading.Lock()


def _observed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The registered function: what the delegate returns, and the rows noted on the way."""
    session = _SESSIONS.get(id(module))
    if session is not None:
        _refuse_call(module, kwargs)
        scaling = kwargs.get("scaling")
        scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        session.observe(session.layer_of[id(module)], query, key, value, attention_mask, scaling)
    return ALL_ATTENTION_FUNCTIONS[_DELEGATE](module, query, key, value, attention_mask, **kwargs)


def _refuse_call(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Refuse what would make the recomputed rows differ from the layer's own attention."""
    name = type(module).__name__
    for key in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if kwargs.get(key) is not None:
            raise UnsupportedModelError(
                f"{name} uses {key}, which the recomputed rows do not reproduce.",
                remedy="This model cannot be captured exactly.",
            )
    if kwargs.get("is_causal") is False:
        raise UnsupportedModelError(
            f"{name} attends in both directions.", remedy="Only causal decoder layers can be captured."
        )
    if kwargs.get("dropout"):
        raise CaptureError("The model drops attention at random.", remedy="Call model.eval() first.")
    if kwargs.get("output_attentions"):
        raise CaptureError(
            "output_attentions=True was passed under a capture.",
            remedy="Leave it out: SDPA returns no attentions, and the capture returns the rows.",
        )


def _refuse_model(model: Any, family: Family) -> None:
    """Refuse models whose attention does not go through the interface as it is read here."""
    text = family.text_model(model)
    name = type(model).__name__
    config = text.config
    flags = [getattr(text, flag, False) for flag in ("_supports_attention_backend", "_supports_sdpa")]
    if not (all(flags) and text._can_set_attn_implementation()):
        raise UnsupportedModelError(
            f"{name} does not compute attention through transformers' attention interface.",
            remedy="Use the checkpoint's native transformers class, not remote code.",
        )
    if config._attn_implementation == _NAME:
        raise _open_already()
    if config._attn_implementation != _DELEGATE:
        raise UnsupportedModelError(
            f"{name} runs with attn_implementation={config._attn_implementation!r}, not {_DELEGATE!r}.",
            remedy=f'Load it with attn_implementation="{_DELEGATE}": the observed model is the measured one.',
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedModelError(
            f"{name} has layers of kind {', '.join(sorted(kinds - {'full_attention'}))}.",
            remedy="Only full attention in every layer can be captured.",
        )
    if model.training and getattr(config, "attention_dropout", 0.0):
        raise CaptureError(f"{name} drops attention at random.", remedy="Call model.eval() first.")


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
    _refuse_model(model, family)
    maps = [tokens] if isinstance(tokens, TokenMap) else list(tokens)
    if generated and len(maps) > 1:
        raise CaptureError(
            "Generated rows of a batch mix with the padding of sequences that ended.",
            remedy="Generate one sequence at a time.",
        )
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
    modules = [family.attention(layer) for layer in family.layers(model)]
    results = [Captured(plan, len(modules)) for plan in plans]
    session = _Session(
        plans, {id(module): index for index, module in enumerate(modules)}, generated=generated
    )
    with _open(model, family, session):
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


def _open_already() -> CaptureError:
    return CaptureError(
        "A capture of this model is open already.",
        remedy="Ask for all roles in one capture: rows may be a mapping with several.",
    )


@contextmanager
def _open(model: Any, family: Family, session: _Session) -> Iterator[None]:
    """Route the language model's attention through the capture, and put everything back after."""
    with _LOCK:
        if any(module in _SESSIONS for module in session.layer_of):
            raise _open_already()
        _SESSIONS.update(dict.fromkeys(session.layer_of, session))
    AttentionInterface.register(_NAME, _observed_attention)
    # Without a mask function of its own name the model would be given no mask at all, silently.
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    try:
        model.set_attn_implementation({family.text_config_key: _NAME})
        yield
    finally:
        with _LOCK:
            for module in session.layer_of:
                _SESSIONS.pop(module, None)
        model.set_attn_implementation({family.text_config_key: _DELEGATE})


@dataclass(frozen=True)
class CaptureCheck:
    """What a capture did to one forward; the application writes it into a run's manifest.

    Attributes:
        max_logit_difference: largest absolute difference between logits with and without capture, at the
            captured rows and the last position. 0.0 where capture leaves the model as it was.
        identical: whether those logits are equal bit for bit.
        layers, heads: how many were observed.
        max_row_sum_error: largest distance from 1 of a captured row's sum.
        positions: how many positions' logits were compared.
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

    Args:
        model, tokens, rows: as for `attention_rows`.
        inputs: what the processor returned, on the model's device.

    Raises:
        SelfCheckError: as `attention_rows`, and where logits are not finite.
    """
    maps = [tokens] if isinstance(tokens, TokenMap) else list(tokens)
    wanted = _roles(maps, rows, isinstance(tokens, TokenMap))
    last = len(maps[0]) - 1
    keep = np.unique(np.concatenate([[last], *(part for roles in wanted for part in roles.values())]))
    # Logits of a whole prompt at a vocabulary of 150,000 would be gigabytes; later rows see all layers.
    positions = torch.from_numpy(keep.astype(np.int64))
    with torch.no_grad():
        plain = model(**inputs, logits_to_keep=positions, use_cache=False).logits
        with attention_rows(model, tokens, rows) as captured:
            observed = model(**inputs, logits_to_keep=positions, use_cache=False).logits
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
        positions=len(keep),
    )
