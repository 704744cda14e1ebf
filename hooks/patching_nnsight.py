"""Activation patching through nnsight (0.8 and later): another road to the numbers of `hooks.patch`.

    logits = hooks.patch_nnsight(model, clean, corrupt, tokens, layer=4, positions=tokens.question)

nnsight traces the unmodified model and edits what passes; nothing of `hooks.patching` runs. For those who
work with it anyway, and as a check: tests hold both roads to the same logits. Whole forwards, so a grid takes
longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from hooks.errors import InterventionError
from hooks.families import family_of
from hooks.layer_inputs import check_layers, check_positions, visual_rows
from hooks.patching import DeepStack, Direction, check_pair, source_and_target
from hooks.token_map import TokenMap

__all__ = ["patch_nnsight"]


@torch.no_grad()
def patch_nnsight(
    model: Any,
    clean_inputs: Mapping[str, Any],
    corrupt_inputs: Mapping[str, Any],
    tokens: TokenMap,
    layer: int,
    positions: Int[np.ndarray, " position"] | Sequence[int],
    *,
    direction: Direction = "denoising",
    deepstack: DeepStack = "with",
) -> Float[np.ndarray, " vocabulary"]:
    """Logits of the last position with one set of positions patched at one layer; see `hooks.patch`."""
    from nnsight import NNsight

    length = check_pair(clean_inputs, corrupt_inputs, tokens)
    check_layers(model, [layer])
    if not hasattr(model, "lm_head"):
        raise InterventionError("The model has no output head.", remedy="Load the class with the head.")
    places = np.unique(np.asarray(positions, dtype=np.int64).reshape(-1))
    check_positions(places, length)
    source, target = source_and_target(clean_inputs, corrupt_inputs, direction, deepstack)
    n_streams = len(family_of(model).deepstack_layers(model))
    index = torch.from_numpy(places)
    traced = NNsight(model)
    with traced.trace(**source, logits_to_keep=1, use_cache=False):
        call = traced.model.language_model.inputs.save()
        states = traced.model.language_model.layers[layer].input.save()
    with traced.trace(**target, logits_to_keep=1, use_cache=False):
        if n_streams and deepstack == "with":
            arguments, named = traced.model.language_model.inputs
            rows = torch.from_numpy(visual_rows(named["visual_pos_masks"][0], places))
            edited = [stream.clone() for stream in named["deepstack_visual_embeds"]]
            for number in range(layer, n_streams):
                edited[number][rows] = call[1]["deepstack_visual_embeds"][number][rows]
            traced.model.language_model.inputs = (
                arguments,
                {**named, "deepstack_visual_embeds": edited},
            )
        changed = traced.model.language_model.layers[layer].input.clone()
        changed[:, index] = states[:, index]
        traced.model.language_model.layers[layer].input = changed
        logits = traced.lm_head.output.save()
    return logits[0, -1].float().cpu().numpy()
