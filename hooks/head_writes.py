"""What each head writes into the residual stream at one position, and what that does to the logits.

A layer's attention adds the sum over its heads of z_h W_O^h to the stream, z_h the head's output (Elhage et
al., "A Mathematical Framework for Transformer Circuits", 2021). The final norm divides by one number a
position; with that number held at what it was, the logits are a sum over all that was ever written, and a
head's part of a logit is its *direct attribution*: what it says itself, not what later layers make of it.
Where a family norms what attention adds, that norm's number is held too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import CaptureError, UnsupportedModelError
from hooks.families import family_of
from hooks.residual import watched_inputs
from hooks.token_map import TokenMap

__all__ = ["HeadWrites", "head_writes"]


class HeadWrites:
    """Outputs of all heads at one position, readable once the `with` block has ended."""

    def __init__(self, model: Any, position: int) -> None:
        self._model = model
        self.position = position
        """Of the prompt."""
        self.layers = family_of(model).attention_layers(model)
        """Decoder layers by number: the `layer` axis. In hybrid models those that attend."""
        self._outputs: dict[int, Float[Tensor, "head dim"]] = {}
        self._final: Float[Tensor, " dim"] | None = None

    def note(self, layer: int, outputs: Float[Tensor, "head dim"]) -> None:
        """Keep one layer's; raises `CaptureError` at a second forward."""
        if layer in self._outputs:
            raise CaptureError(
                f"Layer {layer} passed twice in one capture.",
                remedy="Open a new hooks.head_writes for each forward.",
            )
        self._outputs[layer] = outputs.clone()

    def note_final(self, state: Float[Tensor, " dim"]) -> None:
        """Keep what enters the final norm."""
        self._final = state.clone()

    @torch.no_grad()
    def vectors(self) -> Float[np.ndarray, "layer head dim"]:
        """What each head adds to the stream as it leaves the last layer, float32; the biases of output
        projections are nobody's.

        Raises:
            UnsupportedModelError: attention passes a norm that subtracts a mean before it is added.
        """
        family = family_of(self._model)
        modules = list(family.layers(self._model))
        written = []
        for layer in self.layers:
            outputs, module = self._of(layer).float(), modules[layer]
            projection, heads = family.output_projection(family.attention(module)), len(outputs)
            by_head = rearrange(projection.weight.float(), "out (head dim) -> head dim out", head=heads)
            added = torch.einsum("hd,hdo->ho", outputs, by_head)
            if (norm := family.attention_norm(module)) is not None:
                whole = added.sum(dim=0) if projection.bias is None else added.sum(dim=0) + projection.bias
                added = added * _gain(norm, whole.float())
            # A model may scale the whole stream at the end of a layer: what was written before is in it.
            for later in modules[layer:]:
                added = added * family.stream_scale(later)
            written.append(added.cpu())
        return torch.stack(written).numpy()

    @torch.no_grad()
    def attribution(self, ids: Sequence[int] | Int[np.ndarray, " id"]) -> Float[np.ndarray, "layer head id"]:
        """Part of each token's logit that each head writes itself, the final norm's division held fixed.

        With the embeddings' and the MLPs' parts they add up to the model's logits, before a cap on these.

        Raises:
            UnsupportedModelError: the model has no output head, or a final norm that subtracts a mean.
        """
        family = family_of(self._model)
        head, norm = family.head(self._model), family.final_norm(self._model)
        if head is None:
            raise UnsupportedModelError(
                f"{type(self._model).__name__} has no output head.", remedy="Load the class with the head."
            )
        if self._final is None:
            raise _unread()
        gain = _gain(norm, self._final.float())
        rows = head.weight[torch.as_tensor(np.asarray(ids, dtype=np.int64), device=head.weight.device)]
        directions = (rows.float() * gain.to(rows.device)).cpu().numpy()
        return np.asarray(self.vectors() @ directions.T)

    def _of(self, layer: int) -> Float[Tensor, "head dim"]:
        if layer not in self._outputs:
            raise _unread()
        return self._outputs[layer]


def _unread() -> CaptureError:
    return CaptureError(
        "The heads' outputs have not been captured.",
        remedy="Run one forward over the whole prompt inside the with block, and read after it.",
    )


def _gain(norm: Any, state: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
    """What the norm multiplies each dimension of this state by; checked against the norm itself."""
    epsilon = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if epsilon is None or getattr(norm, "bias", None) is not None:
        raise UnsupportedModelError(
            f"{type(norm).__name__} is no plain RMSNorm.", remedy="Direct attribution needs one."
        )
    dtype = norm.weight.dtype
    # What it makes of ones is its gain, however that is kept: some classes hold it less one.
    weight = norm(torch.ones_like(state, dtype=dtype)).float() * math.sqrt(1 + epsilon)
    gain = weight * torch.rsqrt(state.square().mean() + epsilon)
    normed = norm(state.to(dtype)).float()
    if not torch.allclose(normed, state * gain, rtol=2e-2, atol=1e-3 * float(normed.abs().max())):
        raise UnsupportedModelError(
            f"{type(norm).__name__} does not scale a state by weight / rms.",
            remedy="Direct attribution needs a plain RMSNorm.",
        )
    return gain


@contextmanager
def head_writes(model: Any, tokens: TokenMap, position: int | None = None) -> Iterator[HeadWrites]:
    """Capture every head's output at one position during the forward inside the `with` block.

    Under `scale_heads` or `mean_ablate_heads` opened outside this block, it sees what they leave.

    Args:
        model: a loaded model of a known family.
        tokens: the map of the one prompt that is run.
        position: of the prompt; None for its last token.

    Raises:
        CaptureError: a position outside the prompt, a second forward, a batch.
    """
    family = family_of(model)
    place = len(tokens) - 1 if position is None else position
    if not 0 <= place < len(tokens):
        raise CaptureError(
            f"Position {place} is not in a prompt of {len(tokens)}.", remedy="Positions count from 0."
        )
    n_heads = int(family.text_model(model).config.num_attention_heads)
    writes = HeadWrites(model, place)

    def watcher(layer: int) -> Any:
        def before(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if args[0].ndim == 3 and args[0].shape[1] == len(tokens):
                writes.note(layer, rearrange(args[0][0, place], "(head dim) -> head dim", head=n_heads))

        return before

    with ExitStack() as stack:
        for layer in writes.layers:
            projection = family.output_projection(family.attention(family.layers(model)[layer]))
            stack.callback(projection.register_forward_pre_hook(watcher(layer)).remove)
        final = len(family.layers(model))
        stack.enter_context(
            watched_inputs(
                model, len(tokens), [final], lambda _layer, hidden: writes.note_final(hidden[place])
            )
        )
        yield writes
