"""Attention of models whose own code calls `torch.nn.functional.scaled_dot_product_attention`.

Code that comes with a checkpoint often knows nothing of transformers' attention interface. While something is
attached, each attention module's forward runs under a `TorchFunctionMode` that sees every call of the
function, under whatever name it was imported; which layer it belongs to is known from the module. The
call's arguments are read as torch documents them (mask, `is_causal`, scale, grouped-query heads) and handed
on as for the main road (`hooks.attention_calls`); the model gets the function's own output, bit for bit.

Nothing is taken on trust: the output's last row has to be that of a float32 softmax over the arguments as
they were read, in every layer, at its first call. A module that computes its attention otherwise (softmax by
hand, another kernel, `nn.MultiheadAttention`), or calls the function twice, is refused with the reason.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from hooks.errors import CaptureError, SelfCheckError, UnsupportedModelError

__all__ = ["Through", "close_interception", "intercept", "rounding"]

Through = Callable[
    [nn.Module, Tensor, Tensor, Tensor, Tensor | None, float, Callable[[], Tensor]],
    Tensor,
]
"""Called with the attention module, query, key, value, mask, scaling and a function that computes the output
as the model's code asked for it, [batch, head, query, dim]; returns the output the model is given."""

_ROUNDINGS = 4.0
"""Roundings of the output's number type that the checked row may be off, as shares of the values it moves: a
kernel rounds its weights and its output, whatever it sums in."""
_SCORE_ROUNDINGS = 32.0
"""Roundings of the number type kernels make scores in that a score may be off, as shares of the largest."""

_SIGNATURE = inspect.Signature(
    [
        *(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("query", "key", "value")
        ),
        *(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for name, default in (("attn_mask", None), ("dropout_p", 0.0), ("is_causal", False))
        ),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in (("scale", None), ("enable_gqa", False))
        ),
    ]
)
"""The function is built in and has none of its own."""

_OPEN: dict[int, _Module] = {}
"""What is intercepted, by the identity of each attention module."""


def intercept(modules: Iterable[nn.Module], through: Through) -> None:
    """Let the modules' calls of SDPA pass through a function; those that do so already are left alone."""
    for module in modules:
        if id(module) not in _OPEN:
            _OPEN[id(module)] = _Module(module, through)


def close_interception(modules: Iterable[nn.Module]) -> None:
    """Leave the modules as they were."""
    for module in modules:
        opened = _OPEN.pop(id(module), None)
        if opened is not None:
            opened.remove()


class _Module:
    """One attention module and the modes of the forwards that run in it."""

    def __init__(self, module: nn.Module, through: Through) -> None:
        self.through = through
        self.checked = False
        self._running: list[_Mode] = []
        self._handles: list[RemovableHandle] = [
            module.register_forward_pre_hook(self._enter),
            module.register_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, _args: Any) -> None:
        mode = _Mode(module, self)
        mode.__enter__()
        self._running.append(mode)

    def _leave(self, module: nn.Module, _args: Any, output: Any) -> None:
        if not self._running:  # the forward failed before it was entered
            return
        mode = self._running.pop()
        mode.__exit__(None, None, None)
        if output is not None and not mode.calls:  # None: the forward failed, and says why by itself
            raise UnsupportedModelError(
                f"{type(module).__name__} computes its attention without calling "
                "torch.nn.functional.scaled_dot_product_attention, and not through transformers' attention "
                "interface.",
                remedy="This model cannot be captured: a softmax by hand, or another kernel, is out of sight."
                " Load it with attn_implementation='sdpa' where its code has the choice.",
            )


