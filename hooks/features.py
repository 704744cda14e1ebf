"""Embeddings of visual tokens during a forward, and one encoding of a video for many questions."""

from __future__ import annotations

import functools
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
from hooks.families import Family, family_of
from hooks.layout import Kind
from hooks.token_map import TokenMap

__all__ = ["VisionReuse", "VisualFeatures", "reuse_vision", "visual_features", "wrapped_encoders"]

_LAYER = re.compile(r"layer:(\d+)$")
_ENCODERS = {
    Kind.VIDEO: ("get_video_features", "pixel_values_videos", "video_grid_thw"),
    Kind.IMAGE: ("get_image_features", "pixel_values", "image_grid_thw"),
}
"""The method of the model that encodes each kind, and the names of its pixels and grids."""


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

        def before(_module: nn.Module, _args: tuple, kwargs: dict) -> None:
            note(kwargs["inputs_embeds"])

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
    """Gather the tower's hidden states by kind; videos and images are encoded in separate calls."""
    encoded: dict[Kind, Tensor] = {}

    def watch(kind: Kind) -> Callable:
        def watching(_pixels: Tensor, grid_thw: Tensor, call: Callable[[], Any], **_: Any) -> Any:
            output = call()
            if kind in encoded:
                raise CaptureError(
                    f"The {kind.name.lower()} encoder ran twice in one capture.",
                    remedy="Open a new hooks.visual_features for each forward.",
                )
            encoded[kind] = family.vit_tokens(
                family.vision(model), output.last_hidden_state, grid_thw, family.merge_size(model)
            )
            return output

        return watching

    with wrapped_encoders(family.base(model), watch):
        yield
    for one, result in zip(maps, results, strict=True):
        parts = []
        for unit, (start, size) in enumerate(zip(one.unit_feature_start, one.tokens_per_unit, strict=True)):
            kind = Kind(int(one.kind[one.visual[one.unit_first_token[unit]]]))
            if kind not in encoded:
                return  # the caller says which source is missing
            parts.append(encoded[kind][start : start + size])
        if parts:
            result.add(source, torch.cat(parts))


@contextmanager
def wrapped_encoders(base: Any, wrap: Callable[[Kind], Callable]) -> Iterator[None]:
    """Put wrappers in front of the model's image and video encoders, and take them away after.

    A wrapper is called with pixels, grid, a function that makes the wrapped call, and the call's other
    options. Some models encode videos by calling their own image encoder: only the outermost call counts.
    """
    inside = False

    def outermost(kind: Kind, plain: Callable) -> Callable:
        wrapped = wrap(kind)
        _, pixels_name, grid_name = _ENCODERS[kind]

        @functools.wraps(plain)
        def encode(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return plain(*args, **kwargs)
            given = dict(zip((pixels_name, grid_name), args, strict=False)) | kwargs
            pixels, grid = given.pop(pixels_name), given.pop(grid_name)
            inside = True
            try:
                return wrapped(pixels, grid, lambda: plain(*args, **kwargs), **given)
            finally:
                inside = False

        return encode

    before = {name: base.__dict__.get(name) for name, _, _ in _ENCODERS.values()}
    try:
        for kind, (name, _, _) in _ENCODERS.items():
            setattr(base, name, outermost(kind, getattr(base, name)))
        yield
    finally:
        for name, own in before.items():
            if own is None:
                base.__dict__.pop(name, None)
            else:
                setattr(base, name, own)


@dataclass
class VisionReuse:
    """How often the vision tower ran and how often its result was used again."""

    encoded: int = 0
    reused: int = 0
    _held: OrderedDict[tuple, tuple[Tensor, int, Tensor, Any]] = field(default_factory=OrderedDict)


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
    family = family_of(model)
    reuse = VisionReuse()

    def remember(kind: Kind) -> Callable:
        def remembering(pixels: Tensor, grid_thw: Tensor, call: Callable[[], Any], **options: Any) -> Any:
            asked = tuple(sorted((name, value) for name, value in options.items() if isinstance(value, bool)))
            key = (kind, pixels.data_ptr(), pixels.shape, pixels.stride(), pixels.dtype, asked)
            held = reuse._held.get(key)
            if held and held[1] == _version(pixels) and torch.equal(held[2], grid_thw):
                reuse._held.move_to_end(key)
                reuse.reused += 1
                return held[3]
            output = call()
            # Holding the pixels keeps their address from being given to other pixels.
            reuse._held[key] = (pixels, _version(pixels), grid_thw.clone(), output)
            reuse._held.move_to_end(key)
            while len(reuse._held) > entries:
                reuse._held.popitem(last=False)
            reuse.encoded += 1
            return output

        return remembering

    try:
        with wrapped_encoders(family.base(model), remember):
            yield reuse
    finally:
        reuse._held.clear()


def _version(pixels: Tensor) -> int:
    """How often a tensor was changed in place; tensors made in inference mode do not count that."""
    return -1 if pixels.is_inference() else pixels._version
