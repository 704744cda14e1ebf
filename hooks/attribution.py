"""Attribution patching: every cell of a patching grid to first order, from two forwards and one backward.

Nanda (2023), "Attribution patching", and Kramar et al., AtP* (arXiv 2403.00745), section 2: the effect of
putting a source state x' in place of x is about (x' - x) . d metric / d x, with the gradient taken in the run
that is patched. It is a screen, not a measurement: attention that saturates and norms that rescale make it
miss large effects. So an exact grid (`hooks.patch_grid`) follows on the cells that matter, and the rank
correlation of both is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks.errors import InterventionError, SelfCheckError
from hooks.families import family_of
from hooks.features import wrapped_encoders
from hooks.kept_logits import keep_logits
from hooks.last_alone import last_alone
from hooks.layer_inputs import LayerInputs, asked_layers, layer_inputs
from hooks.patching import (
    DeepStack,
    Direction,
    Sets,
    check_pair,
    known_tokens,
    named_sets,
    source_and_target,
)
from hooks.token_map import TokenMap

__all__ = ["Attribution", "attribute"]


@dataclass(frozen=True, eq=False)
class Attribution:
    """First-order effects on the logit difference, by layer and set of positions.

    Attributes:
        layers, sets: the axes, as in `PatchGrid`.
        effect: about how much the logit difference of the patched run exceeds that of the run it is put into.
        clean, corrupt: the logit difference of the two runs: the right token less the greatest other one.
        direction, deepstack: as in `PatchGrid`.
    """

    layers: tuple[int, ...]
    sets: tuple[str, ...]
    effect: Float[np.ndarray, "layer set"]
    clean: float
    corrupt: float
    direction: Direction
    deepstack: DeepStack


def attribute(
    model: Any,
    clean_inputs: Mapping[str, Any],
    corrupt_inputs: Mapping[str, Any],
    tokens: TokenMap,
    *,
    right: int,
    others: Sequence[int],
    layers: Literal["all"] | Sequence[int] = "all",
    sets: Sets | None = None,
    direction: Direction = "denoising",
    deepstack: DeepStack = "with",
) -> Attribution:
    """Estimate every cell of a patching grid from the gradient at the inputs of the layers.

    Memory is that of one training step of the language model on one prompt, without its weights' gradients.
    Vision is run without gradients; the weights' `requires_grad` is off meanwhile, and their `grad` is not
    touched. The last layer is run at the last position alone (`hooks/last_alone.py`) unless something is
    attached to it.

    Args:
        right, others: token ids; the metric is logit(right) - max logit(others).
        model, clean_inputs, corrupt_inputs, tokens, layers, sets, direction, deepstack: as for `patch_grid`.

    Raises:
        InterventionError: as `patch_grid`; also the right token among the others.
        SelfCheckError: a gradient is not finite, or does not reach a layer.
    """
    length = check_pair(clean_inputs, corrupt_inputs, tokens)
    wanted = asked_layers(model, layers)
    ids = known_tokens(model, [right, *others])
    if len(ids) < 2 or right in ids[1:]:
        raise InterventionError(
            "The logit difference needs a right token and at least one other.", remedy="Give both."
        )
    named = named_sets(tokens, sets, length)
    source_inputs, target_inputs = source_and_target(clean_inputs, corrupt_inputs, direction, deepstack)
    keep_logits(model)
    with last_alone(model):
        with torch.no_grad(), layer_inputs(model, length, wanted) as source:
            source_metric = float(_difference(model, source_inputs, ids))
        target = _slopes(model, target_inputs, wanted, length, ids)
    by_position = _by_position(source, target, wanted, deepstack == "with")
    effect = np.stack([by_position[:, places].sum(axis=1) for places in named.values()], axis=1)
    clean, corrupt = (
        (source_metric, target.metric) if direction == "denoising" else (target.metric, source_metric)
    )
    return Attribution(wanted, tuple(named), effect.astype(np.float32), clean, corrupt, direction, deepstack)


def _by_position(
    source: LayerInputs, target: _Slopes, layers: tuple[int, ...], streams: bool
) -> Float[np.ndarray, "layer position"]:
    """First-order effect of each position at each layer, that of patched streams still to come included."""
    own = target.inputs
    found = np.stack(
        [_product(source.states[layer], own.states[layer], target.layers[layer]) for layer in layers]
    )
    if streams and own.visual is not None:
        at = np.flatnonzero(own.visual.cpu().numpy())
        for number, slope in target.streams.items():
            later = _product(source.streams[number], own.streams[number], slope)
            found[np.ix_(np.asarray(layers) <= number, at)] += later
    return found


def _difference(model: Any, inputs: Mapping[str, Any], ids: Sequence[int]) -> Float[Tensor, ""]:
    logits = model(**inputs, logits_to_keep=1, use_cache=False).logits[0, -1].float()
    return logits[ids[0]] - logits[list(ids[1:])].max()


@dataclass(frozen=True, eq=False)
class _Slopes:
    """The run that is patched, and the gradient of its metric at the inputs of layers and at streams."""

    inputs: LayerInputs
    layers: Mapping[int, Float[Tensor, "position dim"]]
    streams: Mapping[int, Float[Tensor, "token dim"]]
    metric: float


def _slopes(
    model: Any, inputs: Mapping[str, Any], layers: tuple[int, ...], length: int, ids: Sequence[int]
) -> _Slopes:
    family = family_of(model)

    entered: dict[int, Tensor] = {}

    def begin(layer: int, hidden: Tensor) -> Tensor:
        # The first asked-for layer is where the graph begins: nothing below it is kept for the backward.
        entered[layer] = hidden.detach().clone().requires_grad_() if layer == min(layers) else hidden
        return entered[layer]

    def without_gradient(_encoder: Any) -> Any:
        def encode(_arguments: Any, call: Any) -> Any:
            with torch.no_grad():
                return call()

        return encode

    leaves: list[Tensor] = []

    def ask(_module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        given = kwargs.get("deepstack_visual_embeds")
        if not given:
            return None
        leaves.extend(stream.detach().clone().requires_grad_() for stream in given)
        return args, kwargs | {"deepstack_visual_embeds": list(leaves)}

    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_weights_at_rest(model))
        stack.enter_context(wrapped_encoders(model, without_gradient))
        hook = family.text_model(model).register_forward_pre_hook(ask, with_kwargs=True)
        stack.callback(hook.remove)
        found = stack.enter_context(layer_inputs(model, length, layers, begin))
        metric = _difference(model, inputs, ids)
    # Streams that enter below the first asked-for layer are cut off from the metric.
    wanted = [*(entered[layer] for layer in layers), *leaves]
    given = torch.autograd.grad(metric, wanted, allow_unused=True)
    slopes = {}
    for layer, slope in zip(layers, given[: len(layers)], strict=True):
        if slope is None or not bool(torch.isfinite(slope).all()):
            raise SelfCheckError(
                f"The gradient at the input of layer {layer} is "
                f"{'missing' if slope is None else 'not finite'}.",
                remedy="Load the model in bfloat16 or float32; if you did, patch exactly.",
            )
        slopes[layer] = slope[0]
    late = {number: slope for number, slope in enumerate(given[len(layers) :]) if slope is not None}
    return _Slopes(found, slopes, late, float(metric.detach()))


@contextmanager
def _weights_at_rest(model: Any) -> Iterator[None]:
    """No gradients of the weights: what they alone would need is not kept."""
    asked = [weight for weight in model.parameters() if weight.requires_grad and weight.is_leaf]
    for weight in asked:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in asked:
            weight.requires_grad_(True)


def _product(source: Tensor, target: Tensor, slope: Tensor) -> Float[np.ndarray, " row"]:
    """(source - target) . slope of each row, in float32."""
    with torch.no_grad():
        moved = source.detach().to(slope.device).float() - target.detach().float()
        return (moved * slope.float()).sum(dim=-1).double().cpu().numpy()
