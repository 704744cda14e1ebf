"""Heads silenced, scaled or replaced by their mean, before the output projection mixes them.

A head's output is its slice of what enters the output projection. Multiplied by zero it is the head's
whole contribution to the residual stream that is gone; replaced by a mean (Wang et al., arXiv 2211.00593,
section 3.1), only what varies is.

    with hooks.scale_heads(model, {(12, 3): 0.0}):
        logits = model(**inputs).logits

All of these may be open at once, with knockouts and captures too; a later one sees what earlier ones left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.blocking import first_query
from hooks.errors import CaptureError, InterventionError, SelfCheckError
from hooks.families import Family, family_of
from hooks.layout import Kind
from hooks.token_map import TokenMap

__all__ = ["HeadMeans", "head_means", "mean_ablate_heads", "scale_heads"]

Head = tuple[int, int]
"""(layer, query head), from 0."""


@contextmanager
def scale_heads(model: Any, factors: Mapping[Head, float]) -> Iterator[None]:
    """Multiply heads' outputs during the forwards inside the `with` block; 0 silences a head.

    Args:
        model: a loaded model of a known family.
        factors: by (layer, head).

    Raises:
        InterventionError: no head is given, one does not exist, or a factor is not finite.
        SelfCheckError: when the block ends, one of their layers was never run.
    """
    family = family_of(model)
    _refuse_heads(model, family, factors)
    if not np.isfinite(list(factors.values())).all():
        raise InterventionError(
            f"Factors {dict(factors)} are not all finite.", remedy="Give numbers; 0 silences a head."
        )

    def change(layer: int, outputs: Tensor) -> Tensor:
        for (at, head), factor in factors.items():
            if at == layer:
                outputs[..., head, :] *= factor
        return outputs

    with _changed(model, family, {layer for layer, _ in factors}, change):
        yield


@contextmanager
def mean_ablate_heads(
    model: Any,
    heads: Sequence[Head] | Mapping[Head, Float[np.ndarray, " dim"]],
    positions: Int[np.ndarray, " position"] | Sequence[int] | None = None,
) -> Iterator[None]:
    """Replace heads' outputs by a mean during the forwards inside the `with` block.

    Args:
        model: a loaded model of a known family.
        heads: (layer, head) pairs, each replaced by its own mean over the positions of the same forward; or
            a mapping from them to given vectors, such as `HeadMeans.of` other prompts.
        positions: what is averaged, and replaced, counted within the forward; None for all of them. Padding
            is replaced too, and left out of the mean. Given vectors replace these positions.

    Raises:
        InterventionError: no head is given, one does not exist, a vector has the wrong length or is not
            finite, a forward has no such position, or they are padding alone.
        SelfCheckError: when the block ends, one of their layers was never run.
    """
    family = family_of(model)
    _refuse_heads(model, family, heads)
    given: dict[Head, Float[np.ndarray, " dim"]] = {}
    if isinstance(heads, Mapping):
        given = {head: np.asarray(vector, dtype=np.float64) for head, vector in heads.items()}
        _refuse_vectors(model, family, given)
    wanted = None if positions is None else np.unique(np.asarray(positions))

    def change(layer: int, outputs: Tensor) -> Tensor:
        if not given and outputs.shape[1] == 1:
            raise InterventionError(
                "The mean over a forward of one position is that position: nothing would be replaced.",
                remedy="Give vectors (hooks.head_means) where decode steps are run.",
            )
        index = _places(wanted, outputs)
        counted = None if given else _counted(masks[-1], outputs, index)
        for at, head in heads:
            if at == layer:
                own = outputs[:, index, head]
                if counted is None:
                    mean = torch.as_tensor(given[at, head], device=own.device)[None, None]
                else:
                    mean = (own.float() * counted).sum(dim=1, keepdim=True) / counted.sum(dim=1, keepdim=True)
                outputs[:, index, head] = mean.to(own.dtype).expand_as(own)
        return outputs

    masks: list[Any] = []

    def look(_module: nn.Module, _args: tuple, kwargs: dict) -> None:
        masks[:] = [kwargs.get("attention_mask")]

    handle = family.text_model(model).register_forward_pre_hook(look, with_kwargs=True)
    try:
        with _changed(model, family, {layer for layer, _ in heads}, change):
            yield
    finally:
        handle.remove()


class HeadMeans(Mapping[Head, Float[np.ndarray, " dim"]]):
    """Mean output of each head over some positions, float32, by (layer, head)."""

    def __init__(self) -> None:
        self._sums: dict[int, Float[np.ndarray, "head dim"]] = {}
        self._counts: dict[int, int] = {}

    def add(self, layer: int, total: Float[np.ndarray, "head dim"], count: int) -> None:
        """Add one forward's sums of a layer."""
        self._sums[layer] = self._sums.get(layer, 0.0) + total
        self._counts[layer] = self._counts.get(layer, 0) + count

    @property
    def count(self) -> int:
        """Positions that were averaged, over all forwards; 0 before the first.

        Raises:
            SelfCheckError: a forward was interrupted, so that layers have seen different numbers.
        """
        counts = set(self._counts.values())
        if len(counts) > 1:
            raise SelfCheckError(
                f"Layers have seen {sorted(counts)} positions: a forward was interrupted.",
                remedy="Open a new hooks.head_means and run the prompts again.",
            )
        return counts.pop() if counts else 0

    def __getitem__(self, head: Head) -> Float[np.ndarray, " dim"]:
        return (self._sums[head[0]][head[1]] / self.count).astype(np.float32)

    def __iter__(self) -> Iterator[Head]:
        return iter((layer, head) for layer, sums in self._sums.items() for head in range(len(sums)))

    def __len__(self) -> int:
        return sum(len(sums) for sums in self._sums.values())


