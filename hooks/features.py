"""Embeddings of visual tokens during a forward, and one encoding of a video for many questions."""

from __future__ import annotations

import functools
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from hooks.errors import CaptureError, SelfCheckError
from hooks.families import Encoder, Family, family_of
from hooks.layout import Kind
from hooks.token_map import TokenMap

__all__ = ["VisionReuse", "VisualFeatures", "reuse_vision", "visual_features", "wrapped_encoders"]

_LAYER = re.compile(r"layer:(\d+)$")


class VisualFeatures(Mapping[str, Float[np.ndarray, "token dim"]]):
    """Embeddings of one sequence's visual tokens by source, in the order of its `token` axis, float32."""

    def __init__(self, tokens: TokenMap) -> None:
        self._tokens = tokens
        self._found: dict[str, Float[np.ndarray, "token dim"]] = {}

    def __getitem__(self, source: str) -> Float[np.ndarray, "token dim"]:
        if source not in self._found:
            raise CaptureError(
                f"No features {source!r} were captured.",
                remedy=f"Captured: {', '.join(self._found) or 'none; read after the with block'}.",
            )
        return self._found[source]

    def __contains__(self, source: object) -> bool:
        return source in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, source: str, features: Tensor) -> None:
        """Note one source's embeddings, [token, dim]; raises `CaptureError` at a second forward."""
        if source in self._found:
            raise CaptureError(
                f"Features {source!r} passed twice in one capture.",
                remedy="Open a new hooks.visual_features for each forward.",
            )
        self._found[source] = features.detach().float().cpu().numpy()


@contextmanager
def visual_features(
    model: Any, tokens: TokenMap | Sequence[TokenMap], sources: Sequence[str] = ("projector",)
) -> Iterator[Any]:
    """Capture embeddings of visual tokens during the forward inside the `with` block.

    Args:
        model: a loaded model of a known family.
        tokens: the map of the prompt, or one map a sequence of a batch.
        sources: any of `projector` (what enters the language model at visual positions), `vit` (the vision
            tower's last hidden state before the merger, averaged over each merge window), `layer:N` (output
            of decoder layer N, from 0; transformers' `hidden_states[N + 1]` but for the last layer, whose
            final norm is not applied here; before DeepStack adds its features, where a model has it).

    Yields:
        `VisualFeatures`, or a list of them for a batch; filled once the block has ended. Only the
        forward over the whole prompt counts; decode steps do not.

    Raises:
        CaptureError: an unknown source, or a second forward over the prompt.
        SelfCheckError: when the block ends, a source was not seen.
    """
    family = family_of(model)
    maps = [tokens] if isinstance(tokens, TokenMap) else list(tokens)
    results = [VisualFeatures(one) for one in maps]
    with ExitStack() as stack:
        for source in dict.fromkeys(sources):
            stack.enter_context(_watch(model, family, source, maps, results))
        yield results[0] if isinstance(tokens, TokenMap) else results
    for row, result in enumerate(results):
        for source in sources:
            if source not in result and maps[row].n_visual:
                raise SelfCheckError(
                    f"Features {source!r} of sequence {row} were never seen.",
                    remedy="Run one forward over the whole prompt inside the with block.",
                )


