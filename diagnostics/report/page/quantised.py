"""Arrays in the page: eight bits a number, in base64, with what turns them back.

Of 256 levels the last, 255, is an undefined number. Shares are small and few of them large, so that a level
is the square root of the number; numbers of both signs are kept in equal steps, 127 being zero.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["quantised", "restored"]

_TOP = 254
_MIDDLE = 127
_UNDEFINED = 255


def quantised(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """The array as JSON values: `shape`, `scale`, `signed`, `data`.

    A level q stands for scale (q / 254)^2, or for scale (q - 127) / 127 where the array has numbers below
    zero. `scale` is the largest magnitude; what is not finite is undefined.
    """
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    found = values[known]
    scale = float(np.abs(found).max(initial=0.0))
    signed = bool((found < 0).any())
    levels = np.full(values.shape, _UNDEFINED, np.uint8)
    if scale > 0:
        share = found / scale
        level = _MIDDLE + _MIDDLE * share if signed else _TOP * np.sqrt(share)
        levels[known] = np.rint(level).astype(np.uint8)
    else:
        levels[known] = 0
    return {
        "shape": list(values.shape),
        "scale": scale,
        "signed": signed,
        "data": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def restored(told: Mapping[str, Any]) -> Float[np.ndarray, "*shape"]:
    """The array that `quantised` told, NaN where undefined, as the page's script reads it."""
    levels = np.frombuffer(base64.b64decode(told["data"]), np.uint8).reshape(told["shape"])
    number = levels.astype(np.float64)
    shares = (number - _MIDDLE) / _MIDDLE if told["signed"] else (number / _TOP) ** 2
    return np.where(levels == _UNDEFINED, np.nan, shares * told["scale"])
