"""A prompt run once and held, so that only the part that changes is run again.

    with hooks.prefix(model, inputs, layers=[8]) as held:
        states = held.states[8][first:].clone()    # the residual stream at the input of layer 8
        states[:20] = ...
        held.rerun(first, layer=8, states=states)  # logits of the last position
        held.follow(other_question, first)         # logits of other tokens after the first ones

What comes before a position does not depend on what comes after it: its keys and values are held, and
positions from there on are run from any layer on. It is the model's own forward that runs, over fewer layers
and positions, so a registered attention function sees it as it sees any forward behind a cache. Rotary
positions are those of the full prompt. The result is that of a whole forward, up to the order of summation;
this is checked when it is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from hooks.errors import InterventionError, SelfCheckError, UnsupportedModelError
from hooks.families import family_of
from hooks.kept_logits import keep_logits
from hooks.last_alone import KeysOnly, StoppingLayer, cache_argument
from hooks.layer_inputs import LayerInputs, check_layers, layer_inputs

__all__ = ["HeldPrompt", "prefix"]

_TOLERANCE = 1e-4
"""Largest difference of logits, as a share of the largest one, that another order of summation may make in
float32; or four roundings of the model's number format, where those are coarser."""


class HeldPrompt:
    """One prompt's keys, values, layer inputs and last logits.

    Memory is that of a key/value cache, and `positions * width` for each layer asked for.
    """

    def __init__(
        self,
        model: Any,
        ids: Tensor,
        found: LayerInputs,
        layers: Sequence[DynamicLayer],
        logits: Tensor,
        chunk: int,
    ) -> None:
        self._model, self._family = model, family_of(model)
        self._ids, self._found, self._layers, self._chunk = ids.cpu(), found, layers, chunk
        self._text = self._family.text_model(model)
        self._argument = cache_argument(self._text)
        self.length: int = found.length
        """Positions of the prompt."""
        self.n_layers: int = len(self._family.layers(model))
        """Decoder layers."""
        self.logits: Float[Tensor, " vocabulary"] = logits
        """Of the last position, as a plain forward gives them, float32."""
        self.forwards = 0.0
        """Spent on `rerun` and `follow` so far: the share of layers times the share of positions."""

    @property
    def inputs(self) -> LayerInputs:
        """What entered the layers."""
        return self._found

    @property
    def states(self) -> Mapping[int, Float[Tensor, "position dim"]]:
        """The input of each layer asked for. Not to be changed in place."""
        return self._found.states

    @torch.no_grad()
    def rerun(
        self,
        first: int,
        *,
        layer: int = 0,
        states: Float[Tensor, "position dim"] | None = None,
        streams: Mapping[int, Float[Tensor, "token dim"]] | None = None,
        last_alone: bool = False,
    ) -> Float[Tensor, " vocabulary"]:
        """Run the positions from `first` on through the layers from `layer` on.

        Args:
            first: the first position that is run; earlier ones stay as they are held.
            layer: the first layer that is run.
            states: its input at the positions that are run. None: as held.
            streams: by number, DeepStack's streams for the visual positions of the whole prompt. Those not
                given: as held.
            last_alone: the last layer gives keys and values at all positions and is run through at the last
                one alone: the same logits for less. What is attached to it then sees that position only.

        Returns:
            Logits of the last position, float32.

        Raises:
            InterventionError: no such layer or position, states of another shape, or a layer whose states are
                neither given nor held.
        """
        check_layers(self._model, [layer])
        if not 0 <= first < self.length:
            raise InterventionError(
                f"Position {first} is not in a prompt of {self.length}.", remedy="Positions count from 0."
            )
        if states is None:
            if layer not in self.states:
                raise InterventionError(
                    f"The input of layer {layer} is not held.", remedy="Name it in hooks.prefix(layers=...)."
                )
            states = self.states[layer][first:]
        if len(states) != self.length - first:
            raise InterventionError(
                f"{len(states)} states for the {self.length - first} positions from {first} on.",
                remedy="Give one for each position that is run.",
            )
        given = list(self._found.streams)
        for number, stream in (streams or {}).items():
            given[number] = stream
        positions = self._positions(first, self.length)
        hidden = self._run(layer, first, states, positions, given, last_alone=last_alone)
        return self._head(hidden[-1:])[0]

    @torch.no_grad()
    def follow(
        self, suffix: Int[np.ndarray, " token"] | Sequence[int] | Int[Tensor, " token"], first: int
    ) -> Float[Tensor, "token vocabulary"]:
        """Logits of other text after the first positions: another question about the same video.

        Args:
            suffix: its token ids, no pictures among them.
            first: how many positions of the prompt stay; a picture's tokens are not cut through.

        Raises:
            InterventionError: pictures in the suffix, or a `first` at or before a visual token.
        """
        tokens = torch.as_tensor(np.asarray(suffix), dtype=torch.long)
        if not len(tokens) or self._pictures(tokens):
            raise InterventionError(
                "The suffix is empty or holds pictures.", remedy="Give text tokens alone."
            )
        held = self._positions(0, self.length)
        # Behind a picture the next position would depend on its grid: a token of text stays in between.
        if not 0 < first <= self.length or self._pictures(self._ids[min(first, self.length - 1) :]):
            raise InterventionError(
                f"The first {first} positions do not hold all pictures of the prompt of {self.length}.",
                remedy="Cut the prompt after its last visual token.",
            )
        # Text goes on where it went on in the prompt, and behind its end one by one, as in a longer prompt.
        following = int(held[..., first].max()) if first < self.length else int(held[..., -1].max()) + 1
        positions = torch.arange(following, following + len(tokens)).expand(held.shape[0], 1, -1)
        embedding = self._family.embedding(self._model)
        hidden = embedding(tokens.to(embedding.weight.device))
        return self._head(self._run(0, first, hidden, positions.to(held.device), []))

    def _pictures(self, tokens: Int[Tensor, " token"]) -> bool:
        ids = torch.tensor(list(self._family.placeholders(self._model).values()))
        return bool(torch.isin(tokens, ids).any())

    def _positions(self, first: int, end: int) -> Int[Tensor, "axis one position"]:
        held = self._found.position_ids
        if held is None:
            held = torch.arange(self.length, device=self.logits.device)[None, None]
        elif held.ndim == 2:
            held = held[None]
        return held[..., first:end]

    def _head(self, hidden: Float[Tensor, "position dim"]) -> Float[Tensor, "position vocabulary"]:
        return self._model.get_output_embeddings()(hidden).float().to(self.logits.device)

    def _run(
        self,
        layer: int,
        first: int,
        hidden: Tensor,
        positions: Tensor,
        streams: Sequence[Tensor],
        *,
        last_alone: bool = False,
    ) -> Float[Tensor, "position dim"]:
        """Last hidden states, after the final norm, of positions that follow the first ones.

        In pieces: the mask that tells a piece what it may see is `piece * position`. The first piece of a
        whole prompt needs none, and takes the fused causal road whatever its length. With `last_alone`, only
        those of the last position.
        """
        cache = self._cache_before(layer, first)
        size = len(hidden) if first == 0 else self._chunk
        before = len(hidden) - 1 if last_alone else 0
        starts = [*range(0, before, size), *range(before, len(hidden), size)]
        found = []
        for start, following in zip(starts, [*starts[1:], len(hidden)], strict=True):
            with _layers_from(self._text, layer, keys_only=start < before):
                output = self._text(
                    inputs_embeds=hidden[None, start:following],
                    position_ids=_as_taken(positions[..., start:following]),
                    attention_mask=self._mask(first + start, following - start, hidden),
                    use_cache=True,
                    **{self._argument: cache},
                    **self._added(layer, first + start, first + following, streams),
                )
            if start >= before:
                found.append(output.last_hidden_state[0])
        share = (self.n_layers - layer) / self.n_layers
        self.forwards += share * len(hidden) / self.length
        return torch.cat(found)

    def _mask(self, before: int, queries: int, like: Tensor) -> Tensor | None:
        """What may be seen, added to the scores: all before, and of one's own piece what came before."""
        if before == 0:
            return None
        mask = torch.zeros(1, 1, queries, before + queries, dtype=like.dtype, device=like.device)
        later = torch.ones(queries, queries, dtype=torch.bool, device=like.device).triu(1)
        mask[..., before:].masked_fill_(later, torch.finfo(like.dtype).min)
        return mask

    def _added(self, layer: int, first: int, end: int, streams: Sequence[Tensor]) -> dict[str, Any]:
        """The streams still to come, cut to the positions of one piece."""
        visual = self._found.visual
        if visual is None or layer >= len(streams) or not bool(visual[first:end].any()):
            return {}
        before, here = int(visual[:first].sum()), int(visual[first:end].sum())
        return {
            "visual_pos_masks": visual[None, first:end],
            "deepstack_visual_embeds": [stream[before : before + here] for stream in streams[layer:]],
        }

    def _cache_before(self, layer: int, first: int) -> DynamicCache:
        """Views of what is held of the first positions; what is run is added behind them in new tensors."""
        layers = [StoppingLayer() for _ in self._layers]
        if first:
            for own, held in zip(layers[layer:], self._layers[layer:], strict=True):
                assert held.keys is not None
                assert held.values is not None
                own.lazy_initialization(held.keys, held.values)
                own.keys, own.values = held.keys[..., :first, :], held.values[..., :first, :]
                own.is_initialized = True
        cache = DynamicCache()
        cache.layers = list(layers)
        return cache

    def check(self) -> None:
        """Run the later half of the video and what follows from the first layer that is held, and a quarter
        of the positions from the last one, and compare with the plain forward.

        Raises:
            SelfCheckError: logits differ by more than rounding: the model adds to its stream in a way that is
                not known here, or looks at what lies further back by another road than keys and values.
        """
        seen = self._found.visual
        visual = np.arange(0) if seen is None else np.flatnonzero(seen.cpu().numpy())
        middle = int(visual[len(visual) // 2]) if len(visual) else self.length // 2
        spent = self.forwards
        allowed = max(_TOLERANCE, 4 * torch.finfo(self._model.dtype).eps) * float(self.logits.abs().max())
        for first, layer, last_alone in (
            (middle, min(self.states), True),
            (self.length * 3 // 4, max(self.states), False),
        ):
            found = self.rerun(first, layer=layer, last_alone=last_alone)
            difference = float((found - self.logits).abs().max())
            if not difference <= allowed:
                raise SelfCheckError(
                    f"From layer {layer} and position {first} on, logits come out {difference:.3g} away"
                    f" from a plain forward; rounding explains {allowed:.3g}.",
                    remedy="This model cannot be run in parts.",
                )
        self.forwards = spent


@contextmanager
def prefix(
    model: Any,
    inputs: Mapping[str, Any],
    *,
    layers: Sequence[int] = (0,),
    chunk: int = 1024,
    check: bool = True,
) -> Iterator[HeldPrompt]:
    """Run a prompt once, hold what is needed to run its later positions again, and let go of it at the end.

    Of a model whose layers do not keep all that lies behind (linear attention, sliding windows), or whose
    pictures see what comes after them, whole prompts are run: `hooks.whole_prompt`.

    Args:
        model: a loaded model of a known family.
        inputs: one prompt, as the processor returned it, on the model's device.
        layers: whose inputs are held: those from which something is to be run again.
        chunk: positions that are run at a time behind what is held.
        check: compare parts that are run again with the plain forward: about half a forward.

    Yields:
        `HeldPrompt`.

    Raises:
        InterventionError: several prompts, padding, or a layer that does not exist.
        UnsupportedModelError: layers that do not keep all that lies behind though the family says they do.
        SelfCheckError: `check`, and the two differ.
    """
    length = one_prompt(inputs)
    from hooks.whole_prompt import WholePrompt, runs_whole  # which is made of what stands here

    if runs_whole(model, inputs):
        whole = WholePrompt(model, inputs, layers)
        try:
            yield whole
        finally:
            whole.inputs.states.clear()
        return
    cache = DynamicCache(config=model.config.get_text_config())
    layers_held = [layer for layer in cache.layers if type(layer) is DynamicLayer]
    if len(layers_held) < len(cache.layers):
        raise UnsupportedModelError(
            "Some layers of this model forget what lies further back.", remedy="Run whole forwards."
        )
    given = {name: value for name, value in inputs.items() if name not in ("use_cache", "logits_to_keep")}
    argument = cache_argument(family_of(model).text_model(model))
    keep_logits(model)
    with torch.no_grad(), layer_inputs(model, length, layers) as found:
        output = model(**given, logits_to_keep=1, use_cache=True, **{argument: cache})
    held = HeldPrompt(model, inputs["input_ids"][0], found, layers_held, output.logits[0, -1].float(), chunk)
    if check:
        held.check()
    try:
        yield held
    finally:
        found.states.clear()
        found.streams = ()
        for layer in layers_held:
            # Not `reset`: before transformers 5.20 it fills keys and values with zeros and keeps them.
            layer.keys = layer.values = None
            layer.is_initialized = False


def _as_taken(positions: Int[Tensor, "axis one position"]) -> Tensor:
    """As language models take them: without an axis where time, height and width share one."""
    return positions[0] if len(positions) == 1 else positions


def one_prompt(inputs: Mapping[str, Any]) -> int:
    """The length of the one prompt; raises `InterventionError` for several, or one with padding."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if ids.shape[0] != 1 or (mask is not None and not bool((mask != 0).all())):
        raise InterventionError(
            f"The inputs hold {ids.shape[0]} prompts, or padding.", remedy="Give one prompt without padding."
        )
    return int(ids.shape[1])


@contextmanager
def _layers_from(text: Any, layer: int, *, keys_only: bool) -> Iterator[None]:
    """The language model without its first layers, its last one for keys and values only where said."""
    whole = text.layers
    rest = list(whole)[layer:]
    if keys_only:
        rest[-1] = KeysOnly(rest[-1], len(whole) - 1)
    text.layers = nn.ModuleList(rest)
    try:
        yield
    finally:
        text.layers = whole
