"""What enters the decoder layers of one forward over a prompt: read, and put in.

A state is the *input* of a layer. What DeepStack adds after earlier layers is in it; what it adds after this
layer and later ones is not: those *streams* enter further up, so whoever moves a state from one video to
another has to say whether they go along. They are read and replaced where the model hands them to its
language model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.errors import InterventionError, SelfCheckError, UnsupportedModelError
from hooks.families import family_of

__all__ = [
    "LayerInputs",
    "asked_layers",
    "check_layers",
    "check_positions",
    "layer_inputs",
    "put_states",
    "streams_after",
    "visual_rows",
]

_MASK, _STREAMS = "visual_pos_masks", "deepstack_visual_embeds"
"""Names under which Qwen3-VL of transformers hands visual places and streams to its language model."""


@dataclass(eq=False)
class LayerInputs:
    """What one forward over a prompt brought; filled when it has run.

    Attributes:
        length: positions of the prompt.
        states: the input of each asked-for layer, in the model's number type and on its device.
        position_ids: rotary positions, as the language model got them; None where it makes its own.
        visual: which positions the streams are added to; None where there are no streams.
        streams: number j is what DeepStack adds after layer j.
    """

    length: int
    states: dict[int, Float[Tensor, "position dim"]] = field(default_factory=dict)
    position_ids: Int[Tensor, "axis one position"] | None = None
    visual: Bool[Tensor, " position"] | None = None
    streams: tuple[Float[Tensor, "token dim"], ...] = ()
    called: bool = False


def check_layers(model: Any, layers: Sequence[int]) -> None:
    """Raises `InterventionError` where a layer does not exist, or none is given."""
    count = len(family_of(model).layers(model))
    outside = [layer for layer in layers if not 0 <= layer < count]
    if outside or not len(layers):
        raise InterventionError(
            f"Layers {outside} do not exist." if len(layers) else "No layer was given.",
            remedy=f"The model's layers are numbered 0 to {count - 1}.",
        )


def asked_layers(model: Any, layers: Literal["all"] | Sequence[int]) -> tuple[int, ...]:
    """The layers by number, `all` or those given; raises `InterventionError` where one does not exist."""
    if isinstance(layers, str):
        if layers != "all":
            raise InterventionError(f"Unknown layers {layers!r}.", remedy="Give `all`, or numbers.")
        return tuple(range(len(family_of(model).layers(model))))
    wanted = tuple(int(layer) for layer in layers)
    check_layers(model, wanted)
    return wanted


def check_positions(positions: Int[np.ndarray, " position"], length: int, what: str = "Positions") -> None:
    """Raises `InterventionError` where a position lies outside a prompt of `length`."""
    if len(positions) and (positions.min() < 0 or positions.max() >= length):
        raise InterventionError(
            f"{what} {positions.min()} to {positions.max()} lie outside a prompt of {length}.",
            remedy="Positions count from 0; take them from the prompt's own token map.",
        )


@contextmanager
def layer_inputs(
    model: Any, length: int, layers: Sequence[int], enter: Callable[[int, Tensor], Tensor] | None = None
) -> Iterator[LayerInputs]:
    """Read the inputs of layers during the forward over a whole prompt inside the `with` block.

    Args:
        model: a loaded model of a known family.
        length: positions of the prompt; other forwards, such as decode steps, pass unseen.
        layers: whose inputs.
        enter: what each of them is replaced by, given the layer and [one, position, dim]; what it returns is
            what is kept. None: they stay as they are.

    Raises:
        InterventionError: a layer that does not exist, a second forward, a batch.
        SelfCheckError: when the block ends, a layer was not seen.
        UnsupportedModelError: layers read more than the residual stream.
    """
    check_layers(model, layers)
    family = family_of(model)
    if beside := family.beside_stream(model):
        raise UnsupportedModelError(
            f"The input of a layer of {family.name} is not all its layers know: there are {beside} too.",
            remedy="Patch a model whose layers read the residual stream alone.",
        )
    found = LayerInputs(length)

    def note(layer: int, hidden: Tensor) -> Tensor | None:
        if hidden.shape[1] != length:
            return None
        changed = hidden if enter is None else enter(layer, hidden)
        found.states[layer] = changed[0]
        return None if enter is None else changed

    def call(_module: nn.Module, _args: tuple, kwargs: dict) -> None:
        embeds = kwargs.get("inputs_embeds")
        if embeds is None or embeds.shape[1] != length:
            return
        if embeds.shape[0] != 1:
            raise InterventionError(
                f"The forward runs {embeds.shape[0]} sequences.", remedy="Run one prompt at a time."
            )
        if found.called:
            raise InterventionError(
                "A second forward over the prompt ran in one block.", remedy="Open a block for each forward."
            )
        found.called = True
        found.position_ids = kwargs.get("position_ids")
        if kwargs.get(_STREAMS):
            found.visual, found.streams = kwargs[_MASK][0], tuple(kwargs[_STREAMS])

    with ExitStack() as stack:
        hook = family.text_model(model).register_forward_pre_hook(call, with_kwargs=True)
        stack.callback(hook.remove)
        for layer in layers:
            stack.callback(_before(family.layers(model)[layer], layer, note).remove)
        yield found
    if missing := [layer for layer in layers if layer not in found.states]:
        raise SelfCheckError(
            f"The inputs of layers {missing} were never seen.",
            remedy="Run one forward over the whole prompt inside the with block, none of it from a cache.",
        )


@contextmanager
def put_states(
    model: Any,
    length: int,
    positions: Int[np.ndarray, " position"],
    states: Mapping[int, Float[Tensor, "position dim"]],
    streams: Mapping[int, Float[Tensor, "token dim"]] | None = None,
) -> Iterator[None]:
    """Put states into the inputs of layers, at some positions, in each forward over the whole prompt.

    Args:
        length: positions of the prompt; other forwards, such as decode steps, pass unchanged.
        positions: where.
        states: by layer, what is put there, in the order of `positions`.
        streams: by number, DeepStack's stream for the visual ones among the positions, in their order.

    Raises:
        InterventionError: a layer or position that does not exist, or an odd number of states.
        SelfCheckError: when the block ends without error, no such forward passed.
    """
    check_layers(model, tuple(states))
    check_positions(positions, length)
    for layer, some in states.items():
        if len(some) != len(positions):
            raise InterventionError(
                f"{len(some)} states for {len(positions)} positions of layer {layer}.",
                remedy="Give one each.",
            )
    family = family_of(model)
    seen: set[int] = set()

    def note(layer: int, hidden: Tensor) -> Tensor | None:
        if hidden.shape[1] != length:
            return None
        seen.add(layer)
        changed = hidden.clone()
        changed[0, torch.from_numpy(positions).to(hidden.device)] = states[layer].to(hidden)
        return changed

    def call(_module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        embeds = kwargs.get("inputs_embeds")
        if embeds is None or embeds.shape[1] != length or not streams:
            return None
        rows = torch.from_numpy(visual_rows(kwargs[_MASK][0], positions))
        changed = list(kwargs[_STREAMS])
        for number, stream in streams.items():
            changed[number] = changed[number].clone()
            changed[number][rows.to(stream.device)] = stream.to(changed[number])
        return args, kwargs | {_STREAMS: changed}

    with ExitStack() as stack:
        hook = family.text_model(model).register_forward_pre_hook(call, with_kwargs=True)
        stack.callback(hook.remove)
        for layer in states:
            stack.callback(_before(family.layers(model)[layer], layer, note).remove)
        yield
    if missing := [layer for layer in states if layer not in seen]:
        raise SelfCheckError(
            f"Nothing was put into layers {missing}: no forward over {length} positions passed them.",
            remedy="Run the prompt that was mapped inside the with block, without a cache of its beginning.",
        )


def streams_after(
    inputs: LayerInputs, layer: int, positions: Int[np.ndarray, " position"]
) -> dict[int, Float[Tensor, "token dim"]]:
    """The streams that enter at or after the end of `layer`, of the visual ones among the positions."""
    if inputs.visual is None:
        return {}
    rows = torch.from_numpy(visual_rows(inputs.visual, positions))
    late = range(layer, len(inputs.streams))
    return {number: inputs.streams[number][rows.to(inputs.streams[number].device)] for number in late}


def visual_rows(visual: Bool[Tensor, " position"], positions: Int[np.ndarray, " position"]) -> np.ndarray:
    """For the visual ones among the positions, the row of a stream."""
    mask = visual.cpu().numpy()
    return (np.cumsum(mask) - 1)[positions[mask[positions]]]


def _before(module: nn.Module, layer: int, note: Callable[[int, Tensor], Tensor | None]) -> Any:
    """Call `note` with what enters a layer, and let what it returns enter instead."""

    def hook(_module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        changed = note(layer, args[0] if args else kwargs["hidden_states"])
        if changed is None:
            return None
        return ((changed, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": changed})

    return module.register_forward_pre_hook(hook, with_kwargs=True)
