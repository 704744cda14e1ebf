"""From blocked edges to a layer's output: only the affected rows are computed again.

Rows that are kept from the same keys are taken together. Their allowed keys are gathered, and the rows go
through SDPA over those keys alone, in the model's own number type: a blocked key is not there, which is
what minus infinity in the scores comes to. Memory is that of the gathered keys and values of one group of
rows and of a mask of at most `ROW_CHUNK` rows: linear in the prompt, and the more is blocked, the less.

Legend: g query heads that share a key/value head, r rows, c allowed keys, d head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from hooks.edges import Edges, rows_alike
from hooks.errors import InterventionError

__all__ = ["ROW_CHUNK", "Block", "BlockPlan", "first_query", "rows_of_call"]

ROW_CHUNK = 128
"""Rows that are recomputed at once: bounds the mask's memory when whole videos are affected."""


@dataclass(frozen=True, eq=False)
class Block:
    """Edges that are blocked for some heads of one prompt.

    Attributes:
        edges: what is blocked.
        heads: query heads, ascending; None for all.
        padding: which positions of the prompt are padding.
    """

    edges: tuple[Edges, ...]
    heads: Int[np.ndarray, " head"] | None
    padding: Bool[np.ndarray, " position"]


_KEPT = 16
"""Keys for each row whose places are kept from layer to layer."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows and heads that are kept from the same keys; rows None for generated tokens."""

    rows: Int[np.ndarray, " row"] | None
    heads: Int[np.ndarray, " head"] | None
    keys: Int[np.ndarray, " key"]
    _allowed: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict)

    def allowed(self, end: int, device: torch.device) -> Int[Tensor, " c"]:
        """Keys before `end` that are not blocked. Kept for a prompt's rows, for layers ask alike; not where
        they are many for few rows: a random control has such parts by the hundred."""
        if (end, device) not in self._allowed:
            allowed = np.ones(end, dtype=bool)
            allowed[self.keys[: np.searchsorted(self.keys, end)]] = False
            found = torch.from_numpy(np.flatnonzero(allowed)).to(device)
            if self.rows is None or len(found) > _KEPT * len(self.rows):  # or another end at each step
                return found
            self._allowed[end, device] = found
        return self._allowed[end, device]


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """All that is blocked at one layer, sorted into parts.

    Attributes:
        length: of the prompt, padding included.
        parts: disjoint in (row, head).
        generated: the same for tokens after the prompt.
    """

    length: int
    parts: tuple[_Part, ...]
    generated: tuple[_Part, ...]

    @classmethod
    def of(cls, blocks: Sequence[Block], n_heads: int) -> BlockPlan:
        """Take several blocks of one layer together.

        Raises:
            InterventionError: they are of prompts of different length, or a row would be left no key.
        """
        padding = blocks[0].padding
        if any(not np.array_equal(block.padding, padding) for block in blocks):
            raise InterventionError(
                "Edges of two different prompts are blocked at once.",
                remedy="Close one hooks.knock_out before the other prompt is run.",
            )
        entries = [(edges, block.heads) for block in blocks for edges in block.edges]
        parts = [
            part
            for members, rows in rows_alike([edges.queries for edges, _ in entries])
            for part in _by_head([entries[member] for member in members], rows, n_heads)
        ]
        for part in parts:
            _refuse_whole_row(part, padding)
        after = [entry for entry in entries if entry[0].generated]
        generated = tuple(_by_head(after, None, n_heads)) if after else ()
        return cls(len(padding), tuple(parts), generated)

    def write_over(
        self,
        output: Float[Tensor, "1 query head d"],
        query: Float[Tensor, "1 head query d"],
        key: Float[Tensor, "1 kv_head key d"],
        value: Float[Tensor, "1 kv_head key d"],
        mask: Tensor | None,
        scaling: float,
    ) -> Float[Tensor, "1 query head d"]:
        """The layer's output with the affected rows as they are without the blocked keys.

        Raises:
            InterventionError: more than one sequence, another prompt than the mapped one, or a mask of its
                own for each head.
        """
        if query.shape[0] != 1 or (mask is not None and mask.shape[1] != 1):
            raise InterventionError(
                f"A knockout ran on {query.shape[0]} sequences, or with a mask for each head.",
                remedy="Run one sequence at a time, without beams.",
            )
        own = None if mask is None else mask[0, 0]
        offset, generated = rows_of_call(self.length, query.shape[2], key.shape[2], own)
        fresh = True
        for part in self.generated if generated else self.parts:
            rows = _local(part, offset, query.shape[2])
            if not len(rows):
                continue
            if fresh and (torch.is_grad_enabled() and output.requires_grad):
                output = output.clone()  # autograd may hold the kernel's own
            fresh = False
            keys = _PartKeys.of(part, rows, query, key, value, own)
            for first in range(0, len(rows), ROW_CHUNK):
                chunk = rows[first : first + ROW_CHUNK]
                new = keys.attend(chunk, query, own, scaling)
                index = torch.from_numpy(chunk).to(output.device)
                if part.heads is None:
                    output[0, index] = new
                else:
                    output[0, index[:, None], torch.from_numpy(part.heads).to(output.device)] = new
        return output

    def forbidden(
        self, positions: Int[np.ndarray, " row"], heads: slice, n_keys: int
    ) -> Bool[np.ndarray, "head row key"] | None:
        """Which keys are blocked for each of these rows and a run of heads; None where none are.

        Args:
            positions: of the prompt, or after it for generated tokens.
            heads: a slice with both ends.
            n_keys: keys of the call.
        """
        wanted = np.arange(heads.start, heads.stop)
        found = np.zeros((len(wanted), len(positions), n_keys), dtype=bool)
        inside = positions < self.length
        for part in (*self.parts, *self.generated):
            rows = ~inside if part.rows is None else np.isin(positions, part.rows)
            own = np.ones(len(wanted), bool) if part.heads is None else np.isin(wanted, part.heads)
            if rows.any() and own.any():
                keys = part.keys[: np.searchsorted(part.keys, n_keys)]
                found[np.ix_(own, rows, keys)] = True
        return found if found.any() else None


