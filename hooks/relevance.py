"""What one row of attention, followed back through all layers, rests on: rollout and relevancy.

    with hooks.relevance(model, tokens) as found:
        logits = model(**inputs, logits_to_keep=1).logits
        weights = found.relevancy(logits[0, -1, answer])  # [position]
        plain = found.rollout()                           # [position], sums to 1
    found.units(weights)                                  # [unit]

*Rollout* (Abnar & Zuidema, arXiv 2005.00928, section 3) multiplies the matrices (A + I) / 2 of all layers, A
the mean over heads. *Relevancy* (Chefer et al., arXiv 2103.15679, section 3.1, self-attention) adds A' R to
R, from R = I, where A' is the mean over heads of the positive part of A times the gradient of the target
with respect to A. Both are products of L x L matrices of which one row is wanted: that row is carried
backwards, r <- r M, layer by layer from the last. What is held is the vector r and each layer's queries,
keys and values, linear in the prompt; rows of A are made again from them, a chunk at a time.

The gradient with respect to A needs no A either: row i of it is dO_i V^T, where dO is the gradient at the
attention's output, which one backward pass gives for every layer. For that pass the parameters are frozen
and the vision tower runs without gradients; activations of the language model are kept, as in training
one prompt, and whatever the delegate's own backward needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.attention_calls import AttentionCall, attached, refuse_model
from hooks.errors import CaptureError, SelfCheckError, UnsupportedModelError
from hooks.families import Encoder, Family, family_of
from hooks.features import wrapped_encoders
from hooks.row_mass import ROW_CHUNK, blocked_keys, exponentials
from hooks.token_map import TokenMap

__all__ = ["Relevance", "relevance"]


class Relevance:
    """Queries, keys and values of one forward, and what follows from them, to be asked inside the block."""

    def __init__(self, tokens: TokenMap, n_layers: int, row: int, *, gradients: bool) -> None:
        self._tokens, self._n_layers, self._gradients = tokens, n_layers, gradients
        self._calls: dict[int, AttentionCall] = {}
        self._outputs: dict[int, Tensor] = {}
        self.row = row
        """The position whose row is followed back."""

    def rollout(self) -> Float[np.ndarray, " position"]:
        """What the row rests on by attention alone; not negative, sums to 1.

        Raises:
            SelfCheckError: a layer was not seen, or the sum is off.
        """
        with torch.no_grad():
            row = self._start()
            for layer in reversed(range(self._n_layers)):
                row = (row + _carried(row, self._call(layer), None)) / 2
            found = row.cpu().numpy()
        if not abs(float(found.sum()) - 1.0) <= 1e-3:  # also where it is NaN
            raise SelfCheckError(
                f"Rollout sums to {float(found.sum()):.4g}, not 1.",
                remedy="A NaN means a row with every key masked, or overflow in the model's number type.",
            )
        return found

    def relevancy(self, target: Tensor) -> Float[np.ndarray, " position"]:
        """What a logit (or any scalar made of the forward's logits) rests on; not negative.

        May be asked for several targets of one forward, one backward pass each.

        Args:
            target: a scalar of the graph of the forward inside the block.

        Raises:
            CaptureError: the capture was opened without gradients, or the target is none of that forward's.
            SelfCheckError: a layer was not seen, or gradients are not finite.
        """
        gradients = self._backward(target)
        with torch.no_grad():
            row = self._start()
            for layer in reversed(range(self._n_layers)):
                row = row + _carried(row, self._call(layer), gradients[layer])
            found = row.cpu().numpy()
        if not np.isfinite(found).all():
            raise SelfCheckError(
                "Gradients of the target are not finite.", remedy="Load the model in bfloat16 or float32."
            )
        return found

    def units(self, values: Float[np.ndarray, " position"]) -> Float[np.ndarray, " unit"]:
        """The sum over each temporal unit's tokens."""
        return self._tokens.unit_sum(values[self._tokens.visual])

    def observe(self, call: AttentionCall) -> None:
        """Keep one call of one layer; `CaptureError` at a second forward, a batch, part of a prompt."""
        length = len(self._tokens)
        if call.query.shape[0] != 1 or call.query.shape[2] != length:
            raise CaptureError(
                f"The forward runs {call.query.shape[0]} sequences of {call.query.shape[2]} tokens, the map "
                f"has one of {length}.",
                remedy="Run one forward over the whole mapped prompt, without a cache of its beginning.",
            )
        if call.layer in self._calls:
            raise CaptureError(
                f"Layer {call.layer} passed twice in one capture.",
                remedy="Open a new hooks.relevance for each forward.",
            )
        self._calls[call.layer] = call

    def note_output(self, layer: int, output: Tensor) -> None:
        """Keep what enters a layer's output projection, [batch, position, head * dim], for its gradient."""
        if output.requires_grad:
            self._outputs[layer] = output

    def close(self) -> None:
        """Let go of what was held."""
        self._calls.clear()
        self._outputs.clear()

    def _start(self) -> Float[Tensor, " position"]:
        row = torch.zeros(len(self._tokens), device=self._call(self._n_layers - 1).query.device)
        row[self.row] = 1.0
        return row

    def _call(self, layer: int) -> AttentionCall:
        if layer not in self._calls:
            raise SelfCheckError(
                f"Layer {layer} of {self._n_layers} never passed through the capture.",
                remedy="Run one forward inside the with block, and ask before it ends.",
            )
        return self._calls[layer]

    def _backward(self, target: Tensor) -> list[Float[Tensor, "position head dim"]]:
        """The gradient at each layer's attention output."""
        if not self._gradients:
            raise CaptureError(
                "No gradients were asked for.", remedy="Pass gradients=True to hooks.relevance."
            )
        heads = [self._call(layer).query.shape[1] for layer in range(self._n_layers)]
        if target.ndim or not target.requires_grad or len(self._outputs) != self._n_layers:
            raise CaptureError(
                f"The target of shape {tuple(target.shape)} is no scalar of the graph of this forward.",
                remedy="Take one logit of the forward inside the block, such as logits[0, -1, token]; no "
                "torch.no_grad() or inference_mode() may be opened within it.",
            )
        outputs = [self._outputs[layer] for layer in range(self._n_layers)]
        found = torch.autograd.grad(target, outputs, retain_graph=True, allow_unused=True)
        if missing := [layer for layer, one in enumerate(found) if one is None]:
            raise CaptureError(
                f"The target does not depend on the attention of layers {missing}.",
                remedy="Take a logit of the forward inside the block.",
            )
        return [one[0].unflatten(-1, (n, -1)) for one, n in zip(found, heads, strict=True)]


def _carried(
    row: Float[Tensor, " position"], call: AttentionCall, gradient: Float[Tensor, "position head dim"] | None
) -> Float[Tensor, " position"]:
    """r M for the matrix M of one layer: the mean over heads of A, or of the positive part of A * dA."""
    row = row.to(call.query.device)
    carried = torch.zeros_like(row)
    heads, kv_heads = call.query.shape[1], call.key.shape[1]
    with torch.autocast(row.device.type, enabled=False):
        for rows in torch.nonzero(row).flatten().split(ROW_CHUNK):  # of the last layer one row alone is asked
            for index in range(kv_heads):
                here = slice(index * heads // kv_heads, (index + 1) * heads // kv_heads)
                attention = _attention(call, rows, index, here)
                if gradient is not None:
                    value = call.value[0, index, : len(row)].float()
                    moved = gradient[rows, here].transpose(0, 1).float() @ value.T
                    attention = attention.mul_(moved.clamp_(min=0))
                carried += torch.einsum("r,grk->k", row[rows] / heads, attention)
    return carried


def _attention(
    call: AttentionCall, rows: Int[Tensor, " r"], index: int, here: slice
) -> Float[Tensor, "g r k"]:
    """Rows of A for the query heads `here`, which share the key/value head `index`, in float32."""
    q = call.query[0, here][:, rows].float().mul_(call.scaling)
    mask = None if call.mask is None else call.mask[0]
    length = call.query.shape[2]
    causal = blocked_keys(rows, length, length)
    barred = None if call.blocked is None else call.blocked.forbidden(rows.cpu().numpy(), here, length)
    key = call.key[0, index, :length]  # a static cache has empty places after the prompt
    norm, scores = exponentials(q, key, rows, mask, here, causal, barred)
    return scores.div_(norm.transpose(1, 2))


@contextmanager
def relevance(
    model: Any, tokens: TokenMap, *, row: int | None = None, gradients: bool = True
) -> Iterator[Relevance]:
    """Keep what one forward over the whole prompt needs for rollout and relevancy.

    With `gradients`, the block is one of autograd: parameters are frozen in it, and the embeddings that enter
    the language model are the leaves. Composes with `attention_rows` and with interventions; where edges
    are blocked, the rows are those of the blocked model.

    Args:
        model: a loaded model of a known family, with `attn_implementation="sdpa"`.
        tokens: the map of the one prompt that is run.
        row: the position whose row is followed back; None: the prompt's last.
        gradients: prepare for `relevancy`; False keeps no graph, for `rollout` alone.

    Yields:
        `Relevance`, to be asked inside the block, after the forward.

    Raises:
        UnsupportedModelError: the model cannot be observed exactly.
        CaptureError: a row outside the prompt, a second forward, another capture of this kind.
        SelfCheckError: when the block ends, no forward was seen.
    """
    family = family_of(model)
    refuse_model(model, family)
    attending, n_layers = family.attention_layers(model), len(family.layers(model))
    if len(attending) < n_layers:
        raise UnsupportedModelError(
            f"Only layers {list(attending)} of {n_layers} of {type(model).__name__} attend: a row cannot be"
            " followed back through the others.",
            remedy="Use hooks.attention_rows, or attribution by gradients (hooks.attribute).",
        )
    position = int(tokens.last[0]) if row is None else row
    if not 0 <= position < len(tokens):
        raise CaptureError(
            f"Row {position} lies outside a prompt of {len(tokens)} positions.", remedy="Count from 0."
        )
    found = Relevance(tokens, len(family.layers(model)), position, gradients=gradients)
    with ExitStack() as stack:
        stack.callback(found.close)
        stack.enter_context(attached(model, family, watcher=found))
        if gradients:
            stack.enter_context(_differentiable(model, family))
            for layer, module in enumerate(family.layers(model)):
                projection = family.output_projection(family.attention(module))
                handle = projection.register_forward_pre_hook(
                    _noting(found, layer),
                    prepend=True,  # before heads are scaled, whoever came first
                )
                stack.callback(handle.remove)
        else:
            stack.enter_context(torch.no_grad())
        yield found
        found._call(0)  # a block without a forward is a mistake, and says so


def _noting(found: Relevance, layer: int) -> Callable[[nn.Module, tuple], None]:
    def before(_module: nn.Module, args: tuple) -> None:
        found.note_output(layer, args[0])

    return before


@contextmanager
def _differentiable(model: Any, family: Family) -> Iterator[None]:
    """Autograd from the embeddings that enter the language model on; nothing before, no parameter."""

    def leaf(_module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        # A copy: what was made in inference mode cannot be a leaf.
        if "inputs_embeds" in kwargs:
            kwargs["inputs_embeds"] = kwargs["inputs_embeds"].detach().clone().requires_grad_(True)
            return args, kwargs
        return (args[0].detach().clone().requires_grad_(True), *args[1:]), kwargs

    def without_gradients(_encoder: Encoder) -> Callable:
        def encoding(_arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
            with torch.no_grad():
                return call()

        return encoding

    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with ExitStack() as stack:
        handle = family.text_model(model).register_forward_pre_hook(leaf, with_kwargs=True)
        stack.callback(handle.remove)
        stack.enter_context(wrapped_encoders(model, without_gradients))
        stack.callback(lambda: [parameter.requires_grad_(True) for parameter in learnt])
        for parameter in learnt:
            parameter.requires_grad_(False)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield
