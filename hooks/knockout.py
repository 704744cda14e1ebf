"""Attention knockout: what a model answers when some positions may not read some others.

Geva et al. (arXiv 2304.14767, section 4), for video Map the Flow (arXiv 2510.13251, section 3): the scores
of chosen (query, key) pairs become minus infinity in chosen layers and heads, and softmax shares the rest
out. Here only the affected rows are computed again (`hooks.blocking`); no L x L mask is made.

    with hooks.knock_out(model, tokens, "video_to_question", layers=range(4, 12)):
        logits = model(**inputs).logits

Works in one forward over the prompt, in a forward of its end over a cache, and in decode steps, for edges
whose queries include generated tokens. Several knockouts may be open at once: a key is blocked where any
of them blocks it. A capture of attention (`hooks.attention_rows`) sees the blocked pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.attention_calls import AttentionCall, attached, refuse_model
from hooks.blocking import Block, rows_of_call
from hooks.edges import Edges, path_edges
from hooks.errors import InterventionError, SelfCheckError
from hooks.families import family_of
from hooks.layout import Kind
from hooks.sdpa_intercept import rounding
from hooks.token_map import TokenMap

__all__ = ["Knockout", "knock_out"]

_ROUNDINGS = 16
"""Distance allowed between the output and its recomputation, in roundings of the largest value; those of the
scores come on top, for softmax makes an error of a score an error of its weight."""


class Knockout:
    """An open knockout, and what its check found.

    Attributes:
        edges: what is blocked.
        layers: in which layers, ascending.
        heads: for which query heads; None for all.
        partial: True in a hybrid model: its other layers move information by a road that no attention edge
            describes, so that what passes there is not blocked, and the effect is that of attention alone.
        blocked_mass: at each of `layers`, how much of its attention the row that was checked gave to
            blocked keys without the block, mean over the blocked heads; NaN until a forward has passed, or
            where no check was asked for.
    """

    def __init__(
        self,
        edges: tuple[Edges, ...],
        layers: tuple[int, ...],
        block: Block,
        n_heads: int,
        *,
        check: bool,
        partial: bool = False,
    ) -> None:
        self.edges, self.layers, self.heads, self.partial = edges, layers, block.heads, partial
        self.blocked_mass: Float[np.ndarray, " layer"] = np.full(len(layers), np.nan)
        self._block, self._wants_check = block, check
        self._checked_heads = np.arange(n_heads) if block.heads is None else block.heads
        self._rows = np.unique(np.concatenate([one.queries for one in edges]))
        self._generated = any(one.generated for one in edges)
        self._seen = {layer: np.zeros(len(self._rows), dtype=bool) for layer in layers}
        self._decoded = dict.fromkeys(layers, False)

    def blocks(self, layer: int) -> Sequence[Block]:
        """See `attention_calls.Blocker`."""
        return (self._block,) if layer in self._seen else ()

    def applied(self, call: AttentionCall, output: Tensor) -> None:
        """Note which rows passed; at a layer's first, check one of them on another road."""
        if call.layer not in self._seen:
            return
        n_queries = call.query.shape[2]
        own = None if call.mask is None else call.mask[0, 0]
        offset, generated = rows_of_call(len(self._block.padding), n_queries, call.key.shape[2], own)
        if generated:
            positions = np.arange(offset, offset + n_queries) if self._generated else np.empty(0, np.int64)
            self._decoded[call.layer] |= self._generated
        else:
            start, end = np.searchsorted(self._rows, [offset, offset + n_queries])
            positions = self._rows[start:end]
            self._seen[call.layer][start:end] = True
        place = self.layers.index(call.layer)
        if self._wants_check and len(positions) and np.isnan(self.blocked_mass[place]):
            self.blocked_mass[place] = self._check(call, output, int(positions[-1]), offset)

    @torch.no_grad()
    def _check(self, call: AttentionCall, output: Tensor, position: int, offset: int) -> float:
        """Attention of one row by a plain softmax in float32 against what was written.

        Raises:
            SelfCheckError: they differ by more than rounding.
        """
        assert call.blocked is not None
        row, heads = position - offset, call.query.shape[1]
        n_keys = call.key.shape[2]
        forbidden = call.blocked.forbidden(np.array([position]), slice(0, heads), n_keys)
        with torch.autocast(call.query.device.type, enabled=False):
            scores = _row_scores(call, row)
            plain = scores.softmax(-1)
            barred = torch.zeros(heads, n_keys, dtype=torch.bool, device=scores.device)
            if forbidden is not None:
                barred |= torch.from_numpy(forbidden[:, 0]).to(scores.device)
            expected = _mix(scores.masked_fill(barred, float("-inf")).softmax(-1), call.value[0])
            without = _mix(plain, call.value[0])
        written = output[0, row].float()
        error = float((expected - written).abs().max())
        largest = float(scores[scores.isfinite()].abs().max())
        allowed = rounding(output) * (_ROUNDINGS + 4 * largest) * float(call.value[0].abs().max())
        if not error <= allowed:
            raise SelfCheckError(
                f"Row {position} of layer {call.layer} is {error:.3g} from what it is without the blocked"
                f" keys; rounding explains {allowed:.3g}.",
                remedy="This model computes attention in a way the knockout does not know: report it.",
            )
        # In half precision rounding could hide a block that did nothing: where the two can be told apart, the
        # output has to be nearer to the blocked one.
        apart = float((expected - without).norm())
        if apart > 4 * rounding(output) * float(without.norm()):
            nearer = float((expected - written).norm()) < float((without - written).norm())
            if not nearer:
                raise SelfCheckError(
                    f"Row {position} of layer {call.layer} came out as if nothing were blocked.",
                    remedy="This model computes attention in a way the knockout does not know: report it.",
                )
        own = torch.from_numpy(self._checked_heads).to(plain.device)
        return float((plain * barred)[own].sum(-1).mean())

    def finish(self) -> None:
        """Check that every affected row passed every layer. Called when the block ends without error.

        Raises:
            SelfCheckError: one did not: the knockout did less than was asked for.
        """
        for layer, seen in self._seen.items():
            if not seen.all() and not (self._decoded[layer] and not seen.any()):
                absent = self._rows[~seen]
                raise SelfCheckError(
                    f"Rows {absent[:8].tolist()} ({len(absent)} in all) never passed layer {layer} under the"
                    " knockout.",
                    remedy="Run one forward over them inside the with block: rows of a cached prefix were"
                    " computed without it.",
                )


