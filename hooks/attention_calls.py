"""One attention function for everything that watches or changes attention.

A function registered with transformers' attention interface stands in for the registered SDPA function
while anything is attached. It delegates to it with unchanged arguments, so that logits stay as they were,
bit for bit, unless edges are blocked; then the affected rows are computed again and written over the
fused kernel's. Watchers (`hooks.attention_rows`) are told which edges are blocked and see the pattern the
layer uses, whichever was attached first.

Models whose attention does not go through the interface, or bends the softmax (soft caps, learned sinks),
are refused by name and not mis-measured. Sliding windows are followed where the layer's own mask says what
is seen; behind a cache that has let go of early keys, their places are kept with nothing in them. Of hybrid
models the layers that attend are routed (`Family.attention_layers`); in the others information takes a road
that no attention edge describes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from hooks.blocking import Block, BlockPlan
from hooks.errors import CaptureError, UnsupportedModelError
from hooks.families import Family
from hooks.sdpa_intercept import close_interception, intercept

__all__ = ["AttentionCall", "Blocker", "Watcher", "attached", "is_attached", "refuse_model"]

# Not "flash" anywhere in the name: transformers tests for that substring and would change the masks.
_NAME = "sdpa_with_hooks"
_DELEGATE = "sdpa"

_KINDS = {"full_attention", "sliding_attention"}
"""Kinds of attention, by transformers' names, whose rows are a softmax over what the mask leaves."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of one layer's attention.

    Attributes:
        layer: decoder layer, from 0.
        query, key, value: [batch, head, position, dim], after rotary positions and cache; grouped-query
            heads are not expanded. Keys begin at position 0: those a sliding cache has dropped are zeros
            that the mask forbids.
        mask: what the layer was given, boolean or additive, [batch, 1 or head, query, key]; None where one
            query sees every key and several see the keys up to their own index.
        scaling: of query times key.
        blocked: the edges that are blocked at this layer; None where none are.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    blocked: BlockPlan | None


class Watcher(Protocol):
    """Something that looks at every call and changes nothing."""

    def observe(self, call: AttentionCall) -> None:
        """Look at one call of one layer, before it is computed."""


class Blocker(Protocol):
    """Something that blocks edges."""

    def blocks(self, layer: int) -> Sequence[Block]:
        """What is blocked at a layer; the same at every call."""

    def applied(self, call: AttentionCall, output: Tensor) -> None:
        """Told after a call of a layer with blocks; `output` is [batch, query, head, dim]."""


@dataclass(eq=False)
class _Route:
    """What is attached to one attention module."""

    layer: int
    heads: int
    watchers: list[Watcher] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    plan: BlockPlan | None = None
    past: int = 0
    """Positions before the forward that runs; kept up to date where keys of them may have been dropped."""


_ROUTES: dict[int, _Route] = {}
"""What is attached, by the identity of each attention module."""
_LOCK = threading.RLock()


