"""The residual stream of a forward: what enters each layer, whole or pooled by unit, and the lens on it.

    with hooks.residual(model, tokens, pool="unit") as stream:
        model(**inputs)
    stream.states  # [layer, unit, dim], float32

State `k` is the *input* of decoder layer k, and state L, of a model of L layers, what enters the final
norm. transformers' `hidden_states[k]` differs in two places: where DeepStack adds visual features after
layer k - 1 it holds the stream before the addition, and its last entry is after the final norm. Here the
additions are in, and no state is normalised. Pooling happens inside the hook, so that memory is
`layers * units * dim * 4` bytes whatever the video's resolution; whole states are moved to the CPU layer
by layer.

The lens, `unembed`, applies the model's own final norm and output head: logit lens as in Neo et al. (ICLR
2025, arXiv 2410.07149) with norm; without norm and with the input embeddings as in Map the Flow (ICLR 2026,
arXiv 2510.13251).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import CaptureError, SelfCheckError, UnsupportedModelError
from hooks.families import Family, family_of
from hooks.row_mass import unit_runs
from hooks.token_map import TokenMap

__all__ = ["Lens", "Residual", "Unembedded", "residual", "unembed", "watched_inputs"]

Lens = Literal["norm_and_head", "head", "embedding"]
"""How a state becomes logits: final norm and output head; the head alone; products with the rows of the
input embedding matrix, without norm."""

_ROWS = 256
"""States that go through the output head at once: 256 rows of 150,000 logits are 150 MB in float32."""


@dataclass(frozen=True, eq=False)
class Unembedded:
    """The lens's view of some states: a few tokens' logits, and what the whole vocabulary adds to them.

    Attributes:
        ids: the tokens asked for.
        logits: their logits.
        log_normaliser: log of the sum of exponentials over the vocabulary: `logits` less this are log
            probabilities.
        rank: of each token asked for, how many tokens of the vocabulary have a greater logit: 0 is the top.
        top_ids, top_logits: the k tokens of the greatest logits, in order.
    """

    ids: Int[np.ndarray, " id"]
    logits: Float[np.ndarray, "*axes id"]
    log_normaliser: Float[np.ndarray, "*axes"]
    rank: Int[np.ndarray, "*axes id"]
    top_ids: Int[np.ndarray, "*axes k"]
    top_logits: Float[np.ndarray, "*axes k"]

    @property
    def log_probabilities(self) -> Float[np.ndarray, "*axes id"]:
        """Log of softmax over the whole vocabulary, of the tokens asked for."""
        return self.logits - self.log_normaliser[..., None]


class Residual:
    """States of one sequence's residual stream, readable once the `with` block has ended."""

    def __init__(
        self,
        model: Any,
        layers: tuple[int, ...],
        positions: Int[np.ndarray, " position"] | None,
        deepstack: tuple[int, ...],
    ) -> None:
        self._model = model
        self._found: dict[int, Float[np.ndarray, "place dim"]] = {}
        self._states: Float[np.ndarray, "layer place dim"] | None = None
        self.layers = layers
        """The `layer` axis: k is the input of decoder layer k; the last number, the final norm's input."""
        self.positions = positions
        """Prompt positions along the second axis; None where it holds units."""
        self.deepstack = deepstack
        """Layers after which the model adds visual features: included from the next state on."""

    @property
    def states(self) -> Float[np.ndarray, "layer place dim"]:
        """The stream, [layer, position, dim] or pooled [layer, unit, dim], float32."""
        if self._states is None:
            raise CaptureError(
                "The residual stream has not been captured yet.",
                remedy="Run the forward inside the with block and read after it, if it ended without error.",
            )
        return self._states

    def at(self, layer: int) -> Float[np.ndarray, "place dim"]:
        """The states that enter one layer."""
        if layer not in self.layers:
            raise CaptureError(
                f"States of layer {layer} were not captured.", remedy=f"Captured: {list(self.layers)}."
            )
        return self.states[self.layers.index(layer)]

    def unembed(self, ids: Sequence[int] = (), *, top: int = 5, lens: Lens = "norm_and_head") -> Unembedded:
        """The lens on every captured state; see `unembed`. Axes [layer, position or unit, ...]."""
        return unembed(self._model, self.states, ids, top=top, lens=lens)

    def note(self, layer: int, states: Tensor) -> None:
        """Keep one layer's states, [place, dim]; raises `CaptureError` at a second forward."""
        if layer in self._found:
            raise CaptureError(
                f"The input of layer {layer} passed twice in one capture.",
                remedy="Open a new hooks.residual for each forward.",
            )
        self._found[layer] = states.to("cpu", torch.float32).numpy()

    def finish(self) -> None:
        """Put the layers together. Called when the `with` block ends.

        Raises:
            SelfCheckError: a layer was never seen over the whole prompt, or a state is not finite.
        """
        if missing := [layer for layer in self.layers if layer not in self._found]:
            raise SelfCheckError(
                f"The inputs of layers {missing} were never seen.",
                remedy="Run one forward over the whole mapped prompt inside the with block, without a cache"
                " of its beginning.",
            )
        for layer, states in self._found.items():
            if not np.isfinite(states).all():
                raise SelfCheckError(
                    f"The input of layer {layer} is not finite.",
                    remedy="Load the model in bfloat16 or float32.",
                )
        self._states = np.stack([self._found.pop(layer) for layer in self.layers])