@contextmanager
def knock_out(
    model: Any,
    tokens: TokenMap,
    edges: str | Edges | Sequence[str | Edges],
    *,
    layers: str | int | Sequence[int] | range = "all",
    heads: Sequence[int] | Int[np.ndarray, " head"] | None = None,
    delimiters: bool = True,
    check: bool = True,
) -> Iterator[Knockout]:
    """Block attention edges during the forwards inside the `with` block.

    On the first forward every blocked layer is checked: the output of its last affected row is that of a
    plain float32 softmax without the blocked keys, within rounding. So the output changed, or the row gave
    the blocked keys no attention: `blocked_mass` says how much it had given them. When the block ends,
    every affected row must have passed every layer; where generated tokens are among the queries, decode
    steps alone will do.

    Args:
        model: a loaded model of a known family, with `attn_implementation="sdpa"`.
        tokens: the map of the prompt that is run; one sequence, left padding allowed.
        edges: names of paths (`hooks.PATHS`), `Edges`, or several of either.
        layers: `"all"` that attend, one, or several; see `hooks.layer_window`.
        heads: query heads of those layers; None for all.
        delimiters: for named paths, times and delimiters beside a unit belong to it.
        check: compare one row of each layer on another road. That every row passed is checked in any case.

    Yields:
        `Knockout`.

    Raises:
        UnsupportedModelError: the model's attention cannot be intervened in exactly.
        InterventionError: a layer, head, path or position does not exist, a layer does not attend, or a row
            would lose every key.
        SelfCheckError: the knockout did not do what was asked for.
    """
    family = family_of(model)
    refuse_model(model, family)
    n_heads = int(family.text_model(model).config.num_attention_heads)
    attending, n_layers = family.attention_layers(model), len(family.layers(model))
    everywhere = isinstance(layers, str) and layers == "all"
    chosen = attending if everywhere else indices_of(layers, n_layers, "layer")
    if aside := sorted(set(chosen) - set(attending)):
        raise InterventionError(
            f"Layers {aside} do not attend: they have no edges to block.",
            remedy=f"Choose among {list(attending)}.",
        )
    wanted = _edges(tokens, edges, delimiters)
    some = None if heads is None else np.array(indices_of(heads, n_heads, "head"))
    padding = tokens.kind == Kind.PADDING
    _refuse_positions(wanted, padding)
    block = Block(wanted, some, padding)
    partial = len(attending) < n_layers
    knockout = Knockout(wanted, chosen, block, n_heads, check=check, partial=partial)
    with attached(model, family, blocker=knockout):
        yield knockout
    knockout.finish()


