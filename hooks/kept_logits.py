"""`logits_to_keep` for models whose forward does not know it.

Logits of a whole prompt of 32,000 tokens over 150,000 words take 10 GB in half precision, for the sake of one
row. Native classes compute those asked for by `logits_to_keep`; Qwen's Omni thinkers and most code that comes
with a checkpoint compute all of them, or refuse the argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from hooks.families import family_of

__all__ = ["keep_logits", "knows_logits_to_keep", "last_logits_only"]

_ARGUMENT = "logits_to_keep"


def knows_logits_to_keep(model: Any) -> bool:
    """Whether the model's forward names the argument; one that swallows it with others does not know it."""
    return _ARGUMENT in inspect.signature(model.forward).parameters


def keep_logits(model: Any) -> None:
    """Let the model's forward take `logits_to_keep` as native classes do: a number of last positions (0 for
    all), or the positions themselves. A model that knows it, or has been taught it, is left as it is.

    What the head is given is cut to those positions; the head's own result for them is unchanged.
    """
    head = family_of(model).head(model)
    if head is None or knows_logits_to_keep(model) or getattr(model, "_keeps_logits", False):
        return
    model._keeps_logits, model._kept_unasked = True, 0
    wanted: list[int | Tensor] = []

    def take(_module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        rest = {name: value for name, value in kwargs.items() if name != _ARGUMENT}
        wanted.append(kwargs.get(_ARGUMENT, model._kept_unasked))
        return args, rest

    def forget(_module: Any, _args: Any, _output: Any) -> None:
        wanted.clear()

    def cut(_module: Any, args: tuple) -> tuple | None:
        kept = wanted[-1] if wanted else 0
        states = args[0]
        if isinstance(kept, Tensor):
            return (states[:, kept.to(states.device)], *args[1:])
        return (states[:, -kept:], *args[1:]) if kept else None

    model.register_forward_pre_hook(take, with_kwargs=True)
    model.register_forward_hook(forget, always_call=True)
    head.register_forward_pre_hook(cut)


@contextmanager
def last_logits_only(model: Any) -> Iterator[None]:
    """Forwards inside the block that do not say which logits they want give the last ones: `model.generate`
    does not ask models that do not know the argument, and would have all of a prompt computed."""
    if not getattr(model, "_keeps_logits", False):
        yield
        return
    model._kept_unasked = 1
    try:
        yield
    finally:
        model._kept_unasked = 0