@contextmanager
def residual(
    model: Any,
    tokens: TokenMap,
    layers: Literal["all"] | Sequence[int] = "all",
    *,
    positions: str | Sequence[str] | Sequence[int] | Int[np.ndarray, " position"] | None = None,
    pool: Literal["unit"] | None = None,
) -> Iterator[Residual]:
    """Capture the residual stream during the forward over the whole prompt inside the `with` block.

    Several may be open at once (units pooled, and the last position whole). Decode steps are not captured.

    Args:
        model: a loaded model of a known family.
        tokens: the map of the one prompt that is run.
        layers: which states: k, from 0, for the input of layer k; the number of layers for what enters the
            final norm. `all`: every one of these.
        positions: which positions: prompt positions, or names of roles (`question`, `options`, `last`) or
            `visual`. None: all of the prompt.
        pool: `unit`: the mean over each temporal unit's tokens instead of positions.

    Yields:
        `Residual`; filled once the block has ended.

    Raises:
        CaptureError: a layer or position that does not exist, none at all, a second forward, a batch.
        SelfCheckError: when the block ends, a layer was not seen.
        UnsupportedModelError: no family file knows the model.
    """
    family = family_of(model)
    wanted = _layers(layers, len(family.layers(model)))
    if pool == "unit":
        if positions is not None:
            raise CaptureError("Positions and pooling by unit exclude each other.", remedy="Open two.")
        if not tokens.n_units:
            raise CaptureError("The prompt shows no video or image.", remedy="Leave pool out.")
        places = None
    elif pool is not None:
        raise CaptureError(f"Unknown pooling {pool!r}.", remedy="Known: unit.")
    else:
        places = _positions(tokens, positions)
    stream = Residual(model, wanted, places, family.deepstack_layers(model))
    reduced = _Reduction(tokens, places)
    with watched_inputs(
        model, len(tokens), wanted, lambda layer, hidden: stream.note(layer, reduced(hidden))
    ):
        yield stream
    stream.finish()


@contextmanager
def watched_inputs(
    model: Any, length: int, layers: Iterable[int], note: Callable[[int, Float[Tensor, "position dim"]], None]
) -> Iterator[None]:
    """Call `note(layer, states)` as the whole prompt enters a layer; the number after the last layer's is the
    final norm's. Forwards of other lengths than `length`, such as steps of decoding, pass unnoted.

    Raises:
        CaptureError: in the forward, for a batch.
    """
    family = family_of(model)
    modules = [*family.layers(model), family.final_norm(model)]

    def watcher(layer: int) -> Any:
        def before(_module: nn.Module, args: tuple, kwargs: dict) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            # Rows of a lens pass the final norm too: they have two axes.
            if hidden.ndim == 3 and hidden.shape[1] == length:
                if hidden.shape[0] != 1:
                    raise CaptureError(
                        f"The forward runs {hidden.shape[0]} sequences, the capture has one token map.",
                        remedy="Run one prompt at a time.",
                    )
                note(layer, hidden[0])

        return before

    with ExitStack() as stack:
        for layer in layers:
            handle = modules[layer].register_forward_pre_hook(watcher(layer), with_kwargs=True)
            stack.callback(handle.remove)
        yield


class _Reduction:
    """From one layer's [position, dim] to what is kept of it: chosen positions, or the mean of each unit."""

    def __init__(self, tokens: TokenMap, positions: Int[np.ndarray, " position"] | None) -> None:
        self._index = torch.from_numpy(tokens.visual if positions is None else positions)
        self._runs = unit_runs(tokens) if positions is None else None
        self._placed: dict[torch.device, Tensor] = {}

    @torch.no_grad()
    def __call__(self, hidden: Float[Tensor, "position dim"]) -> Float[Tensor, "place dim"]:
        """Chosen positions in the model's own number type, or means added up in float32."""
        if hidden.device not in self._placed:
            self._placed[hidden.device] = self._index.to(hidden.device)
        chosen = hidden.index_select(0, self._placed[hidden.device])
        if self._runs is None:
            return chosen
        means = [
            rearrange(chosen[first : first + units * size], "(unit token) dim -> unit token dim", unit=units)
            .mean(dim=1, dtype=torch.float32)
            for first, units, size in self._runs
        ]  # fmt: skip
        return torch.cat(means)


def _layers(layers: Literal["all"] | Sequence[int], n_layers: int) -> tuple[int, ...]:
    if isinstance(layers, str):
        if layers != "all":
            raise CaptureError(f"Unknown layers {layers!r}.", remedy="Give `all`, or numbers.")
        return tuple(range(n_layers + 1))
    wanted = tuple(dict.fromkeys(int(layer) for layer in layers))
    outside = [layer for layer in wanted if not 0 <= layer <= n_layers]
    if outside or not wanted:
        raise CaptureError(
            f"Layers {outside} do not exist." if wanted else "No layer was asked for.",
            remedy=f"States are numbered 0 to {n_layers}, the last one what enters the final norm.",
        )
    return wanted