class _Mode(TorchFunctionMode):
    """Sees the torch functions one forward of one attention module calls."""

    def __init__(self, module: nn.Module, opened: _Module) -> None:
        super().__init__()
        self.calls = 0
        self._module, self._opened = module, opened

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        self.calls += 1
        name = type(self._module).__name__
        if self.calls > 1:
            raise UnsupportedModelError(
                f"{name} calls scaled_dot_product_attention more than once in one forward.",
                remedy="This model cannot be captured: its attention is not one softmax a row.",
            )
        given = _SIGNATURE.bind(*args, **kwargs)
        given.apply_defaults()
        query, key, value = (given.arguments[one] for one in ("query", "key", "value"))
        mask, scaling = _read(name, given.arguments)

        def compute() -> Tensor:
            output = func(*args, **kwargs)
            if not self._opened.checked:
                _check(name, output, query, key, value, mask, scaling)
                self._opened.checked = True
            return output

        return self._opened.through(self._module, query, key, value, mask, scaling, compute)


def _read(name: str, given: dict[str, Any]) -> tuple[Tensor | None, float]:
    """The call's mask, [batch or 1, head or 1, query, key], and its scaling.

    None where one query sees every key and several see the keys up to their own index.
    """
    query, key, mask = given["query"], given["key"], given["attn_mask"]
    if query.dim() != 4 or key.dim() != 4 or query.shape[1] % key.shape[1]:
        raise UnsupportedModelError(
            f"{name} gives scaled_dot_product_attention queries {tuple(query.shape)} and keys "
            f"{tuple(key.shape)}, not [batch, head, position, dim].",
            remedy="This model cannot be captured: which sequence a row belongs to is not known.",
        )
    if given["dropout_p"]:
        raise CaptureError("The model drops attention at random.", remedy="Call model.eval() first.")
    n_queries, n_keys = query.shape[2], key.shape[2]
    scaling = query.shape[-1] ** -0.5 if given["scale"] is None else float(given["scale"])
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
        return mask.expand(*mask.shape[:2], n_queries, n_keys), scaling
    if n_queries > 1 and not given["is_causal"]:
        raise UnsupportedModelError(
            f"{name} attends in both directions.", remedy="Only causal decoder layers can be captured."
        )
    if given["is_causal"] and n_queries == 1 and n_keys > 1:  # torch counts from the first key, not the last
        mask = torch.zeros(1, 1, 1, n_keys, dtype=torch.bool, device=query.device)
        mask[..., 0] = True
    return mask, scaling


def rounding(output: Tensor) -> float:
    """Of the kernel that wrote this output, as a share of what it writes."""
    if output.is_cuda and output.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        return 2.0**-10
    return float(torch.finfo(output.dtype).eps)


@torch.no_grad()
def _check(
    name: str, output: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> None:
    """Compare the last row of the first sequence with a float32 softmax over what was read.

    What it may be off is measured by the values the row itself moves: by the largest value of all, the
    roundings of bfloat16 would let a softmax of twice the scaling pass.

    Raises:
        SelfCheckError: they differ by more than rounding.
    """
    with torch.autocast(query.device.type, enabled=False):
        group = query.shape[1] // key.shape[1]
        q = query[0, :, -1:].float() * scaling
        k, v = (part[0].float().repeat_interleave(group, dim=0) for part in (key, value))
        scores = (q @ k.transpose(-1, -2))[:, 0]
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask[0, :, -1], float("-inf"))
        elif mask is not None:
            scores = scores + mask[0, :, -1].float()
        elif query.shape[2] > 1:
            scores[:, query.shape[2] :] = float("-inf")
        weights = scores.softmax(dim=-1)[:, None]
        moved = float((weights @ v.abs()).max())
        largest = float(scores[weights[:, 0] > 0].abs().max())  # a mask may add the lowest finite number
        off = float((output[0, :, -1].float() - (weights @ v)[:, 0]).abs().max())
    in_scores = rounding(output.float())
    allowed = moved * (_ROUNDINGS * rounding(output) + _SCORE_ROUNDINGS * in_scores * (1 + largest))
    if not math.isfinite(off) or off > allowed:
        raise SelfCheckError(
            f"{name}: the output of scaled_dot_product_attention differs by {off:.2g} from a softmax over "
            f"the arguments it was given (allowed {allowed:.2g}).",
            remedy="This model cannot be captured exactly; report it with the model's name.",
        )
