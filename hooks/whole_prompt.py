"""A prompt that cannot be run in parts: `hooks.prefix` of models that look back by other roads than keys.

Layers that carry a state or attend in a window do not keep all that lies behind, and pictures that see what
comes after them do not stay as they are held. Of these models each rerun is a whole forward, with states put
in where some are given: the same logits at the full price, which `forwards` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import InterventionError, UnsupportedModelError
from hooks.families import family_of
from hooks.kept_logits import keep_logits
from hooks.layer_inputs import LayerInputs, check_layers, layer_inputs, put_states, visual_rows
from hooks.prefix import HeldPrompt, one_prompt

__all__ = ["WholePrompt", "runs_whole"]


def runs_whole(model: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether a prompt of this model can only be run whole."""
    family = family_of(model)
    two_way = family.two_way(model, inputs, 0)
    return not family.packs(model) or (two_way is not None and bool((two_way >= 0).any()))


class WholePrompt(HeldPrompt):
    """One prompt's inputs, layer inputs and last logits; what is run again is run from the beginning."""

    def __init__(self, model: Any, inputs: Mapping[str, Any], layers: Sequence[int]) -> None:
        check_layers(model, layers)
        keep_logits(model)
        self._model, self._family = model, family_of(model)
        unwanted = ("use_cache", "logits_to_keep")
        self._inputs = {name: value for name, value in inputs.items() if name not in unwanted}
        self.length = one_prompt(inputs)
        self.n_layers = len(self._family.layers(model))
        self.forwards = 0.0
        if self._family.beside_stream(model):
            self._found = LayerInputs(self.length)
            self.logits = self._run_whole()
        else:
            with layer_inputs(model, self.length, layers) as self._found:
                self.logits = self._run_whole()

    def rerun(
        self,
        first: int,
        *,
        layer: int = 0,
        states: Float[Tensor, "position dim"] | None = None,
        streams: Mapping[int, Float[Tensor, "token dim"]] | None = None,
        last_alone: bool = False,
    ) -> Float[Tensor, " vocabulary"]:
        """As in the base class, by one whole forward.

        Raises:
            UnsupportedModelError: states are given of a model whose layers read more than these.
        """
        del last_alone
        check_layers(self._model, [layer])
        if not 0 <= first < self.length:
            raise InterventionError(
                f"Position {first} is not in a prompt of {self.length}.", remedy="Positions count from 0."
            )
        self.forwards += 1
        if states is None:
            return self._run_whole()
        if beside := self._family.beside_stream(self._model):
            raise UnsupportedModelError(
                f"The input of a layer of {self._family.name} is not all its layers know: there are {beside}"
                " too.",
                remedy="Block edges or heads instead of putting states in.",
            )
        if len(states) != self.length - first:
            raise InterventionError(
                f"{len(states)} states for the {self.length - first} positions from {first} on.",
                remedy="Give one for each position that is run.",
            )
        positions = np.arange(first, self.length)
        given: dict[int, Tensor] = {}
        if streams and self._found.visual is not None:
            rows = torch.from_numpy(visual_rows(self._found.visual, positions))
            given = {number: stream[rows.to(stream.device)] for number, stream in streams.items()}
        with put_states(self._model, self.length, positions, {layer: states}, given or None):
            return self._run_whole()

    def follow(
        self, suffix: Int[np.ndarray, " token"] | Sequence[int] | Int[Tensor, " token"], first: int
    ) -> Float[Tensor, "token vocabulary"]:
        """Not of these models: raises `UnsupportedModelError`."""
        del suffix, first
        raise UnsupportedModelError(
            f"Other text cannot follow a held beginning of {type(self._model).__name__}.",
            remedy="Prepare the other prompt and run it whole.",
        )

    def check(self) -> None:
        """Nothing is run in parts: there is nothing to compare."""

    @torch.no_grad()
    def _run_whole(self) -> Float[Tensor, " vocabulary"]:
        return self._model(**self._inputs, logits_to_keep=1, use_cache=False).logits[0, -1].float()
