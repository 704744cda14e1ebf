"""One encoding of each temporal unit, whichever videos it is shown in.

Qwen's vision towers look at one temporal unit at a time: attention, positions and merging stay inside
it. A video whose units are shown in another order, mixed with others or thinned needs no unit twice.
Whether that holds for a model is checked on the first video that is put together from parts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hooks.errors import CaptureError, SelfCheckError
from hooks.families import Encoder, Kind, family_of
from hooks.features import wrapped_encoders

__all__ = ["UnitReuse", "reuse_units"]

_TOLERANCE = 1e-3
"""Largest difference, as a share of the largest value, between a unit encoded alone and among others."""

Parts = dict[str, Tensor]
"""One unit's part of each tensor of the encoder's output."""


@dataclass
class UnitReuse:
    """How many units were encoded, and how many were taken from an earlier encoding."""

    encoded: int = 0
    reused: int = 0
    _names: list[Hashable] | None = None
    _template: Any = None
    _held: OrderedDict[Hashable, Parts] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _checked: bool = False

    @contextmanager
    def units(self, names: Sequence[Hashable]) -> Iterator[None]:
        """Say what the units of the next video are: equal names stand for equal pictures.

        Pixels are not compared. Forwards outside such a block are left alone.
        """
        self._names = list(names)
        try:
            yield
        finally:
            self._names = None


@contextmanager
def reuse_units(model: Any, most_bytes: int = 1 << 30) -> Iterator[UnitReuse]:
    """Encode each named unit once inside the `with` block.

    A family whose vision tower does not look at one unit at a time (`Family.units_alone`) encodes whole
    videos as ever; nothing is counted then.

    The language model gets what it would have got, up to the rounding of a matrix product over fewer
    rows. Gradients are not carried over: use it for inference, one video a prompt.

    Args:
        model: a loaded model of a known family.
        most_bytes: of encodings held, the least recently used going first.

    Yields:
        `UnitReuse`: the counts so far, and `units` to name the units of each video.

    Raises:
        CaptureError: in the forward, where there are not as many names as units.
        SelfCheckError: in the forward, where this model's units do not stand alone.
    """
    reuse = UnitReuse()

    family = family_of(model)
    plain: Any = getattr(family.base(model), "get_video_features", None)

    def remember(encoder: Encoder) -> Callable:
        def remembering(arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
            if Kind.VIDEO not in encoder.kinds or reuse._names is None or not family.units_alone:
                return call()
            options = dict(arguments)
            pixels, grid_thw = options.pop("pixel_values_videos"), options.pop("video_grid_thw")
            return _from_parts(reuse, pixels, grid_thw, call, encode, options, most_bytes)

        return remembering

    def encode(pixels: Tensor, grid_thw: Tensor, options: dict[str, Any]) -> Any:
        return plain(pixels, grid_thw, **options)

    try:
        with wrapped_encoders(model, remember):
            yield reuse
    finally:
        reuse._held.clear()


def _from_parts(
    reuse: UnitReuse,
    pixels: Tensor,
    grid_thw: Tensor,
    call: Callable[[], Any],
    encode: Callable[[Tensor, Tensor, dict[str, Any]], Any],
    options: dict[str, Any],
    most_bytes: int,
) -> Any:
    names = _full_names(reuse, pixels, grid_thw)
    missing = [unit for unit, name in enumerate(names) if name not in reuse._held]
    missing = [unit for unit in missing if names.index(names[unit]) == unit]  # twice in one video: once
    whole = call() if len(missing) == len(names) else None
    if missing:
        grid = grid_thw.clone()
        grid[0, 0] = len(missing)
        some = pixels.unflatten(0, (len(names), -1))[missing].flatten(0, 1)
        output = whole if whole is not None else encode(some, grid, options)
        reuse._template = output
        for unit, parts in zip(missing, _split(output, len(missing)), strict=True):
            reuse._held[names[unit]] = parts
            reuse._bytes += _size(parts)
    for name in names:
        reuse._held.move_to_end(name)
    reuse.encoded += len(missing)
    reuse.reused += len(names) - len(missing)
    result = whole if whole is not None else _joined([reuse._held[n] for n in names], reuse._template)
    if whole is None and not reuse._checked:
        _check(result, call())
        reuse._checked = True
    while reuse._bytes > most_bytes and len(reuse._held) > 1:
        reuse._bytes -= _size(reuse._held.popitem(last=False)[1])
    return result


def _full_names(reuse: UnitReuse, pixels: Tensor, grid_thw: Tensor) -> list[Hashable]:
    """Names with what else the encoding depends on: the unit's size in patches, and the precision."""
    names = reuse._names or []
    if len(grid_thw) != 1 or int(grid_thw[0, 0]) != len(names):
        shown = grid_thw[:, 0].tolist()
        raise CaptureError(
            f"{len(names)} units were named, and the prompt has videos of {shown} units.",
            remedy="Name every unit of the one video.",
        )
    place = tuple(grid_thw[0, 1:].tolist())
    return [(name, place, pixels.dtype) for name in names]


def _tensors(output: Any) -> dict[str, Tensor]:
    """The encoder's tensors of one video by name: last state, merged tokens, DeepStack's merged tokens."""
    found = {"last": output.last_hidden_state, "merged": _only(output.pooler_output)}
    for place, layer in enumerate(getattr(output, "deepstack_features", None) or ()):
        found[f"deepstack:{place}"] = _only(layer)
    return found


def _only(tensors: Any) -> Tensor:
    """The one video's tensor of a tuple over videos."""
    (tensor,) = tensors if isinstance(tensors, tuple | list) else (tensors,)
    return tensor


def _split(output: Any, units: int) -> list[Parts]:
    blocks = {name: tensor.unflatten(0, (units, -1)) for name, tensor in _tensors(output).items()}
    return [{name: block[unit].clone() for name, block in blocks.items()} for unit in range(units)]


def _joined(parts: Sequence[Parts], template: Any) -> Any:
    """An output like `template` that holds the units of `parts`."""
    joined = {name: torch.cat([one[name] for one in parts]) for name in parts[0]}
    told: dict[str, Any] = {
        "last_hidden_state": joined.pop("last"),
        "pooler_output": _as_in(template.pooler_output, joined.pop("merged")),
    }
    if joined:
        told["deepstack_features"] = [
            _as_in(template.deepstack_features[place], joined[f"deepstack:{place}"])
            for place in range(len(joined))
        ]
    return type(template)(**told)


def _as_in(template: Any, tensor: Tensor) -> Any:
    """One video's tensor alone, or in a tuple over videos: versions of transformers differ."""
    return (tensor,) if isinstance(template, tuple | list) else tensor


def _check(result: Any, expected: Any) -> None:
    for name, tensor in _tensors(expected).items():
        difference = float((tensor - _tensors(result)[name]).abs().max())
        if not difference <= _TOLERANCE * float(tensor.abs().max()):
            raise SelfCheckError(
                f"Units encoded one by one differ from the whole video: {name} by {difference:.3g}.",
                remedy="This model's vision tower mixes units: do without hooks.reuse_units.",
            )


def _size(parts: Parts) -> int:
    return sum(part.nbytes for part in parts.values())