def _routed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The registered function."""
    route = _ROUTES.get(id(module))
    delegate = ALL_ATTENTION_FUNCTIONS[_DELEGATE]
    if route is None:
        return delegate(module, query, key, value, attention_mask, **kwargs)
    _refuse_call(module, key, attention_mask, kwargs)
    scaling = kwargs.get("scaling")
    scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    plan = route.plan
    keys, values, mask = key, value, attention_mask
    if kwargs.get("sliding_window") is not None:
        dropped = route.past + query.shape[2] - key.shape[2]
        if dropped > 0:
            keys, values, mask = _with_dropped(dropped, query, key, value, attention_mask)
    call = AttentionCall(route.layer, query, keys, values, mask, scaling, plan)
    for watcher in route.watchers:
        watcher.observe(call)
    output, weights = delegate(module, query, key, value, attention_mask, **kwargs)
    if plan is not None:
        output = plan.write_over(output, query, keys, values, mask, scaling)
        for blocker in route.blockers:
            blocker.applied(call, output)
    return output, weights


def _intercepted_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    compute: Callable[[], Tensor],
) -> Tensor:
    """The same for a layer whose own code calls SDPA (`hooks.sdpa_intercept`)."""
    route = _ROUTES[id(module)]
    if query.shape[1] != route.heads:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends with {query.shape[1]} heads; {route.heads} are configured.",
            remedy="This model cannot be captured: which head is which is not known.",
        )
    if key.shape[2] < route.past + query.shape[2]:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends to {key.shape[2]} keys after {route.past} positions and "
            f"{query.shape[2]} new ones: its cache lets go of keys.",
            remedy="Such rows cannot be captured: which positions are left is not known. Read prompts with "
            "use_cache=False.",
        )
    plan = route.plan
    call = AttentionCall(route.layer, query, key, value, mask, scaling, plan)
    for watcher in route.watchers:
        watcher.observe(call)
    output = compute()
    if plan is not None:
        by_query = plan.write_over(output.transpose(1, 2), query, key, value, mask, scaling)
        for blocker in route.blockers:
            blocker.applied(call, by_query)
        output = by_query.transpose(1, 2)
    return output


def _with_dropped(
    dropped: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and mask of one call with the places of keys that a sliding cache has let go of."""
    n_queries, n_keys = query.shape[2], key.shape[2]
    if mask is None:
        # The delegate's own rule: one query sees every key, several those up to their own.
        seen = torch.ones(1, 1, n_queries, n_keys, dtype=torch.bool, device=query.device)
        mask = seen if n_queries == 1 else seen.tril(n_keys - n_queries)
    barred = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    places = (0, 0, dropped, 0)
    keys, values = nn.functional.pad(key, places), nn.functional.pad(value, places)
    return keys, values, nn.functional.pad(mask[..., :n_keys], (dropped, 0), value=barred)