def first_query(length: int, n_queries: int, n_keys: int, mask: Shaped[Tensor, "query key"] | None) -> int:
    """Position of the first query of an attention call.

    Queries are the newest positions. Where there is no mask, one query sees every key and several see the
    keys up to their own index, so that these are a prompt's beginning, whatever empty places a static cache
    has after it. A mask bars the empty places: the last key that its last query sees is that query itself.

    Args:
        length: of the prompt; a call of as many queries is the whole of it.
        n_queries, n_keys: of the call.
        mask: of the sequence, boolean or additive.
    """
    if n_queries == length:
        return 0
    if mask is None:
        return n_keys - 1 if n_queries == 1 else 0
    last = mask[-1]
    seen = last if last.dtype == torch.bool else last > torch.finfo(last.dtype).min
    places = seen.nonzero()
    # A piece whose last query sees nothing is padding alone, which stands in front of all that is asked for.
    return int(places[-1]) + 1 - n_queries if len(places) else 0


def rows_of_call(
    length: int, n_queries: int, n_keys: int, mask: Shaped[Tensor, "query key"] | None
) -> tuple[int, bool]:
    """`first_query`, and whether the queries come after the prompt.

    Raises:
        InterventionError: the queries pass the prompt's end.
    """
    offset = first_query(length, n_queries, n_keys, mask)
    if offset < length < offset + n_queries:
        raise InterventionError(
            f"A forward of {n_queries} tokens from position {offset} passes the end at {length}.",
            remedy="Map the prompt that is run.",
        )
    return offset, offset >= length