def indices_of(wanted: str | int | Sequence[int] | range | np.ndarray, n: int, what: str) -> tuple[int, ...]:
    """Layers or heads as ascending numbers.

    Args:
        wanted: `"all"`, one, or several.
        n: how many there are.
        what: their name, for the error.

    Raises:
        InterventionError: none, or one that does not exist.
    """
    if isinstance(wanted, str):
        if wanted != "all":
            raise InterventionError(f"{wanted!r} is no {what}.", remedy=f'Give "all", or 0 to {n - 1}.')
        return tuple(range(n))
    found = sorted({int(one) for one in np.atleast_1d(np.asarray(wanted))})
    if not found or found[0] < 0 or found[-1] >= n:
        raise InterventionError(
            f"{what.capitalize()} {found} was asked for: the model has {what}s 0 to {n - 1}.",
            remedy="Choose at least one of those.",
        )
    return tuple(found)


def _edges(
    tokens: TokenMap, edges: str | Edges | Sequence[str | Edges], delimiters: bool
) -> tuple[Edges, ...]:
    given = [edges] if isinstance(edges, str | Edges) else list(edges)
    if not given:
        raise InterventionError("No edges were given to block.", remedy="Name a path, or give Edges.")
    found: list[Edges] = []
    for one in given:
        found += path_edges(tokens, one, delimiters=delimiters) if isinstance(one, str) else [one]
    return tuple(found)


def _refuse_positions(edges: Sequence[Edges], padding: Bool[np.ndarray, " position"]) -> None:
    length = len(padding)
    for one in edges:
        for name, positions in (("queries", one.queries), ("keys", one.keys)):
            if positions[0] < 0 or positions[-1] >= length:
                raise InterventionError(
                    f"The {name} of edges run from {positions[0]} to {positions[-1]} of {length}.",
                    remedy="Positions count from 0 within the padded prompt.",
                )
        if padding[one.queries].any():
            raise InterventionError(
                f"Position {one.queries[padding[one.queries]][0]} is padding and asks nothing.",
                remedy="Leave padding out of the queries.",
            )
        if not one.generated and one.count() == 0:
            raise InterventionError(
                f"No key of {one.keys[0]} to {one.keys[-1]} comes before a query of {one.queries[0]} to"
                f" {one.queries[-1]}: nothing would be blocked.",
                remedy="Queries read earlier keys: exchange them?",
            )


def _row_scores(call: AttentionCall, row: int) -> Float[Tensor, "head key"]:
    """Masked scores of one row, float32; keys are made float32 one key/value head at a time."""
    wanted = call.query[0, :, row].float() * call.scaling
    groups = wanted.unflatten(0, (call.key.shape[1], -1))
    scores = torch.cat([group @ keys.float().T for group, keys in zip(groups, call.key[0], strict=True)])
    if call.mask is not None:
        own = call.mask[0, :, row, : scores.shape[-1]]
        if own.dtype == torch.bool:
            return scores.masked_fill(~own, float("-inf"))
        # The least finite number, where a mask is given in numbers, is minus infinity to softmax.
        return (scores + own.float()).masked_fill(own <= torch.finfo(own.dtype).min, float("-inf"))
    if call.query.shape[2] > 1:
        scores[:, row + 1 :] = float("-inf")
    return scores


def _mix(weights: Float[Tensor, "head key"], values: Tensor) -> Float[Tensor, "head d"]:
    """Each head's weighted sum of its values, [kv_head, key, d], one key/value head at a time."""
    groups = weights.unflatten(0, (len(values), -1))
    return torch.cat([group @ own.float() for group, own in zip(groups, values, strict=True)])
