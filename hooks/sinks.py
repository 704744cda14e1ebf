"""Visual attention sinks: tokens that draw attention by a few huge dimensions of their state, not by what
they show.

See What You Are Told (ICLR 2025, arXiv 2503.03321, section 3; code seilk/VisAttnSink): in the *sink
dimensions* D of a model a few tokens' states are huge; the score of a token that enters a layer with state x
is phi(x) = max over d in D of |x_d| / rms(x), and it is a sink where phi > 20, from the third layer on. The
dimensions are properties of the checkpoint and are found, not listed: the paper gives those of two models.

Two things are decided here. rms(x) bounds phi by the square root of the width, so the paper's 20, of widths
4096 and 5120, is scaled by sqrt(width / 4096): a dimension with a tenth of the state's energy. And D comes
from the first token of the prompt alone, the strongest sink there is: in a causal model its states do not
depend on what follows, so that every item, and every shard of a run, finds the same D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.errors import CaptureError, SelfCheckError
from hooks.families import family_of
from hooks.residual import watched_inputs
from hooks.token_map import TokenMap

__all__ = ["SinkScores", "Sinks", "find_sinks", "sink_scores"]

_EPS = 1e-6
_PAPER_THRESHOLD, _PAPER_WIDTH = 20.0, 4096


@dataclass(frozen=True)
class Sinks:
    """What makes a token a sink in one model.

    Attributes:
        dimensions: of the residual stream, ascending; none where the first token has no huge ones, and then
            no token is a sink.
        threshold: a token is a sink where its score is greater.
        first_layer: layers before it have none.
    """

    dimensions: tuple[int, ...]
    threshold: float
    first_layer: int = 2

    def of(self, score: Float[np.ndarray, "layer token"]) -> Bool[np.ndarray, "layer token"]:
        """Which tokens are sinks, from scores of all layers in order."""
        found = np.asarray(score) > self.threshold
        found[: self.first_layer] = False
        return found


@torch.no_grad()
def find_sinks(
    model: Any,
    first_token: int,
    *,
    threshold: float | None = None,
    first_layer: int = 2,
    share_of_layers: float = 0.25,
) -> Sinks:
    """The sink dimensions of a model: those in which the prompt's first token is huge in enough layers.

    Runs one forward of one token.

    Args:
        model: a loaded model of a known family.
        first_token: id of the first token of the prompts, `tokens.input_ids[0]` without padding.
        threshold: of |x_d| / rms(x); by default the paper's, scaled to the model's width.
        first_layer: layers before it do not count.
        share_of_layers: of the others, in which a dimension must be above the threshold.

    Raises:
        CaptureError: the model has no layer from `first_layer` on, or the share is no share.
    """
    family = family_of(model)
    n_layers = len(family.layers(model))
    if not 0 <= first_layer < n_layers:
        raise CaptureError(
            f"There is no layer {first_layer}: the model has {n_layers}.",
            remedy="Choose a lower first_layer.",
        )
    if not 0 < share_of_layers <= 1:
        raise CaptureError(f"{share_of_layers} is no share of layers.", remedy="Choose one in (0, 1].")
    sizes: dict[int, Tensor] = {}

    def note(layer: int, hidden: Float[Tensor, "position dim"]) -> None:
        sizes[layer] = _relative(hidden[0])

    device = family.embedding(model).weight.device
    with watched_inputs(model, 1, range(first_layer, n_layers), note):
        model(input_ids=torch.tensor([[first_token]], device=device), use_cache=False)
    if len(sizes) < n_layers - first_layer:
        raise SelfCheckError("Layers were not seen in a forward of one token.", remedy="Report this.")
    each = torch.stack([sizes[layer].cpu() for layer in range(first_layer, n_layers)])
    bound = _PAPER_THRESHOLD * math.sqrt(each.shape[1] / _PAPER_WIDTH) if threshold is None else threshold
    often = (each > bound).double().mean(dim=0) >= share_of_layers
    return Sinks(tuple(torch.nonzero(often)[:, 0].tolist()), bound, first_layer)


def _relative(states: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
    """|x_d| / rms(x): the size of RMSNorm without its gain."""
    wide = states.float()
    return wide.abs() * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + _EPS)


class SinkScores:
    """Sink scores of one prompt's visual tokens by layer, during a forward and after it."""

    def __init__(self, sinks: Sinks, layers: int) -> None:
        self.sinks = sinks
        """What makes a token a sink."""
        self._layers = layers
        self._found: dict[int, Float[Tensor, " token"]] = {}

    @property
    def score(self) -> Float[np.ndarray, "layer token"]:
        """phi of each visual token as it enters each layer, float32."""
        missing = [layer for layer in range(self._layers) if layer not in self._found]
        if missing:
            raise CaptureError(
                f"Sink scores of layers {missing} are not there.",
                remedy="Run one forward over the whole prompt inside the with block.",
            )
        return np.stack([self._found[layer].cpu().numpy() for layer in range(self._layers)])

    @property
    def is_sink(self) -> Bool[np.ndarray, "layer token"]:
        """Which visual tokens are sinks in each layer."""
        return self.sinks.of(self.score)

    def mask(self, layer: int) -> Bool[Tensor, " token"]:
        """The sinks among the visual tokens that entered a layer, on its device, while the forward runs.

        Raises:
            CaptureError: the layer has not seen the whole prompt in one piece.
        """
        if layer not in self._found:
            raise CaptureError(
                f"Sinks of layer {layer} are unknown: it has not seen the whole prompt.",
                remedy="Run the prompt in one forward, not in chunks or from a cache.",
            )
        found = self._found[layer] > self.sinks.threshold
        return found if layer >= self.sinks.first_layer else torch.zeros_like(found)

    def note(self, layer: int, states: Float[Tensor, "token dim"]) -> None:
        """Score the visual tokens that enter one layer."""
        if layer in self._found:
            raise CaptureError(
                f"Layer {layer} was scored twice.", remedy="Open a new hooks.sink_scores for each forward."
            )
        if not self.sinks.dimensions:
            self._found[layer] = states.new_zeros(len(states), dtype=torch.float32)
            return
        wide = states.float()
        inverse = torch.rsqrt(wide.square().mean(dim=-1) + _EPS)
        self._found[layer] = wide[:, list(self.sinks.dimensions)].abs().amax(dim=-1) * inverse


@contextmanager
def sink_scores(model: Any, tokens: TokenMap, sinks: Sinks) -> Iterator[SinkScores]:
    """Score every visual token in every layer during the forward inside the `with` block.

    Raises:
        CaptureError: a second forward, a batch; afterwards, where no forward over the whole prompt ran.
    """
    family = family_of(model)
    n_layers = len(family.layers(model))
    scores = SinkScores(sinks, n_layers)
    visual: dict[torch.device, Tensor] = {}

    @torch.no_grad()
    def note(layer: int, hidden: Float[Tensor, "position dim"]) -> None:
        if hidden.device not in visual:
            visual[hidden.device] = torch.from_numpy(tokens.visual).to(hidden.device)
        scores.note(layer, hidden.index_select(0, visual[hidden.device]))

    with watched_inputs(model, len(tokens), range(n_layers), note):
        yield scores