def _positions(tokens: TokenMap, positions: Any) -> Int[np.ndarray, " position"]:
    if positions is None:
        return np.arange(len(tokens))
    named = [positions] if isinstance(positions, str) else positions
    if len(named) and all(isinstance(name, str) for name in named):
        unknown = [name for name in named if name not in ("question", "options", "last", "visual")]
        if unknown:
            raise CaptureError(
                f"No positions are called {unknown[0]!r}.", remedy="Known: question, options, last, visual."
            )
        found = np.concatenate([tokens.visual if name == "visual" else tokens.rows(name) for name in named])
    else:
        found = np.atleast_1d(np.asarray(positions, dtype=np.int64))
    if not len(found):
        raise CaptureError("No position was asked for.", remedy="Give positions of the prompt.")
    if found.min() < 0 or found.max() >= len(tokens):
        raise CaptureError(
            f"Positions {found.min()} to {found.max()} were asked for, of a prompt of {len(tokens)}.",
            remedy="Positions count from 0 within the padded prompt.",
        )
    return np.unique(found)


@torch.no_grad()
def unembed(
    model: Any,
    states: Float[np.ndarray, "*axes dim"],
    ids: Sequence[int] | Int[np.ndarray, " id"] = (),
    *,
    top: int = 5,
    lens: Lens = "norm_and_head",
) -> Unembedded:
    """Logits of any states of the residual stream, a few rows at a time.

    Args:
        model: the loaded model, with its output head.
        states: before the final norm, as `residual` captures them.
        ids: tokens whose logits are kept; of all others only what `Unembedded` says.
        top: how many of the greatest logits are kept.
        lens: `norm_and_head` (of the last state: the model's logits), `head`, or `embedding`.

    Raises:
        UnsupportedModelError: the model was loaded without its output head.
        CaptureError: an unknown lens, a token that is not in the vocabulary, or states of another width.
    """
    project, width, vocabulary, weight = _projection(model, family_of(model), lens)
    wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
    if len(wanted) and (wanted.min() < 0 or wanted.max() >= vocabulary):
        raise CaptureError(
            f"Token {wanted.max() if wanted.max() >= vocabulary else wanted.min()} does not exist.",
            remedy=f"The vocabulary has {vocabulary} tokens.",
        )
    if states.shape[-1] != width:
        raise CaptureError(
            f"States are {states.shape[-1]} wide, the model {width}.", remedy="Give states of this model."
        )
    axes, kept = states.shape[:-1], min(top, vocabulary)
    rows = torch.from_numpy(np.ascontiguousarray(states).reshape(-1, width))
    chosen = torch.from_numpy(wanted).to(weight.device)
    found = [
        _of_rows(project(part.to(weight.device, weight.dtype)).float(), chosen, kept)
        for part in rows.split(_ROWS)
    ]
    logits, normaliser, rank, top_ids, top_logits = (
        torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True)
    )
    return Unembedded(
        ids=wanted,
        logits=logits.reshape(*axes, len(wanted)),
        log_normaliser=normaliser.reshape(axes),
        rank=rank.reshape(*axes, len(wanted)),
        top_ids=top_ids.reshape(*axes, kept),
        top_logits=top_logits.reshape(*axes, kept),
    )


def _of_rows(logits: Float[Tensor, "row word"], chosen: Int[Tensor, " id"], top: int) -> tuple[Tensor, ...]:
    own = logits.index_select(-1, chosen)
    # One token at a time: all at once would be row * id * vocabulary.
    ranks = [(logits > own[:, [i]]).sum(dim=-1) for i in range(len(chosen))]
    rank = torch.stack(ranks, dim=-1) if ranks else own.long()
    best = logits.topk(top, dim=-1)
    return own, logits.logsumexp(dim=-1), rank, best.indices, best.values


def _projection(model: Any, family: Family, lens: Lens) -> tuple[Any, int, int, Tensor]:
    """What makes logits of rows, the width of a row, the vocabulary's size, and a weight that says where."""
    if lens == "embedding":
        weight = family.embedding(model).weight
        return (lambda rows: rows @ weight.T), weight.shape[1], weight.shape[0], weight
    head = family.head(model)
    if head is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no output head.",
            remedy="Load the class with the head (for generation).",
        )
    weight = head.weight
    if lens == "head":
        return (lambda rows: family.capped(model, head(rows))), weight.shape[1], weight.shape[0], weight
    if lens != "norm_and_head":
        raise CaptureError(f"Unknown lens {lens!r}.", remedy="Known: norm_and_head, head, embedding.")
    norm = family.final_norm(model)
    return (lambda rows: family.capped(model, head(norm(rows)))), weight.shape[1], weight.shape[0], weight