@dataclass(frozen=True, eq=False)
class _PartKeys:
    """The allowed keys and values of one part's rows in one call."""

    columns: Int[Tensor, " c"]
    key: Shaped[Tensor, "kv c d"]
    value: Shaped[Tensor, "kv c d"]
    heads: Int[Tensor, " head"] | None
    causal: bool

    @classmethod
    def of(
        cls,
        part: _Part,
        rows: Int[np.ndarray, " row"],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
    ) -> _PartKeys:
        causal = mask is None and query.shape[2] > 1
        end = int(rows[-1]) + 1 if causal else key.shape[2]
        columns = part.allowed(end, key.device)
        heads = None
        k, v = key[0], value[0]
        if part.heads is not None:
            heads = torch.from_numpy(part.heads).to(key.device)
            shared = heads // (query.shape[1] // key.shape[1])
            k, v = k[shared], v[shared]
        return cls(columns, k[:, columns], v[:, columns], heads, causal)

    def attend(
        self, rows: Int[np.ndarray, " r"], query: Tensor, mask: Tensor | None, scaling: float
    ) -> Shaped[Tensor, "r head d"]:
        """Attention of some rows, positions within the call, over the allowed keys."""
        local = torch.from_numpy(rows).to(query.device)
        q = query[0][:, local] if self.heads is None else query[0][self.heads][:, local]
        n_keys = len(self.columns)
        own = None
        if self.causal:
            n_keys = int(torch.searchsorted(self.columns, local[-1], right=True))
            own = self.columns[None, :n_keys] <= local[:, None]
        elif mask is not None:
            own = mask[local][:, self.columns]
            _refuse_blind(own, rows)
        kv_heads = len(self.key)
        group = q.shape[0] // kv_heads
        # A group's query heads become rows of its key/value head: nothing is repeated in memory.
        q = rearrange(q, "(kv g) r d -> kv (g r) d", kv=kv_heads)
        found = torch.nn.functional.scaled_dot_product_attention(
            q[None],
            self.key[None, :, :n_keys],
            self.value[None, :, :n_keys],
            attn_mask=None if own is None else own.repeat(group, 1)[None, None],
            scale=scaling,
        )
        return rearrange(found[0], "kv (g r) d -> r (kv g) d", g=group)


def _refuse_blind(mask: Shaped[Tensor, "r c"], rows: Int[np.ndarray, " r"]) -> None:
    """A window may end before the keys that a block leaves: what is left to see, the call alone knows."""
    open_to = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
    blind = ~open_to.any(dim=-1)
    if bool(blind.any()):
        raise InterventionError(
            f"Row {rows[int(blind.nonzero()[0])]} of the forward would have no key left in its layer's"
            " window.",
            remedy="Leave every query at least one key in its window, such as itself.",
        )


def _local(part: _Part, offset: int, n_queries: int) -> Int[np.ndarray, " row"]:
    """A part's rows within a call that computes `n_queries` positions from `offset` on."""
    if part.rows is None:
        return np.arange(n_queries)
    start, end = np.searchsorted(part.rows, [offset, offset + n_queries])
    return part.rows[start:end] - offset


def _by_head(
    entries: Sequence[tuple[Edges, Int[np.ndarray, " head"] | None]],
    rows: Int[np.ndarray, " row"] | None,
    n_heads: int,
) -> Iterator[_Part]:
    """Parts for each set of heads that is kept from the same keys."""
    which = np.array(
        [np.ones(n_heads, bool) if h is None else np.isin(np.arange(n_heads), h) for _, h in entries]
    )
    for pattern in np.unique(which.T, axis=0):
        heads = np.flatnonzero(np.equal(which.T, pattern).all(axis=1))
        keys = [edges.keys for (edges, _), used in zip(entries, pattern, strict=True) if used]
        if keys:
            union = keys[0] if len(keys) == 1 else np.unique(np.concatenate(keys))
            yield _Part(rows, None if len(heads) == n_heads else heads, union)


def _refuse_whole_row(part: _Part, padding: Bool[np.ndarray, " position"]) -> None:
    assert part.rows is not None
    allowed = ~padding
    allowed[part.keys] = False
    first = int(allowed.argmax()) if allowed.any() else len(allowed)
    if first > part.rows[0]:
        raise InterventionError(
            f"Row {part.rows[0]} would have no key left at all.",
            remedy="Leave every query at least one key, itself or the prompt's first position.",
        )