@contextmanager
def _watch(
    model: Any, family: Family, source: str, maps: list[TokenMap], results: list[VisualFeatures]
) -> Iterator[None]:
    def note(hidden: Tensor) -> None:
        """Take visual positions out of [batch, position, dim], if this is the whole prompt."""
        if hidden.shape[1] != len(maps[0]):
            return
        for row, (one, result) in enumerate(zip(maps, results, strict=True)):
            positions = torch.from_numpy(one.visual).to(hidden.device)
            result.add(source, hidden[row].index_select(0, positions))

    if source == "projector":

        def before(_module: nn.Module, args: tuple, kwargs: dict) -> None:
            note(kwargs["inputs_embeds"] if "inputs_embeds" in kwargs else args[0])

        handle = family.text_model(model).register_forward_pre_hook(before, with_kwargs=True)
    elif match := _LAYER.match(source):
        layers = family.layers(model)
        if int(match.group(1)) >= len(layers):
            raise CaptureError(
                f"{source!r}: the model has layers 0 to {len(layers) - 1}.", remedy="Choose one."
            )

        def after(_module: nn.Module, _args: tuple, output: Any) -> None:
            note(output[0] if isinstance(output, tuple) else output)

        handle = layers[int(match.group(1))].register_forward_hook(after)
    elif source == "vit":
        with _watch_encoders(model, family, source, maps, results):
            yield
        return
    else:
        raise CaptureError(
            f"Unknown source of features {source!r}.", remedy="Known: projector, vit, layer:N."
        )
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _watch_encoders(
    model: Any, family: Family, source: str, maps: list[TokenMap], results: list[VisualFeatures]
) -> Iterator[None]:
    """Gather the tower's hidden states by kind; most families encode videos and images in separate calls."""
    encoded: dict[Kind, Tensor] = {}
    held = {Kind(int(kind)) for one in maps for kind in np.unique(one.kind)}

    def watch(encoder: Encoder) -> Callable:
        apart = [(kind,) for kind in encoder.kinds if kind in held]
        turns = iter(apart if encoder.apart else [encoder.kinds])

        def watching(arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
            output = call()
            kinds = next(turns, None)
            if kinds is None:
                raise CaptureError(
                    f"{encoder.method} ran twice in one capture.",
                    remedy="Open a new hooks.visual_features for each forward.",
                )
            encoded.update(dict.fromkeys(kinds, family.vit_tokens(model, output, arguments)))
            return output

        return watching

    with wrapped_encoders(model, watch):
        yield
    for one, result in zip(maps, results, strict=True):
        kinds, which = one.kind[one.visual], torch.from_numpy(one.feature[one.visual])
        present = [Kind(int(kind)) for kind in np.unique(kinds)]
        if any(kind not in encoded for kind in present):
            return  # the caller says which source is missing
        if present:
            found = encoded[present[0]].new_empty(len(which), encoded[present[0]].shape[-1])
            for kind in present:
                here = torch.from_numpy(kinds == kind)
                found[here] = encoded[kind][which[here].to(found.device)]
            result.add(source, found)


@contextmanager
def wrapped_encoders(model: Any, wrap: Callable[[Encoder], Callable]) -> Iterator[None]:
    """Put wrappers in front of the methods that encode a model's pictures, and take them away after.

    A wrapper is called with the call's arguments by name and a function that makes the call. Some models
    encode videos by calling their own image encoder: only the outermost call counts.
    """
    family = family_of(model)
    base = family.base(model)
    inside = False

    def outermost(encoder: Encoder, plain: Callable) -> Callable:
        wrapped, signature = wrap(encoder), inspect.signature(plain)

        @functools.wraps(plain)
        def encode(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return plain(*args, **kwargs)
            inside = True
            try:
                return wrapped(_by_name(signature, args, kwargs), lambda: plain(*args, **kwargs))
            finally:
                inside = False

        return encode

    encoders = family.encoders(model)
    before = {encoder.method: base.__dict__.get(encoder.method) for encoder in encoders}
    try:
        for encoder in encoders:
            setattr(base, encoder.method, outermost(encoder, getattr(base, encoder.method)))
        yield
    finally:
        for name, own in before.items():
            if own is None:
                base.__dict__.pop(name, None)
            else:
                setattr(base, name, own)


def _by_name(signature: inspect.Signature, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, those behind `**` among them."""
    bound = signature.bind(*args, **kwargs).arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            bound |= bound.pop(name, {})
    return bound


@dataclass(frozen=True, eq=False)
class _Seen:
    """One tensor an encoder was called with, how often it had been changed, and a small one's value."""

    tensor: Tensor
    version: int
    value: Tensor | None


@dataclass
class VisionReuse:
    """How often the vision tower ran and how often its result was used again."""

    encoded: int = 0
    reused: int = 0
    _held: OrderedDict[tuple, tuple[dict[str, _Seen], Any]] = field(default_factory=OrderedDict)


_SMALL = 4096
"""Elements up to which a tensor (a grid, sizes) is compared by value, not by address."""


@contextmanager
def reuse_vision(model: Any, entries: int = 1) -> Iterator[VisionReuse]:
    """Encode the same pixels once, whatever the question, inside the `with` block.

    Pixels are the same when they are the same tensor in memory, unmodified, with an equal grid; a copy
    is encoded again. What the language model gets is the very tensor it got the first time, so results
    are bit-identical. Gradients are not carried over: use it for inference.

    Args:
        model: a loaded model of a known family.
        entries: results held, most recent first; prompts with images and videos need 2.

    Yields:
        `VisionReuse`, the counts so far.
    """
    reuse = VisionReuse()

    def remember(encoder: Encoder) -> Callable:
        def remembering(arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
            tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
            if not all(_is_plain(value) for name, value in arguments.items() if name not in tensors):
                reuse.encoded += 1  # a list of pictures, say: what it holds is not compared
                return call()
            asked = [(name, repr(value)) for name, value in arguments.items() if name not in tensors]
            key = (encoder.method, *sorted(asked), *(_address(name, one) for name, one in tensors.items()))
            held = reuse._held.get(key)
            if held and all(_unchanged(tensors[name], was) for name, was in held[0].items()):
                reuse._held.move_to_end(key)
                reuse.reused += 1
                return held[1]
            output = call()
            # Holding the pixels keeps their address from being given to other pixels.
            kept = {
                name: _Seen(one, _version(one), one.clone() if one.numel() <= _SMALL else None)
                for name, one in tensors.items()
            }
            reuse._held[key] = (kept, output)
            reuse._held.move_to_end(key)
            while len(reuse._held) > entries:
                reuse._held.popitem(last=False)
            reuse.encoded += 1
            return output

        return remembering

    try:
        with wrapped_encoders(model, remember):
            yield reuse
    finally:
        reuse._held.clear()


def _is_plain(value: Any) -> bool:
    """Whether `repr` says all of a value: of a list of tensors it leaves the middle out."""
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)


def _address(name: str, tensor: Tensor) -> tuple:
    """What tells one large tensor from another; of small ones, which are compared by value, the shape."""
    place = tensor.data_ptr() if tensor.numel() > _SMALL else 0
    return name, place, tensor.shape, tensor.stride(), tensor.dtype


def _unchanged(tensor: Tensor, was: _Seen) -> bool:
    if was.value is None:
        return _version(tensor) == was.version
    return torch.equal(tensor, was.value)


def _version(pixels: Tensor) -> int:
    """How often a tensor was changed in place; tensors made in inference mode do not count that."""
    return -1 if pixels.is_inference() else pixels._version