@contextmanager
def head_means(
    model: Any, tokens: TokenMap, positions: Int[np.ndarray, " position"] | Sequence[int] | None = None
) -> Iterator[HeadMeans]:
    """Note each head's mean output during the forwards inside the `with` block.

    Several forwards of the same layout add up. Only forwards over the whole prompt count.

    Args:
        model: a loaded model of a known family.
        tokens: the map of the prompt.
        positions: of the prompt; None for all but padding.

    Raises:
        CaptureError: a position lies outside the prompt; in the forward, it runs several sequences.
        SelfCheckError: when the block ends, no forward over the prompt has passed; when read, one was
            interrupted.
    """
    family = family_of(model)
    wanted = (
        np.flatnonzero(tokens.kind != Kind.PADDING) if positions is None else np.unique(np.asarray(positions))
    )
    if not len(wanted) or wanted[0] < 0 or wanted[-1] >= len(tokens):
        raise CaptureError(
            f"Positions {wanted[:8].tolist()} are not all in a prompt of {len(tokens)}.",
            remedy="Positions count from 0 within the padded prompt.",
        )
    means, layers = HeadMeans(), set(family.attention_layers(model))

    def note(layer: int, outputs: Tensor) -> Tensor:
        if outputs.shape[0] != 1:
            raise CaptureError(
                f"The forward runs {outputs.shape[0]} sequences.", remedy="Run one prompt at a time."
            )
        if outputs.shape[1] == len(tokens):
            index = torch.from_numpy(wanted).to(outputs.device)
            total = outputs[0, index].detach().double().sum(dim=0)
            means.add(layer, total.cpu().numpy(), len(wanted))
        return outputs

    with _changed(model, family, layers, note):
        yield means
    if set(means._sums) != layers:
        raise SelfCheckError(
            "No forward over the whole prompt passed.", remedy="Run one inside the with block."
        )