def _refuse_call(module: nn.Module, key: Tensor, mask: Tensor | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse what would make the recomputed rows differ from the layer's own attention."""
    name = type(module).__name__
    for argument in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(argument) is not None:
            raise UnsupportedModelError(
                f"{name} uses {argument}, which the recomputed rows do not reproduce.",
                remedy="This model cannot be captured exactly.",
            )
    window = kwargs.get("sliding_window")
    if window is not None and mask is None and key.shape[2] > window:
        raise UnsupportedModelError(
            f"{name} attends in a window of {window} to {key.shape[2]} keys and has no mask that says so.",
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


def refuse_model(model: Any, family: Family) -> None:
    """Refuse models whose attention does not go through the interface as it is read here.

    Raises:
        UnsupportedModelError: names the model and what about it is in the way.
        CaptureError: the model drops attention at random.
    """
    text = family.text_model(model)
    name = type(model).__name__
    config = text.config
    if model.training and getattr(config, "attention_dropout", 0.0):
        raise CaptureError(f"{name} drops attention at random.", remedy="Call model.eval() first.")
    if family.attention_road == "sdpa":
        return  # what else is in the way shows at the call: hooks.sdpa_intercept
    if not (getattr(text, "_supports_sdpa", False) and text._can_set_attn_implementation()):
        raise UnsupportedModelError(
            f"{name} does not compute attention through transformers' attention interface.",
            remedy="Use the checkpoint's native transformers class; for a model whose own code calls "
            'scaled_dot_product_attention, a family with attention_road="sdpa" (docs/families.md).',
        )
    if config._attn_implementation not in (_DELEGATE, _NAME):
        raise UnsupportedModelError(
            f"{name} runs with attn_implementation={config._attn_implementation!r}, not {_DELEGATE!r}.",
            remedy=f'Load it with attn_implementation="{_DELEGATE}": the observed model is the measured one.',
        )
    types = getattr(config, "layer_types", None)
    kinds = set() if types is None else {types[layer] for layer in family.attention_layers(model)}
    if unknown := kinds - _KINDS:
        raise UnsupportedModelError(
            f"{name} has attention of kind {', '.join(sorted(unknown))}.",
            remedy="Only full attention and sliding windows can be captured.",
        )


@contextmanager
def attached(
    model: Any, family: Family, *, watcher: Watcher | None = None, blocker: Blocker | None = None
) -> Iterator[None]:
    """Route the language model's attention through the registered function while the block is open.

    Several may be open at once, and may be closed in any order; the last to close puts the model's own
    attention back. What `blocks` says is read here, so that impossible blocks fail before any forward.

    Raises:
        CaptureError: a watcher of this kind is open on the model already.
        InterventionError: the blocks of all that is open cannot be combined.
    """
    layers = family.layers(model)
    numbered = {layer: family.attention(layers[layer]) for layer in family.attention_layers(model)}
    modules = list(numbered.values())
    heads = int(family.text_model(model).config.num_attention_heads)
    AttentionInterface.register(_NAME, _routed_attention)
    # Without a mask function of its own name the model would be given no mask at all, silently.
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    with _LOCK:
        _refuse_second(modules, watcher)
        try:
            for layer, module in numbered.items():
                route = _ROUTES.setdefault(id(module), _Route(layer, heads))
                route.watchers += [] if watcher is None else [watcher]
                route.blockers += [] if blocker is None else [blocker]
            _replan(modules)
            if family.attention_road == "sdpa":
                intercept(modules, _intercepted_attention)
            elif family.text_model(model).config._attn_implementation != _NAME:
                model.set_attn_implementation({family.text_config_key: _NAME})
        except BaseException:
            _detach(model, family, modules, watcher, blocker)
            raise
    try:
        with family.whole_prompt(model), _past_noted(family, model, modules):
            yield
    finally:
        with _LOCK:
            _detach(model, family, modules, watcher, blocker)


@contextmanager
def _past_noted(family: Family, model: Any, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Keep each route's `past` up to date: where keys are dropped, their number says it no longer.

    By what the cache says it has seen, under whatever name it is given. Code of a checkpoint's own may keep
    states in something that does not say.
    """
    text = family.text_model(model)
    windows = "sliding_attention" in (getattr(text.config, "layer_types", None) or ())
    if not windows and family.attention_road == "interface":
        yield
        return

    def note(_module: nn.Module, args: tuple, kwargs: dict) -> None:
        given = (*args, *kwargs.values())
        past = max((int(one.get_seq_length()) for one in given if hasattr(one, "get_seq_length")), default=0)
        for module in modules:
            if id(module) in _ROUTES:
                _ROUTES[id(module)].past = past

    handle = text.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def is_attached(module: nn.Module) -> bool:
    """Whether something watches or changes an attention module now."""
    return id(module) in _ROUTES


def _replan(modules: Sequence[nn.Module]) -> None:
    """Take all blocks of each layer together; layers with the same blocks share a plan."""
    plans: dict[tuple[int, ...], BlockPlan] = {}
    for route in (_ROUTES[id(module)] for module in modules if id(module) in _ROUTES):
        blocks = [block for blocker in route.blockers for block in blocker.blocks(route.layer)]
        key = tuple(id(block) for block in blocks)
        if key and key not in plans:
            plans[key] = BlockPlan.of(blocks, route.heads)
        route.plan = plans.get(key)


def _refuse_second(modules: Sequence[nn.Module], watcher: Watcher | None) -> None:
    open_routes = [_ROUTES[id(module)] for module in modules if id(module) in _ROUTES]
    kinds = {type(one) for route in open_routes for one in route.watchers}
    if type(watcher) in kinds:
        raise CaptureError(
            "A capture of this model is open already.",
            remedy="Ask for all roles in one capture: rows may be a mapping with several.",
        )


def _detach(
    model: Any,
    family: Family,
    modules: Sequence[nn.Module],
    watcher: Watcher | None,
    blocker: Blocker | None,
) -> None:
    """Take one user off every module; the last one's leaving puts the model's own function back."""
    for module in modules:
        route = _ROUTES.get(id(module))
        if route is None:
            continue
        route.watchers = [one for one in route.watchers if one is not watcher]
        route.blockers = [one for one in route.blockers if one is not blocker]
        if not (route.watchers or route.blockers):
            del _ROUTES[id(module)]
    _replan(modules)
    if any(id(module) in _ROUTES for module in modules):
        return
    if family.attention_road == "sdpa":
        close_interception(modules)
    else:
        model.set_attn_implementation({family.text_config_key: _DELEGATE})
