"""The last decoder layer, run no further than the last position's logits need it.

All that these logits take from the other positions there are keys and values: the attention of the other
rows, the projection of their heads and their MLP are for nothing, in the forward and in the backward.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from hooks.attention_calls import is_attached
from hooks.errors import SelfCheckError
from hooks.families import Family, family_of

__all__ = ["KeysOnly", "StoppingLayer", "cache_argument", "last_alone"]

_CACHES = ("cache", "past_key_values")
"""The name of a forward's cache: the first from transformers 5.24 on, where the second warns."""
_IDLE = "transformers.utils.output_capturing"


def cache_argument(module: nn.Module) -> str:
    """Under which name a module's forward takes its cache."""
    return _CACHES[0] if _CACHES[0] in inspect.signature(module.forward).parameters else _CACHES[1]


class _KeysHeld(Exception):
    """Keys and values of a layer have been kept: what would follow is not needed."""


class StoppingLayer(DynamicLayer):
    """Of a cache: may end the layer's forward once it has what it keeps."""

    stops = False

    def update(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """As the base class; ends the forward where it stops."""
        found = super().update(*args, **kwargs)
        if self.stops:
            raise _KeysHeld
        return found


class KeysOnly(nn.Module):
    """A decoder layer run as far as its keys and values; what comes out is of no use."""

    def __init__(self, layer: nn.Module, index: int) -> None:
        super().__init__()
        self.layer, self._index = layer, index

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Fill the cache; raises `SelfCheckError` where the layer keeps nothing in it."""
        cache = kwargs[_CACHES[0] if _CACHES[0] in kwargs else _CACHES[1]]
        if not keys_held(self.layer, cache.layers[self._index], hidden, *args, **kwargs):
            raise SelfCheckError(
                "The last layer does not keep its keys and values in the cache.",
                remedy="Run whole layers: last_alone=False.",
            )
        return hidden


def keys_held(layer: nn.Module, held: StoppingLayer, hidden: Tensor, *args: Any, **kwargs: Any) -> bool:
    """Run a layer until its part of the cache has keys and values; False where it came to its end without."""
    held.stops = True
    try:
        layer(hidden, *args, **kwargs)
    except _KeysHeld:
        return True
    finally:
        held.stops = False
    return False


@contextmanager
def last_alone(model: Any) -> Iterator[None]:
    """Run the last decoder layer at the last position alone, in forwards over whole prompts without a cache.

    The same logits of the last position, up to the order of summation, and the same gradients; those of other
    positions are not computed, so pass `logits_to_keep=1`. Where something is attached to what would be left
    out, or the layer is none that can be run in two parts, whole layers are run as ever.

    Args:
        model: a loaded model of a known family.
    """
    family = family_of(model)
    layers = family.layers(model)
    if not _may_be_cut(model, family):
        yield
        return
    whole = layers[-1]
    layers[-1] = _LastAlone(whole, len(layers) - 1)
    try:
        yield
    finally:
        layers[-1] = whole


def _may_be_cut(model: Any, family: Family) -> bool:
    text, last = family.text_model(model), family.layers(model)[-1]
    parts = [*last.modules(), family.final_norm(model)]
    after = (text, family.base(model), model)
    attached = [hook for one in (*parts, *after) for hook in one._forward_hooks.values()]
    attached += [hook for one in parts for hook in one._forward_pre_hooks.values()]
    # transformers leaves hooks of its own behind once hidden states were asked for: they do nothing.
    watched = any(getattr(hook, "__module__", None) != _IDLE for hook in attached)
    watched |= is_attached(family.attention(last))
    kinds = getattr(text.config, "layer_types", None) or ["full_attention"]
    # DeepStack's features would be added to the positions that are not there any more.
    late = len(family.layers(model)) - 1 in family.deepstack_layers(model)
    return not watched and not late and kinds[-1] == "full_attention"


class _LastAlone(nn.Module):
    """A decoder layer that gives its output at the last position alone."""

    def __init__(self, layer: nn.Module, index: int) -> None:
        super().__init__()
        self.layer, self._index = layer, index

    def __getattr__(self, name: str) -> Any:
        """The layer's own parts and settings, by their names."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """[batch, 1, dim], or all positions where the call cannot be cut."""
        name = next((name for name in _CACHES if name in kwargs), None)
        before, last = (_cut(kwargs, part) for part in (slice(None, -1), slice(-1, None)))
        single = hidden_states.shape[1] < 2
        if args or single or name is None or kwargs[name] is not None or before is None or last is None:
            return self.layer(hidden_states, *args, **kwargs)
        cache, held = DynamicCache(), [StoppingLayer() for _ in range(self._index + 1)]
        cache.layers = list(held)
        own = {name: cache}
        if not keys_held(self.layer, held[-1], hidden_states[:, :-1], **before | own):
            return self.layer(hidden_states, **kwargs)
        return self.layer(hidden_states[:, -1:], **last | own)


def _cut(kwargs: Mapping[str, Any], part: slice) -> dict[str, Any] | None:
    """A layer's arguments at some of its positions; None where one is not known to have positions or none."""
    found = dict(kwargs)
    for name, value in kwargs.items():
        if name == "position_embeddings" and isinstance(value, tuple | list):
            found[name] = tuple(one[..., part, :] for one in value)
        elif not isinstance(value, Tensor):
            if isinstance(value, tuple | list | dict) and name not in _CACHES:
                return None
        elif name == "attention_mask" and value.ndim == 4:
            found[name] = value[..., part, :]
        elif name in ("position_ids", "cache_position"):
            found[name] = value[..., part]
        else:
            return None
    return found