@contextmanager
def _changed(
    model: Any, family: Family, layers: set[int], change: Callable[[int, Tensor], Tensor]
) -> Iterator[None]:
    """Hand what enters the output projection of some layers through `change`, as a copy by head."""
    n_heads = _n_heads(model, family)
    ran: set[int] = set()

    def before(layer: int) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            ran.add(layer)
            outputs = args[0].unflatten(-1, (n_heads, -1)).clone()
            return (change(layer, outputs).flatten(-2), *args[1:])

        return hook

    with ExitStack() as stack:
        for layer in sorted(layers):
            projection = family.output_projection(family.attention(family.layers(model)[layer]))
            stack.callback(projection.register_forward_pre_hook(before(layer)).remove)
        yield
    if ran != layers:
        raise SelfCheckError(
            f"Layers {sorted(layers - ran)} were never run under the intervention.",
            remedy="Run one forward inside the with block.",
        )


def _n_heads(model: Any, family: Family) -> int:
    return int(family.text_model(model).config.num_attention_heads)


def _dim(model: Any, family: Family, layer: int) -> int:
    """Dimensions of one head's output; some models have wider heads in some layers."""
    projection = family.output_projection(family.attention(family.layers(model)[layer]))
    return projection.in_features // _n_heads(model, family)


def _refuse_heads(model: Any, family: Family, heads: Sequence[Head] | Mapping[Head, Any]) -> None:
    layers, n_heads = family.attention_layers(model), _n_heads(model, family)
    wrong = [one for one in heads if not (one[0] in layers and 0 <= one[1] < n_heads)]
    if wrong or not heads:
        whole = len(layers) == len(family.layers(model))
        raise InterventionError(
            f"There are no heads {wrong[:8]}." if wrong else "No heads were given.",
            remedy=f"(layer, head) from (0, 0) to ({layers[-1]}, {n_heads - 1})"
            + ("." if whole else f", in the layers that attend: {list(layers)}."),
        )


def _refuse_vectors(model: Any, family: Family, given: Mapping[Head, Float[np.ndarray, " dim"]]) -> None:
    for head, vector in given.items():
        dim = _dim(model, family, head[0])
        if vector.shape != (dim,) or not np.isfinite(vector).all():
            raise InterventionError(
                f"The vector of head {head} has shape {vector.shape}, or is not finite.",
                remedy=f"Give {dim} finite numbers.",
            )


def _counted(mask: Any, outputs: Tensor, index: Any) -> Float[Tensor, "batch position one"]:
    """1 where one of the chosen positions is real, 0 where it is padding, from the language model's mask.

    Raises:
        InterventionError: a sequence has padding alone there.
    """
    batch, n_positions = outputs.shape[:2]
    real = torch.ones(batch, n_positions, dtype=torch.bool, device=outputs.device)
    mask = mask.get("full_attention") if isinstance(mask, Mapping) else mask
    if mask is not None and mask.ndim == 2:
        real &= mask[:, -n_positions:].to(real.device) != 0  # in front stands what a cache holds
    elif mask is not None:
        # One that is made already: a real position sees itself.
        whole = mask[:, 0].to(real.device)
        seen = whole if whole.dtype == torch.bool else whole > torch.finfo(whole.dtype).min
        first = first_query(-1, n_positions, whole.shape[-1], seen[0])
        real &= seen.diagonal(first, dim1=-2, dim2=-1)
    chosen = real[:, index]
    if not bool(chosen.any(dim=1).all()):
        raise InterventionError(
            "The positions of a head's mean are padding.", remedy="Give positions of the prompt."
        )
    return chosen[..., None].float()


def _places(wanted: Int[np.ndarray, " position"] | None, outputs: Tensor) -> Any:
    """An index of the second axis of [batch, position, head, dim]."""
    if wanted is None:
        return slice(None)
    if not len(wanted) or wanted[0] < 0 or wanted[-1] >= outputs.shape[1]:
        raise InterventionError(
            f"Positions {wanted[:8].tolist()} are not all in a forward of {outputs.shape[1]}.",
            remedy="Positions count from 0 within the forward: close the block before decoding.",
        )
    return torch.from_numpy(wanted).to(outputs.device)
